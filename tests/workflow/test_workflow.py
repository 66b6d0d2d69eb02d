"""The workflow as a user runs it: dry, for real on a tiny config, with a wrong method, killed, and mistyped."""

import functools
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from gpupc_impl.core.files import read_csv as rows
from gpupc_impl.measurement.publish import check, publish
from gpupc_impl.reporting.catalogue import entries
from tests.workflow import calls
from workflow.lib.config import check_config
from workflow.lib.experiments import expand

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
SCHEMA = ROOT / "workflow/schemas/config.schema.yaml"
PLUGINS = Path(__file__).with_name("plugins")
CONFIGS = [ROOT / "config/config.yaml", ROOT / "config/paper.yaml", TINY]

pytest.importorskip("snakemake")


def command(folder, config, *arguments):
    """A call of Snakemake from the source tree, with everything it writes in `folder`."""
    return [
        *(sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder),
        *("--configfile", config, "--cores", "2", "--max-jobs-per-timespan", "100/1s"),
        *arguments,
    ]


def environment(mirror="", plugins=PLUGINS, **more):
    """Ours, without its mirrors, and with the plug-in methods of the tests and more variables."""
    paths = [str(plugins), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "GPUPC_PLUGINS": "planted,toys",
        "GPUPC_MIRRORS": str(mirror),
        **more,
    }


def snakemake(folder, config, *arguments, fails=False, **given):
    """Run it to its end, in a fork of a process that has imported it; returns what it printed."""
    _, _, _, *options = command(folder, config, *arguments)
    done = calls.snakemake(options, environment(**given))
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


def variant(path, change):
    """The tiny config, changed."""
    config = yaml.safe_load(TINY.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def small(path, *settings, memory_mb=None, **timing):
    """The tiny config with one data set, some settings and no experiments."""

    def change(config):
        del config["experiments"]
        config["datasets"] = {"tiny": config["datasets"]["tiny"]}
        config["settings"]["gaussian"] = {name: {} for name in settings}
        config["timing"] |= timing
        config["limits"] = {"memory_mb": memory_mb}

    return variant(path, change)


def with_value(path, place, value):
    """The config in a file with another value at this place, where parts may be missing."""
    config = yaml.safe_load(path.read_text())
    *keys, last = place.split(".")
    functools.reduce(lambda part, key: part.setdefault(key, {}), keys, config)[last] = value
    return config


def record(folder, dataset, setting):
    return json.loads((folder / f"results/records/{dataset}/{setting}.json").read_text())


def wait_for(condition, process=None, seconds=120):
    """What the condition gives once that is true, while the process runs."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up
        assert process is None or process.poll() is None
        time.sleep(0.05)
    return found


DRAWN = ("ooc_fig1", "ooc_fig2")
LOOKED_AT = ("results/verification.ok", "results/records.csv", "cupc_table1", "methods_by_dataset", "toy_table", *DRAWN)
"""The targets whose content a test looks at. The others are made in a slow test: each is a process of its own."""
RECORDS = 18 + 2 + 2 * 2 + 2 + 2 * 3
"""Of the data sets, the grid, the graphs, and of both experiments of the out-of-core paper."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which all that the tiny config measures was measured, verified and shown; later tests add to it."""
    folder = tmp_path_factory.mktemp("finished")
    snakemake(folder, TINY, *LOOKED_AT)
    return folder


@pytest.mark.parametrize(
    "config",  # the tiny one is run for real, and parts of the paper's are asked for in the next test
    [CONFIGS[0], pytest.param(CONFIGS[1], marks=pytest.mark.slow)],
    ids=lambda path: path.stem,
)
def test_dry_run(tmp_path, config):
    printed = snakemake(tmp_path, config, "--dry-run")
    tables = ("cupc_table1", "cupc_table2", "cupc_claims", "ooc_table1")
    figures = ("cupc_fig5", "cupc_fig6", "cupc_fig7", "cupc_fig8", "cupc_fig9", "cupc_fig10", "ooc_fig1", "ooc_fig2")
    outputs = [*tables, *figures, *(f"cmiknn_table{k}" for k in (1, 2, 3, 4, 5, 10)), "cmiknn_fig1"]
    for output in [*outputs, *(f"gpupc_table{k}" for k in range(1, 4))]:
        assert f"Making {output}\n" in printed
    for batch in ("gaussian", "discrete", "nonlinear", "cupc_fig10"):
        assert f"Measuring {batch} " in printed
    assert "Timing single tests" in printed


def test_targets_measure_only_what_they_show_on_the_backend_that_the_command_line_names(tmp_path):
    printed = snakemake(tmp_path, CONFIGS[1], "--config", "backend=cuda", "--dry-run", "cupc_fig10", "cmiknn_table1")
    measured = re.findall("(?:Measuring|Timing) (.*) on backend (.*)", printed)
    assert set(measured) == {("cupc_fig10", "cuda"), ("single tests", "cuda")}
    for other in ("Fetching", "cupc_table1"):
        assert other not in printed


def test_the_inner_snakefile_makes_everything(tmp_path):
    _, _, _, _, _, *options = command(tmp_path, TINY, "--dry-run", "--quiet", "rules")
    called = calls.snakemake(["--snakefile", ROOT / "workflow/Snakefile", *options], environment())
    assert called.returncode == 0, called.stdout
    assert "report_page " in called.stdout


def test_a_mistake_in_the_config_is_named(tmp_path):
    config = variant(tmp_path / "config.yaml", lambda config: config.update(timeing=config.pop("timing")))
    printed = snakemake(tmp_path, config, "--dry-run", fails=True)
    assert "config: unknown key 'timeing' at the top level; did you mean 'timing'?" in printed
    assert "Traceback" not in printed


FIG7, FIG10, TABLE1 = "experiments.cupc_fig7", "experiments.cupc_fig10", "experiments.ooc_table1"
LONG = list(range(1, 2000))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("alpha", 5, "alpha: 5 is greater than or equal to the maximum of 1"),
        ("timing.repeat", 5, "unknown key 'repeat' at timing; did you mean 'repeats'?"),
        ("datasets.nci60", {}, "datasets: no data set is called 'nci60'; did you mean nci-60?"),
        ("datasets.cooling-data", {}, "its family is 'nonlinear', for which there are no settings"),
        ("settings.gaussian.cupc-x", {}, "settings.gaussian.cupc-x: method 'cupc-x' is not known"),
        ("settings.gaussian.cupc-s.params", {"beta": 2}, "method 'cupc-s' has no parameter 'beta'"),
        ("settings.gaussian.cupc-s.only", ["tinny"], "unknown data set 'tinny' in settings.gaussian.cupc-s.only; did"),
        ("settings.gaussian.cupc-e-2-32", {"method": "cupc-e"}, "'cupc-e-2-32' stands in settings.gaussian as well"),
        (f"{FIG7}.grid.values", {"beta": [1], "delta": [32]}, f"{FIG7}: cupc-e-1-32: method 'cupc-e' has no parameter"),
        (f"{FIG7}.grid.values", {"beta": LONG, "gamma": LONG}, f"{FIG7}: beta, gamma have 3,996,001 combinations"),
        (f"{FIG10}.graphs.name", "dag-m{m}-seed{seed}", f"{FIG10}: two graphs would be called 'dag-m100-seed0'"),
        *(
            (f"{FIG10}.graphs.name", f"dag-{braces}", f"graphs.name 'dag-{braces}': between braces stands")
            for braces in ("{m.real}", "{m[0]}", "{m:999999999}", "{m!r}", "{}")
        ),
        (f"{TABLE1}.datasets", {"ecoli70": {}}, f"{TABLE1}: data set 'ecoli70' stands in datasets or graphs as well"),
        ("experiments.ooc_fig2.datasets", {"mcc": {}}, f"{TABLE1}: 'mcc' stands in experiments.ooc_fig2 as well"),
        (f"{TABLE1}.datasets.mcc.problem", {"alfa": 1}, f"unknown parameter 'alfa' in {TABLE1}"),
        ("datasets", {0: {}, "mcc": {None: 1}}, "datasets: the key 0 is no text; put it in quotes\ndatasets.mcc: "),
    ],
)
def test_mistakes_in_a_config(path, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_config(with_value(TINY, path, value))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_configs_are_right(config):
    check_config(yaml.safe_load(config.read_text()))


def test_the_grids_and_graphs_are_the_papers():
    """By default about every other value of the grids, and those that the paper chose."""
    default, paper = (expand(yaml.safe_load(config.read_text())) for config in CONFIGS[:2])
    for experiments, sizes in ((default, (11, 9)), (paper, (30, 16))):
        grids = [experiments[name].settings for name in ("cupc_fig7", "cupc_fig8")]
        assert tuple(map(len, grids)) == sizes
        assert all(32 <= math.prod(setting["params"].values()) <= 256 for setting in grids[0].values())
        assert grids[0]["cupc-e-2-32"]["params"] == {"beta": 2, "gamma": 32}
        assert "cupc-s-64-2" in grids[1]
        assert {setting["separating_sets"] for grid in grids for setting in grid.values()} == {"first-come"}
    sweeps = paper["cupc_fig10"].sweeps
    assert sorted(set(sweeps["n"].values())) == [1000, 2000, 3000, 4000]
    assert sorted(set(sweeps["m"].values())) == [2000, 4000, 6000, 8000, 10000]
    assert sorted(set(sweeps["d"].values())) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert len(paper["cupc_fig10"].graphs) == 120  # ten of each kind, one of which belongs to all three sweeps


def test_every_key_of_the_config_is_explained_and_has_a_default():
    schema = yaml.safe_load(SCHEMA.read_text())
    properties = schema["properties"]
    for name, key in {**properties, **properties["timing"]["properties"], **properties["limits"]["properties"]}.items():
        assert key["description"], name
        assert "default" in key or name in schema["required"], name


def test_the_command_works_as_a_user_calls_it(tmp_path):
    """In processes of its own, which other tests replace by forks."""
    as_a_user = list(map(str, command(tmp_path, TINY, "results/problems/tiny.npz")))
    done = subprocess.run(as_a_user, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results/problems/tiny.npz").is_file()


def test_everything_that_was_asked_for_is_there(finished):
    for name in ("cupc_table1", "methods_by_dataset", "toy_table"):
        assert (finished / f"results/tables/{name}.md").stat().st_size > 0
    for name in DRAWN:
        assert (finished / f"figures/{name}.svg").read_text().rstrip().endswith("</svg>")
    assert len(rows(finished / "results/records.csv")) == RECORDS
    assert len(rows(finished / "results/tables/methods_by_dataset.csv")) == 18
    assert (finished / "results/records/tiny/cupc-s.npz").is_file()


def test_kernels_and_references_are_compiled_ahead(finished):
    log = (finished / "logs/compile_ahead/gaussian.log").read_text()
    assert re.fullmatch(r"\d+\.\d s\n", log), log


def test_every_skeleton_is_verified(finished):
    table = rows(finished / "results/verification.csv")
    assert len(table) == RECORDS + 1  # the grid's reference
    verified = {(row["dataset"], row["setting"]): row for row in rows(finished / "results/verification/gaussian.csv")}
    for (dataset, setting), row in verified.items():
        absent = dataset == "nci-60" or (dataset == "ecoli70" and setting in ("pair-scan", "baseline-1", "baseline-2"))
        assert row["status"] == ("not-run" if absent else "equal")
    assert int(verified["tiny", "cupc-s"]["certificates_checked"]) > 100
    assert int(verified["tiny", "cupc-s"]["yardstick_tests"]) > 50


def test_every_skeleton_of_an_experiment_is_verified(finished):
    verified = {name: rows(finished / f"results/verification/{name}.csv") for name in ("cupc_fig7", "cupc_fig10")}
    for row in [*verified["cupc_fig7"], *verified["cupc_fig10"]]:
        assert row["status"] == "equal"
    assert {row["compared_with"] for row in verified["cupc_fig7"]} == {"stable-serial"}
    assert {row["compared_with"] for row in verified["cupc_fig10"]} == {"cupc-e"}


def test_a_configuration_of_a_grid_and_of_the_tables_is_measured_once(finished):
    one, other = (record(finished, "tiny", name) for name in ("cupc-e", "cupc-e-2-32"))
    assert one["time_s"] == other["time_s"]


def test_no_edge_of_a_fully_connected_graph_goes(finished):
    for row in rows(finished / "results/tables/ooc_fig2.csv"):
        p = int(row["variables"])
        assert int(row["edges_left"]) == p * (p - 1) // 2
        assert row["verification"] == "equal"
    blocks = record(finished, "connected-p60", "out-of-core-block")
    assert blocks["limits"]["device_memory_bytes"] == 60_000
    managed = record(finished, "connected-p60", "out-of-core-um")
    assert blocks["peak_bytes"]["device"] <= 60_000 < managed["peak_bytes"]["device"]


def test_an_experiment_has_data_sets_of_its_own(finished):
    assert record(finished, "regulated-p60", "out-of-core-block")["problem"]["alpha"] == 0.01
    assert record(finished, "regulated-p60", "out-of-core-um")["status"] == "refused"
    assert record(finished, "mcc", "out-of-core-block")["status"] == "skipped"
    assert "offline" in record(finished, "mcc", "out-of-core-block")["why"]
    of_table = rows(finished / "results/verification/ooc_table1.csv")
    verified = {(row["dataset"], row["setting"]): row["status"] for row in of_table}
    assert verified["regulated-p60", "out-of-core-block"] == "equal"
    of_all = {row["dataset"] for row in rows(finished / "results/tables/methods_by_dataset.csv")}
    assert of_all.isdisjoint({"mcc", "regulated-p60"})
    steps = rows(finished / "results/timelines/regulated-p60.csv")
    assert {row["step"] for row in steps} == {"extract", "transfer", "kernel", "merge"}
    assert {row["level"] for row in steps} == {"0", "1"}


@pytest.fixture(scope="module")
def device(finished, tmp_path_factory):
    """What was measured in `finished`, published as if on another machine: one record is missing, and one was made by
    other code."""
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copytree(finished / "results", folder / "results", ignore=shutil.ignore_patterns("samples", "data"))
    (folder / "results/records/tiny/baseline-1.json").unlink()
    stale = folder / "results/records/tiny/cupc-e.json"
    stale.write_text(json.dumps(json.loads(stale.read_text()) | {"code": "0" * 64}))
    (folder / "results/verification/gaussian.csv").touch()  # of this very record
    publish(folder / "results", folder / "some-machine")
    assert check(folder / "some-machine") == []
    return folder / "some-machine"


@pytest.fixture(scope="module")
def beside(finished, device, tmp_path_factory):
    """A folder in which less is measured, and shown beside the recorded runs; and the config."""
    folder = tmp_path_factory.mktemp("beside")

    def less(config):
        config["datasets"] = {"tiny": config["datasets"]["tiny"]}
        config["settings"] = {"gaussian": {name: {} for name in ("stable-serial", "cupc-s")}}
        config["experiments"] = {}
        config["recorded"] = [str(device)]

    config = variant(folder / "config.yaml", less)
    for name in ("samples", "data"):  # measured before
        shutil.copytree(finished / "results" / name, folder / "results" / name)
    snakemake(folder, config, "cupc_table2", "cupc_fig7", "methods_by_dataset")
    return folder, config


def test_tables_have_a_block_a_machine(beside):
    folder, _ = beside
    found = rows(folder / "results/tables/methods_by_dataset.csv")
    assert {row["setting"] for row in found if row["device"] == "this machine"} == {"stable-serial", "cupc-s"}
    recorded = {(row["dataset"], row["setting"]) for row in found if row["device"] == "some-machine"}
    assert {("ecoli70", "cupc-e"), ("tiny", "cupc-s")} < recorded
    assert ("tiny", "baseline-1") not in recorded
    page = (folder / "results/tables/cupc_table2.md").read_text()
    assert page.index(", recorded 2") < page.index("‡") < page.index(", this machine, ")
    assert "baseline-1 on tiny" in page  # not run there


def test_what_only_the_recorded_runs_have_is_drawn(beside):
    folder, config = beside
    assert {row["device"] for row in rows(folder / "results/tables/cupc_fig7.csv")} == {"some-machine"}
    printed = snakemake(folder, config, "--dry-run")
    for target in ("cupc_fig10", "ooc_fig1", "ooc_table1"):
        assert f"Making {target}\n" in printed
    for target in ("Measuring cupc", "Making cupc_fig7", "gpupc_table2"):
        assert target not in printed


def test_what_nobody_measured_says_so(beside):
    printed = snakemake(*beside, "gpupc_table2", "--dry-run", fails=True)
    assert "gpupc_table2: the config does not measure it, and no recorded runs have it" in printed


def test_a_changed_recorded_run_is_drawn_again(beside, device):
    path = device / "records/cupc_fig7.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(re.sub(r'"warm":\[[^]]*\]', '"warm":[1000.0]', line) for line in lines))
    assert "Making cupc_fig7" in snakemake(*beside, "cupc_fig7", "--dry-run")


def test_what_is_absent_says_why(finished):
    log = (finished / "logs/check.log").read_text()
    assert re.search(r"^2 of \d+ data sets could not be had or used: nci-60, mcc$", log, re.MULTILINE)
    assert "offline" in record(finished, "nci-60", "cupc-s")["why"]
    assert record(finished, "nci-60", "cupc-s")["status"] == "skipped"
    assert not (finished / "results/records/nci-60/cupc-s.npz").exists()
    missing = next(row for row in rows(finished / "results/tables/cupc_table1.csv") if row["dataset"] == "nci-60")
    assert missing["available"] == "False"
    assert "GPUPC_MIRRORS" in missing["why_not"]
    table = (finished / "results/tables/methods_by_dataset.md").read_text()
    assert "pair-scan: the config measures pair-scan on tiny only" in table


def test_a_second_run_has_nothing_to_do(finished):
    assert "Nothing to be done" in snakemake(finished, TINY, "--dry-run", *LOOKED_AT)


def test_a_missing_data_set_is_tried_again_when_a_mirror_has_it(finished, tmp_path):
    (tmp_path / "NCI-60.csv").write_text("not what was expected")
    printed = snakemake(finished, TINY, "--dry-run", "results/data/nci-60.npz", mirror=tmp_path)
    assert "Fetching data set nci-60" in printed


@pytest.mark.slow
def test_report_holds_every_table_and_figure(finished):
    snakemake(finished, TINY)
    assert "Nothing to be done" in snakemake(finished, TINY, "--dry-run")
    report = (finished / "results/report.html").read_text()
    assert (finished / "logs/report_page.log").read_text().endswith(" Open results/report.html\n")
    names = {path.stem for folder in ("results/tables", "figures") for path in (finished / folder).iterdir()}
    for entry in entries().values():
        assert (entry.name not in names) or (f"<summary>{html.escape(entry.title)}</summary>" in report)
    assert report.count("data:image/svg+xml;base64,") == len(list((finished / "figures").glob("*.svg")))
    assert "Variables of the data sets at alpha = 0.05" in report  # the table from outside the repository


def test_a_table_from_outside_the_repository_is_one_more(finished):
    assert "| ball | 7 |" in (finished / "results/tables/toy_table.md").read_text()
    assert "| tiny | 20 |" in (finished / "results/tables/toy_table.md").read_text()


def test_a_data_set_in_the_config_is_in_every_table_and_figure(finished, tmp_path):
    """All are made again; that they show each data set of theirs, those of `finished` say."""

    def add(config):
        parameters = {"p": 12, "m": 100, "density": 0.2, "seed": 2}
        config["datasets"]["added"] = {"spec": config["datasets"]["tiny"]["spec"] | {"parameters": parameters}}

    printed = snakemake(finished, variant(tmp_path / "config.yaml", add), "--dry-run")
    assert "Preparing the problem of data set added" in printed
    assert "Preparing the problem of data set tiny" not in printed
    assert "Measuring gaussian " in printed
    for name in ("cupc_table1", "cupc_table2", "methods_by_dataset", "cupc_fig5", "cupc_fig6", "cupc_fig7", "overview"):
        assert f"Making {name}\n" in printed
    for name in ("cupc_table1", "methods_by_dataset"):
        page = (finished / f"results/tables/{name}.md").read_text()
        assert "tiny" in page
        assert "ecoli70" in page


def test_a_wrong_answer_or_an_error_fails_the_run_and_is_named(finished, tmp_path):
    """Tables are made all the same; the last lines name every setting that is wrong or failed."""

    config = small(tmp_path / "config.yaml", "stable-serial", "planted", "turned", "raises")
    printed = snakemake(finished, config, "methods_by_dataset", "results/verification.ok", fails=True)
    last = printed[printed.index("Exiting because a job execution failed") :]
    for sentence in (
        "planted on tiny (compared with stable-serial): edges differ: V0 - V",
        "turned on tiny (compared with stable-serial): sets differ: V",
        "raises on tiny: error: RuntimeError: nothing works",
    ):
        assert sentence in last
    verified = {row["setting"]: row for row in rows(finished / "results/verification.csv")}
    assert [row["status"] for row in verified.values()] == ["equal", "unexplained", "unexplained", "not-run"]
    assert verified["planted"]["differing_edges"] == "1"
    assert verified["turned"]["differing_edges"] == "0"
    assert "unexplained" in (finished / "results/tables/methods_by_dataset.md").read_text()
    assert not (finished / "results/verification.ok").exists()


@pytest.mark.slow  # tests/unit/measurement/test_skeletons.py kills a measurement without a workflow
def test_a_killed_run_goes_on_where_it_was_and_an_edited_method_is_measured_again(tmp_path):
    folder = tmp_path / 'it\'s "Übung" & $(false);`false` {p}'  # where no shell may look twice
    folder.mkdir()
    config = small(tmp_path / "config.yaml", "slow", repeats=8)
    plugins = shutil.copytree(PLUGINS, tmp_path / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    target = "results/outcomes/gaussian.json"
    homeless = {name: value for name, value in environment(plugins=plugins).items() if name != "HOME"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    run = subprocess.Popen(list(map(str, command(folder, config, target))), env=homeless, **quiet)
    samples = folder / "results/samples"
    wait_for(lambda: len(list(samples.glob("*/sample-*.json"))) >= 3, run)
    jobs = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    _, left = psutil.wait_procs(jobs, timeout=30)
    assert len(jobs) >= 3, "a job, a guard and a worker"
    assert not left, "nothing is measured on behind the back of the next call"
    assert not (folder / target).exists()
    taken = {path: path.stat().st_mtime_ns for path in samples.glob("*/sample-*.json")}
    snakemake(folder, config, "--unlock", plugins=plugins)
    snakemake(folder, config, target, plugins=plugins)
    assert 3 <= record(folder, "tiny", "slow")["reused_samples"] < 9
    assert len(record(folder, "tiny", "slow")["time_s"]["warm"]) == 8
    assert {path: path.stat().st_mtime_ns for path in taken} == taken
    assert "Nothing to be done" in snakemake(folder, config, "--dry-run", target, plugins=plugins)
    with open(plugins / "planted.py", "a") as file:
        file.write("EDITED = True\n")
    assert "Measuring gaussian" in snakemake(folder, config, "--dry-run", target, plugins=plugins)
