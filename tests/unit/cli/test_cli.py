"""The command line: what it prints, what it writes, and one clear line for everything that can go wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import gpupc_impl
from gpupc_impl import CPDAG, Skeleton, cli
from gpupc_impl.backends import KernelSource, nvrtc
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.cli import arguments, output
from gpupc_impl.core import registry
from gpupc_impl.search import SearchRequest
from tests.graphs import collider_chain

METHOD = ["--method", "stable-serial"]
COMMAND = [sys.executable, "-m", "gpupc_impl"]
ROOT = Path(gpupc_impl.__file__).parents[1]
EDGES = [("a", "c"), ("b", "c"), ("c", "d")]


@pytest.fixture(scope="module")
def frame():
    return collider_chain(500)


@pytest.fixture
def data(frame, tmp_path):
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def run(capsys):
    """Runs a command in this process; returns its exit code, and what it printed to stdout and stderr."""

    def call(*args):
        try:
            code = cli.main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            code = stop.code
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def refused(run):
    """Runs a command that must end with exit code 2, nothing printed and one line of error, which it returns."""

    def call(*args):
        code, out, err = run(*args)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err.removeprefix("error: ").rstrip("\n")

    return call


def test_methods(run):
    code, out, err = run("methods")
    assert (code, err) == (0, "")
    header, *lines = out.split("\n\n")[0].splitlines()
    assert header.split() == ["method", "family", "backends", "summary"]
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == set(gpupc_impl.methods())
    assert max(map(len, out.splitlines())) <= 100
    described = run("methods", "cupc-s")[1]
    for text in ("gaussian", "cuda, host", "theta=64", "delta=2", "Algorithm 5"):
        assert text in described
    assert "did you mean cupc-s" in run("methods", "cupc_s")[2]
    assert run("methods", "--family", "gaussian")[1].startswith("method")
    assert run("methods", "--family", "ordinal")[2].startswith("error: no method is of family 'ordinal'; families: ")


def test_methods_say_why_they_cannot_run_here(run, monkeypatch):
    gpupc_impl.methods()
    monkeypatch.setattr(registry, "_METHODS", {})
    facts = {"family": "gaussian", "source": "-", "summary": "-", "backends": ("cpu",)}
    for name, reason in (("one", "no moon tonight"), ("two", "no moon tonight"), ("three", None)):
        registry.method(name, **facts, unavailable=lambda reason=reason: reason)(lambda problem, run: None)
    _, out, _ = run("methods")
    table, _, reasons = out.split("\n\n")
    expected = [[name, "gaussian", backend] for name, backend in (("one", "cpu"), ("three", "cpu*"), ("two", "cpu"))]
    assert [line.split()[:3] for line in table.splitlines()[1:]] == expected
    assert reasons == "Not available here:\n  cpu: no moon tonight (one, two)\n"


def test_summary(run, data):
    code, out, err = run("skeleton", data, *METHOD, "--alpha", "0.001")
    assert (code, err) == (0, "")
    read, *lines = out.splitlines()
    assert read.startswith("read: 500 rows, 4 columns (4 of numbers, 0 of categories); gaussian test (")
    assert lines[:4] == ["variables: 4", "samples: 500", "method: stable-serial on cpu, alpha 0.001", "edges: 3"]
    assert lines[4] == "neighbours: 1.50 on average, at most 3 ('c'); 0 without any"
    assert lines[5].split() == ["level", "edges", "left", "tests", "seconds"]
    assert lines[6].split()[:3] == ["0", "5", "6"]
    rest = {line.partition(":")[0]: line.partition(": ")[2] for line in lines[5:]}
    assert rest["stopped"].startswith("complete: ")
    assert (rest["undefined tests"], rest["pseudo-inverses"]) == ("0", "0")
    assert "in all" in rest["seconds"]


def test_edges_are_printed(run, data, tmp_path):
    lines = run("pc", data, *METHOD, "--alpha", "0.001")[1].splitlines()
    assert "directions: 3 directed, 0 undirected (0 of them in conflict)" in lines
    table = [line.split() for line in lines[lines.index("") + 1 :]]
    assert table == [["source", "target", "kind"], *([a, "→", b, "directed"] for a, b in EDGES)]
    values = np.random.default_rng(0).normal(size=(100, 30))
    np.save(tmp_path / "chain.npy", values.cumsum(axis=1))
    lines = run("skeleton", tmp_path / "chain.npy", *METHOD, "--alpha", "1e-5")[1].splitlines()
    assert len(lines[lines.index("") + 2 : -1]) == 20
    assert lines[-1] == "... and 9 more, which --output FILE.csv or --json has"


def test_json(run, data, tmp_path):
    """What is printed is JSON alone, on every command, wherever the option stands."""
    out = tmp_path / "out.csv"
    _, printed, _ = run("pc", data, *METHOD, "--alpha", "0.001", "--json", "--output", out)
    found = json.loads(printed)
    assert found["edges"] == [{"source": a, "target": b, "kind": "directed"} for a, b in EDGES]
    assert found["variables"] == ["a", "b", "c", "d"]
    assert found["facts"]["problem"]["alpha"] == 0.001
    assert found["written"] == [str(out)]
    assert json.loads(run("--json", "pc", data, *METHOD, "--alpha", "0.001")[1])["edges"] == found["edges"]
    described = json.loads(run("methods", "cupc-s", "--json")[1])
    assert described["parameters"]["theta"]["default"] == 64
    listed = json.loads(run("methods", "--json")[1])["methods"]
    assert {each["method"] for each in listed} == set(gpupc_impl.methods())
    series = json.loads(run("pcmci", data, "--tau-max", 1, "--json")[1])
    assert {"source", "target", "lag"} <= set(series["links"][0])


def test_a_picture(run, refused, data, tmp_path):
    picture = tmp_path / "graph.png"
    assert run("pc", data, *METHOD, "--plot", picture)[1].endswith(f"written: {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "its name must end in .png or .svg" in refused("pc", data, *METHOD, "--plot", tmp_path / "graph.gif")


def test_example_data(run, refused):
    code, out, _ = run("pc", "example:health", *METHOD)
    assert (code, "variables: 8" in out) == (0, True)
    assert refused("pc", "example:none", *METHOD).endswith("choose one of: health, sachs")


def test_a_sheet_by_name(run, refused, frame, tmp_path):
    path = tmp_path / "book.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"notes": ["none"]}).to_excel(book, sheet_name="first", index=False)
        frame.to_excel(book, sheet_name="numbers", index=False)
    assert "variables: 4" in run("skeleton", path, *METHOD, "--sheet", "numbers")[1]
    message = refused("skeleton", path, *METHOD, "--sheet", "second")
    assert "it has no sheet 'second'; it has: 'first', 'numbers'" in message


def test_bootstrap(run, data, tmp_path):
    options = [*METHOD, "--alpha", "0.001", "--resamples", 4, "--seed", 3]
    code, out, _ = run("bootstrap", data, *options, "--output", tmp_path / "out.npz", "--plot", tmp_path / "out.svg")
    assert code == 0
    assert out.splitlines()[1] == "edges in at least 50.0% of the resamples: 3"
    found = gpupc_impl.Bootstrap.load(tmp_path / "out.npz")
    expected = gpupc_impl.bootstrap(pd.read_csv(data), 4, 0.001, seed=3, method="stable-serial")
    assert found.to_frame().equals(expected.to_frame())
    stable = json.loads(run("bootstrap", data, *options, "--errors", "1.5", "--json")[1])
    halved = {"replace": False, "fraction": 0.5, "method": "stable-serial"}
    halves = gpupc_impl.bootstrap(pd.read_csv(data), 4, 0.001, seed=3, **halved)
    assert stable["at_least"] == halves.threshold(1.5) > 0.5
    assert len(stable["edges"]) == len(halves.to_frame(halves.threshold(1.5)))
    assert "give a lower alpha" in run("bootstrap", data, *options, "--errors", "0.1")[2]


def test_alpha_path(run, data, tmp_path):
    code, out, _ = run("alpha-path", data, *METHOD, "--alphas", 0.01, 1e-5, "--output", tmp_path / "out.csv")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["1e-05", "3"], ["0.01", "3"]]
    assert list(pd.read_csv(tmp_path / "out.csv")) == ["source", "target", "1e-05", "0.01"]


def test_a_method_is_tried(run, tmp_path):
    family = ROOT / "gpupc_impl" / "kernel" / "kernel_batched.py"
    code, out, _ = run("try", family, "--backend", "host")
    assert code == 0
    assert [line.split()[:4] for line in out.splitlines()[1:2]] == [["kernel-batched", "4", "80", "equal"]]
    assert json.loads(run("try", family, "--json")[1])["trials"][0]["difference"] == ""
    assert "there is no file" in run("try", tmp_path / "none.py")[2]


def test_outputs_of_skeleton(run, data, tmp_path):
    for suffix in ("npz", "csv"):
        code, out, _ = run("skeleton", data, *METHOD, "--alpha", "0.001", "--output", tmp_path / f"out.{suffix}")
        assert code == 0
        assert out.endswith(f"written: {tmp_path / f'out.{suffix}'}\n")
    stored = Skeleton.load(tmp_path / "out.npz")
    assert stored.names == ("a", "b", "c", "d")
    assert stored.facts["problem"]["alpha"] == 0.001
    assert stored.sepsets[0, 3] == (2,)
    assert list(pd.read_csv(tmp_path / "out.csv").itertuples(index=False, name=None)) == EDGES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "out.csv", "out.npz"]


def test_outputs_of_pc(run, data, tmp_path):
    for suffix in ("npz", "csv", "graphml", "gml", "dot", "json"):
        options = ["--alpha", "0.001", "--quiet", "--output", tmp_path / f"out.{suffix}"]
        assert run("pc", data, *METHOD, *options) == (0, "", "")
    stored = CPDAG.load(tmp_path / "out.npz")
    assert np.argwhere(stored.directed).tolist() == [[0, 2], [1, 2], [2, 3]]
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "a,c,directed"
    assert nx.read_graphml(tmp_path / "out.graphml").is_directed()
    assert set(nx.read_gml(tmp_path / "out.gml").edges) == set(EDGES)
    assert "v0 -> v2;" in (tmp_path / "out.dot").read_text()
    graph = nx.node_link_graph(json.loads((tmp_path / "out.json").read_text()), edges="edges")
    assert set(graph.edges) == set(EDGES)


def test_report(run, refused, data, tmp_path, monkeypatch):
    page, odd = tmp_path / "page.html", tmp_path / os.fsdecode(b"\xff.csv")
    odd.write_bytes(data.read_bytes())
    code, out, _ = run("pc", odd, *METHOD, "--alpha", "0.001", "--report", page)
    assert (code, out.splitlines()[-1]) == (0, f"written: {page}")
    assert "<td>c</td><td>→</td><td>d</td><td class=number" in page.read_text()
    assert r"\udcff.csv, last changed " in page.read_text()
    absent = tmp_path / "absent.csv"  # what follows is refused before the data are read
    assert "its name must end in .html or .htm" in refused("pc", absent, *METHOD, "--report", tmp_path / "page.csv")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install matplotlib" in refused("pc", absent, *METHOD, "--report", page)


def test_names_that_a_format_cannot_hold(refused, frame, tmp_path):
    frame.rename(columns={"a": "\x01"}).to_csv(tmp_path / "odd.csv", index=False)
    options = ["--quiet", "--output", tmp_path / "out.graphml"]
    assert "which XML cannot hold" in refused("pc", tmp_path / "odd.csv", *METHOD, *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.csv"]


def test_search_options_arrive(run, data, tmp_path):
    options = ["--max-level", 0, "--param", "df_convention=cupc", "--pmax", "--separating-sets", "canonical"]
    run("skeleton", data, *METHOD, *options, "--output", tmp_path / "out.npz")
    stored = Skeleton.load(tmp_path / "out.npz")
    assert stored.levels_run == 1
    assert stored.facts["problem"]["df_convention"] == "cupc"
    assert stored.pmax.shape == (4, 4)


DISCRETE = ["--family", "discrete", "--backend", "host", "--max-level", "1"]


def test_a_table_of_labels(run, frame, tmp_path):
    words = frame.apply(lambda column: pd.cut(column, 3, labels=["low", "middle", "high"]))
    words["d"] = words["d"].cat.codes  # whole numbers are labels as well
    words.to_csv(tmp_path / "words.csv", index=False)
    options = [*DISCRETE, "--alpha", "0.001", "--param", "df_rule=adjusted", "--output", tmp_path / "out.npz"]
    code, out, _ = run("skeleton", tmp_path / "words.csv", *options)
    assert (code, "method: gpupc on host" in out) == (0, True)
    stored = Skeleton.load(tmp_path / "out.npz")
    assert stored.facts["problem"]["df_rule"] == "adjusted"
    assert ("c", "d") in set(stored.to_frame().itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("a,b\nx,y\nNA,y\n", "line 3, column 1 ('a'); impute them, or say missing='drop-rows'"),
        ("x,y\nx,z\nw,y\n", "the first line may hold names or labels; say --header or --no-header"),
        ("a,b\nx,y,z\n", "column 1 has no name; say --row-names if it names the rows"),
    ],
)
def test_tables_of_labels_that_cannot_be_used(refused, tmp_path, table, message):
    (tmp_path / "words.csv").write_text(table)
    assert message in refused("skeleton", tmp_path / "words.csv", *DISCRETE)


def test_the_plan_of_an_out_of_core_search_is_told(run, data):
    options = ["--method", "out-of-core-block", "--backend", "host", "--device-memory-limit", "1MB"]
    assert "4 variables, budget 1,048,576 bytes" in run("skeleton", data, *options, "--verbose")[2]
    assert "budget" not in run("skeleton", data, *options)[2]


def test_a_kernel_method_and_its_options(run, data, tmp_path):
    options = ["--method", "cupc-s", "--backend", "host", "--device-memory-limit", "1GiB"]
    options += ["--param", "theta=32", "--param", "delta=1"]
    assert run("pc", data, *options, "--output", tmp_path / "kernel.npz")[0] == 0
    run("pc", data, *METHOD, "--output", tmp_path / "reference.npz")
    kernel, reference = (CPDAG.load(tmp_path / f"{name}.npz") for name in ("kernel", "reference"))
    assert kernel.skeleton.facts["params"] == {"theta": 32, "delta": 1, "inverse": "cholesky"}
    assert kernel == reference
    assert kernel.skeleton == reference.skeleton


def test_correlations_made_on_the_device(run, refused, data, tmp_path):
    options = ["--method", "pair-scan", "--backend", "host", "--output", tmp_path / "out.npz"]
    assert run("skeleton", data, *options, "--param", "correlations=device")[0] == 0
    found = Skeleton.load(tmp_path / "out.npz")
    assert found.facts["problem"]["correlations"] == "device"
    assert found.facts["params"] == {}
    assert run("skeleton", data, *METHOD, "--output", tmp_path / "reference.npz")[0] == 0
    assert Skeleton.load(tmp_path / "reference.npz") == found
    assert refused("skeleton", data, *options, "--device-memory-limit", "64B").startswith("device memory exhausted: ")
    message = refused("skeleton", data, *options, "--param", "correlations=gpu")
    assert "correlations is 'gpu'; choose one of: host, device" in message


def test_correlation_matrix(run, refused, frame, data, tmp_path):
    frame.corr().to_csv(tmp_path / "corr.csv", index=False)
    run("skeleton", data, *METHOD, "--output", tmp_path / "data.npz")
    options = ["--correlation", "--n-samples", 500, "--output", tmp_path / "corr.npz"]
    code, out, _ = run("skeleton", tmp_path / "corr.csv", *METHOD, *options)
    assert code == 0
    assert "samples: 500" in out
    assert Skeleton.load(tmp_path / "corr.npz") == Skeleton.load(tmp_path / "data.npz")
    assert "go together" in refused("skeleton", data, *METHOD, "--correlation")
    assert "go together" in refused("skeleton", data, *METHOD, "--n-samples", 9)
    assert "must be square" in refused("skeleton", data, *METHOD, "--correlation", "--n-samples", 500)


def test_progress_on_a_terminal_only(run, data, monkeypatch):
    assert run("skeleton", data, *METHOD)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    lines = run("skeleton", data, *METHOD)[2].splitlines()
    assert lines[0].startswith("level 0: 5 edges left, 6 tests, ")
    assert run("skeleton", data, *METHOD, "--quiet")[2] == ""


def test_warnings_are_one_line(run, frame, tmp_path):
    frame.assign(flat=1.0).to_csv(tmp_path / "flat.csv", index=False)
    code, _, err = run("skeleton", tmp_path / "flat.csv", *METHOD, "--quiet")
    assert code == 0
    assert err == "warning: 1 constant variable(s) (flat) are independent of all others\n"


def test_no_name_of_others_commands_the_terminal(run, frame, data, tmp_path):
    name = "\x1b]0;title\x07\x9b2J"
    frame.assign(**{name: 1.0}).to_csv(tmp_path / "odd.csv", index=False)
    frame.rename(columns={"a": name, "b": f"{name} "}).to_csv(tmp_path / "same.csv", index=False)
    for file, code in (("odd.csv", 0), ("same.csv", 2)):
        outcome, *printed = run("skeleton", tmp_path / file, *METHOD)
        assert outcome == code
        assert r"\x1b]0;title\x07\x9b2J" in printed[1]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "".join(printed))


SUFFIXES = ".npz, .csv, .graphml, .gml, .dot, .json, .png or .svg"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--method", "cupc"], "method 'cupc' is not known; did you mean cupc-"),
        (["--param", "theta=64"], "method 'stable-serial' has no parameter 'theta'; it has: none"),
        (["--param", "alpha=0.1"], "alpha is not a parameter of a method; say --alpha"),
        (["--param", "aplha=0.1"], "did you mean 'alpha'? method 'stable-serial' has no parameter 'aplha'"),
        (["--param", "theta"], "'theta' is not of the form KEY=VALUE"),
        (["--param", "x=1", "--param", "x=2"], "a --param is given twice"),
        (["--alpha", "high"], "invalid float value: 'high'"),
        (["--alpha", "2"], "alpha is 2.0; it must be a number strictly between 0 and 1"),
        (["--backend", "opencl"], "invalid choice: 'opencl'"),
        (["--family", "ordinal"], "invalid choice: 'ordinal'"),
        (["--device-memory-limit", "much"], "'much' is not a size, such as 512MiB or 2GiB"),
        (["--device-memory-limit", f"{'9' * 30}GiB"], "GiB' is over the limit of 1,048,576TiB; give a size such as"),
        (["--output", "out.txt"], f"cannot write out.txt: its name must end in {SUFFIXES}"),
        (["--output", "no/such/out.npz"], "cannot write no/such/out.npz: there is no folder no/such"),
        (["--depth", "3"], "unrecognized arguments: --depth 3"),
        *((["--encoding", name], "by which Python decodes no text") for name in ("utf-8\0", "zlib", "", "\udcff")),
        (["--encoding", "x" * 5000], "x (4,942 characters) x"),
    ],
)
def test_refuses_before_it_reads(refused, args, message):
    assert message in refused("skeleton", "absent.csv", *METHOD, *args)


def test_refuses_outputs_that_would_be_lost(refused, data, tmp_path, monkeypatch):
    (tmp_path / "folder.csv").mkdir()
    assert refused("pc", data, *METHOD, "--output", tmp_path / "folder.csv").endswith("it is a folder")
    assert refused("pc", data, *METHOD, "--output", data).endswith("it is the data")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert refused("pc", data, *METHOD, "--output", tmp_path / "out.csv").endswith("permission denied")


@pytest.mark.parametrize(("text", "bytes_"), [("64", 64), ("1.5k", 1536), ("2 g", 2**31), ("1TiB", 2**40)])
def test_sizes(text, bytes_):
    parsed = arguments.parser().parse_args(["skeleton", "data.csv", "--device-memory-limit", text])
    assert parsed.device_memory_limit == bytes_


def test_missing_file(refused, tmp_path):
    for name in ("none.csv", "none.npz"):
        message = refused("skeleton", tmp_path / name, *METHOD)
        assert message.endswith(f"{name} cannot be read: No such file or directory")
    assert refused("skeleton", tmp_path, *METHOD) == f"{tmp_path} cannot be read: Is a directory"
    assert "required: COMMAND" in refused()


def test_a_fault_of_ours_is_told_from_a_users(run, data, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("broken inside")

    monkeypatch.setattr(SearchRequest, "open", fail)
    code, _, err = run("skeleton", data, *METHOD)
    assert (code, err) == (1, "error: RuntimeError: broken inside (GPUPC_DEBUG=1 shows where)\n")
    monkeypatch.setenv("GPUPC_DEBUG", "1")
    with pytest.raises(RuntimeError, match="broken inside"):
        run("skeleton", data, *METHOD)
    monkeypatch.undo()
    monkeypatch.setenv("GPUPC_DEBUG", "1")
    with pytest.raises(output.UsageError, match="No such file"):
        run("skeleton", "none.csv", *METHOD)


def test_a_failed_save_leaves_nothing_behind(refused, data, tmp_path, monkeypatch):
    def fill_the_disk(file, array, **options):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "out.npz").write_text("the old one")
    monkeypatch.setattr(np.lib.format, "write_array", fill_the_disk)
    assert "No space left" in refused("skeleton", data, *METHOD, "--quiet", "--output", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "out.npz"]


# A shell starts its background jobs with Ctrl-C ignored, and so would the command be.
INTERRUPTIBLE = {"cwd": ROOT, "text": True, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}


def test_ctrl_c(tmp_path):
    """Interrupted while it waits for its data, from a pipe nobody writes to."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **INTERRUPTIBLE}
    with subprocess.Popen([*COMMAND, "skeleton", str(pipe), *METHOD], **options) as process:
        descriptor = os.open(pipe, os.O_WRONLY)  # returns once the command reads
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        os.close(descriptor)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_ctrl_c_that_an_import_drops_is_repeated(tmp_path):
    """As imports in C do, which ask for an attribute and drop whatever comes instead of it."""
    (tmp_path / "drops.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(1)\n"
        "except KeyboardInterrupt:\n    time.sleep(60)\n"
    )
    variables = {"GPUPC_PLUGINS": "drops", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    options = {"env": os.environ | variables, "capture_output": True, "timeout": 50, **INTERRUPTIBLE}
    done = subprocess.run([*COMMAND, "methods"], **options)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error():
    pipeline = f"{sys.executable} -m gpupc_impl methods | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {pipeline}"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("closed", "status"), [("2>&-", 2), (">&- 2>&-", 0)])
def test_closed_streams_are_no_error(data, tmp_path, closed, status):
    """The name of a file that is not UTF-8 is none either."""
    odd = tmp_path / os.fsdecode(b"\xff.csv")
    odd.write_bytes(data.read_bytes())
    file = "none.csv" if status else str(odd)
    command = [*COMMAND, "skeleton", file, *METHOD, "--output", str(tmp_path / "out.json")]
    done = subprocess.run(["bash", "-c", f'"$@" {closed}', "bash", *command], cwd=ROOT, capture_output=True)
    assert (done.returncode, b"Error" in done.stderr) == (status, False)
    assert status or json.loads((tmp_path / "out.json").read_text())["nodes"]


def test_knowledge_conflicts_and_v_structures(run, refused, data, tmp_path):
    known = tmp_path / "known.yaml"
    known.write_text("required_edges: [[a, d]]\nforbidden_edges: [[b, c]]\ntiers: [[d]]\n")
    out = tmp_path / "graph.npz"
    choices = ["--conflicts", "priority", "--v-structures", "majority"]
    code, printed, _ = run("pc", data, *METHOD, "--knowledge", known, *choices, "--output", out)
    assert code == 0
    assert "known: 1 edge(s) required, 1 forbidden" in printed
    found = CPDAG.load(out)
    assert found.skeleton.adjacency[0, 3]
    assert not found.skeleton.adjacency[1, 2]
    assert run("skeleton", data, *METHOD, "--knowledge", known, "--output", out)[0] == 0
    assert Skeleton.load(out) == found.skeleton
    known.write_text("required_edges: [[a, e]]")
    assert "'e', which the data do not have" in refused("skeleton", data, *METHOD, "--knowledge", known)
    assert "cannot be read: No such file" in refused("skeleton", data, *METHOD, "--knowledge", tmp_path / "none.yaml")
    assert "invalid choice" in refused("pc", data, "--conflicts", "rand")


def test_kernels_are_compiled_ahead(run, monkeypatch):
    """Each kernel of the families' lists is requested of the backend once, first all together, then one by one."""
    requested, taken = [], []
    monkeypatch.setattr(HostBackend, "prefetch", lambda self, kernels: requested.extend(kernels))
    monkeypatch.setattr(HostBackend, "kernel", lambda self, *kernel: taken.append(KernelSource(*kernel)))
    code, out, err = run("compile", "--family", "discrete", "--backend", "host")
    assert (code, err) == (0, "")
    assert out.startswith(f"{len(taken)} kernels for backend host are in ")
    assert requested == taken
    names = [(kernel.source, kernel.expression) for kernel in taken]
    assert len(set(names)) == len(names) > 20


def test_kernels_are_compiled_for_an_architecture(run, monkeypatch):
    compiled = []
    monkeypatch.setattr(nvrtc, "compile_image", lambda library, kernel, architecture: compiled.append(architecture))
    library = types.SimpleNamespace(getSupportedArchs=lambda: [80, 90])
    monkeypatch.setitem(sys.modules, "cupy.cuda.nvrtc", library)
    monkeypatch.setitem(sys.modules, "cupy.cuda", types.ModuleType("cupy.cuda"))
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    code, out, _ = run("compile", "--family", "mixed", "--arch", "sm_90")
    assert code == 0
    assert compiled == ["sm_90"] * len(compiled)
    assert out.startswith(f"{len(compiled)} kernels for sm_90 are in ")
    code, _, err = run("compile", "--arch", "sm_35")
    assert code == 2
    assert err == "error: architecture 'sm_35' is not known to this NVRTC; choose one of: sm_80, sm_90\n"
