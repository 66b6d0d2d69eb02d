"""The runner of recorded runs, on the host backend: its plan, what it measures, and what it leaves alone."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import read_csv, read_json, save_json
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting.catalogue import entries
from workflow.lib import gpu_records, gpu_shares, slices
from workflow.lib.config import complete
from workflow.lib.plan import Plan, recorded_plans
from workflow.lib.slices import Estimate, Rates

ROOT = Path(__file__).parents[2]
GRAPH = {
    "spec": {"family": "gaussian", "generator": "generate.random_dag_gaussian"},
    "name": "graph-p{p}-seed{seed}",
    "sweeps": {"n": {"varies": "p", "parameters": {"p": [8, 10], "m": 100, "density": 0.2, "seed": 0}}},
}
CONFIG = {
    "backend": "host",
    "offline": True,
    "datasets": {
        "tiny": {
            "spec": {
                "kind": "generated",
                "family": "gaussian",
                "generator": "generate.random_dag_gaussian",
                "parameters": {"p": 20, "m": 200, "density": 0.1, "seed": 1},
            }
        },
        "dream5-insilico": {},  # cannot be had
    },
    "settings": {
        "gaussian": {
            "stable-serial": {"time_limit_s": 50},
            "cupc-e": {},
            "no-room": {"method": "cupc-s", "device_memory_mb": 0.001},
            "elsewhere": {"method": "cupc-s", "only": ["dream5-insilico"]},
        }
    },
    "experiments": {"cupc_fig10": {"settings": ["cupc-e"], "repeats": 1, "graphs": GRAPH}},
    "ci_tests": {
        "tests": 1,
        "implementations": {"counting": {"method": "gpucmiknn-single"}},
        "tables": {"cmiknn_table1": {"varies": "k_cmi", "k_cmi": [3, 5], "samples": 40, "permutations": 5}},
    },
    "timing": {"repeats": 1, "time_limit_s": 60},
}


class Runs:
    """Runs of the command on one folder and store."""

    def __init__(self, folder):
        self.into, self.store, self.path = folder / "device", folder / "store", folder / "config.yaml"
        self.config = copy.deepcopy(CONFIG)

    def __call__(self, *arguments):
        self.path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        where = ["--config", str(self.path), "--into", str(self.into), "--store", str(self.store)]
        return gpu_records.main([*arguments, *where])

    def record(self, dataset, setting):
        return self.into / "records" / dataset / f"{setting}.json"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder in which everything was recorded by one call, with its exit status."""
    runs = Runs(tmp_path_factory.mktemp("recorded"))
    return runs, runs()


@pytest.fixture
def again(recorded, tmp_path):
    """A copy of that folder, without the store, as on another machine."""
    runs = Runs(tmp_path)
    shutil.copytree(recorded[0].into, runs.into)
    return runs


def test_the_plan_measures_nothing_and_marks_time_limits(tmp_path, capsys):
    runs = Runs(tmp_path)
    assert runs("--plan") == 0
    shown = capsys.readouterr().out
    # No run on CPU cores was ever recorded for these methods: a minute each, and the start of the processes.
    assert "slice 1: ≤ " in shown
    assert "  ≤ 2.1 min: gaussian, tiny: cupc-e, no-room, elsewhere\n" in shown
    assert shown.index("tiny: cupc-e") < shown.index("tiny: stable-serial") < shown.index("cupc_fig10")
    assert runs("--plan", "--slice-minutes", "1") == 0
    assert "slice 1: ≤ 1.1 min\n  ≤ 1.1 min: gaussian, tiny: cupc-e\nslice 2:" in capsys.readouterr().out
    assert not runs.into.exists()
    assert not runs.store.exists()


def test_everything_is_recorded_as_the_workflow_would(recorded):
    runs, status = recorded
    assert status == 0
    plan = Plan(yaml.safe_load((runs.into / "config.yaml").read_text()))
    for name, entry in plan.outputs().items():
        files = plan.inputs(entry)
        for path in [*files.get("records", []), *files.get("problems", []), *files.get("verification", [])]:
            assert (runs.into / Path(path).relative_to("results")).is_file(), name
    found = {path.stem: Record.load(path) for path in runs.into.glob("records/tiny/*.json")}
    assert {name: record.status for name, record in found.items()} == {
        "stable-serial": "ok",
        "cupc-e": "ok",
        "no-room": "oom",
        "elsewhere": "skipped",
    }
    assert found["stable-serial"].limits.time_s == 50
    rows = {(row["dataset"], row["setting"]): row for row in read_csv(runs.into / "verification.csv")}
    assert rows["tiny", "cupc-e"]["status"] == "equal"
    assert int(rows["tiny", "cupc-e"]["certificates_checked"]) > 0
    assert "not available" in rows["dream5-insilico", "cupc-e"]["detail"]
    assert {row["dataset"] for row in read_csv(runs.into / "sharing.csv")} == {"tiny"}
    assert [row["dataset"] for row in read_csv(runs.into / "verification" / "cupc_fig10.csv")] == [
        "graph-p8-seed0",
        "graph-p10-seed0",
    ]
    assert {row["table"] for row in read_csv(runs.into / "verification" / "ci_tests.csv")} == {"cmiknn_table1"}
    assert {cell["status"] for cell in read_json(runs.into / "tests" / "cmiknn_table1.json")["cells"]} == {"ok"}
    assert not list(runs.into.glob("problems/*.npz"))


def test_what_tables_read_of_the_folder_can_be_made(recorded, tmp_path):
    runs, _ = recorded
    (plan,) = recorded_plans({"recorded": [str(runs.into)]})
    made = set()
    for name, entry in entries().items():
        if (source := plan.recorded_source(entry)) is not None:
            made.add(name)
            entry.write([source], {kind: tmp_path / f"{name}.{kind}" for kind in entry.outputs()})
    assert {"cupc_table2", "cupc_fig9", "cupc_fig10", "cmiknn_table1", "provenance"} <= made
    table = (tmp_path / "cupc_table2.md").read_text()
    assert "tiny" in table
    assert "‡" not in table  # this code has just made them


def test_a_second_call_measures_only_what_is_missing(again, capsys):
    """The store is gone: skeletons of the first call are known by their digests."""
    kept = {path: path.read_bytes() for path in again.into.glob("records/*/*.json")}
    gone = again.record("tiny", "cupc-e")
    gone.unlink()
    assert again("--plan") == 0
    shown = capsys.readouterr().out
    assert "slice 1: 0.1 min\n  0.1 min: gaussian, tiny: cupc-e\n1 slices" in shown
    assert again() == 0
    assert Record.load(gone).ok
    assert {path: path.read_bytes() for path in kept if path != gone} == {p: c for p, c in kept.items() if p != gone}
    rows = {row["setting"]: row for row in read_csv(again.into / "verification" / "tiny.csv")}
    assert rows["stable-serial"]["status"] == rows["cupc-e"]["status"] == "equal"
    assert rows["cupc-e"]["compared_with"] == "stable-serial"
    assert int(rows["stable-serial"]["certificates_checked"]) > 0


def test_without_time_digests_are_compared_and_the_rest_is_verified_later(recorded, tmp_path):
    runs = Runs(tmp_path)
    assert runs("tiny", "--digests") == 0
    table = runs.into / "verification" / "tiny.csv"

    def rows():
        return {row["setting"]: row for row in read_csv(table)}

    assert rows()["cupc-e"]["status"] == "equal"
    assert rows()["cupc-e"]["detail"].startswith("by digests")
    assert runs("--verify") == 0
    assert rows() == {row["setting"]: row for row in read_csv(recorded[0].into / "verification" / "tiny.csv")}


def test_samples_that_were_cut_off_are_gone_on_with(recorded, tmp_path):
    """A call that ended after the cold run left its sample in the store, and no record."""
    runs = Runs(tmp_path)
    shutil.copytree(recorded[0].store / "samples", runs.store / "samples")
    for path in runs.store.glob("samples/*/sample-1.json"):
        path.unlink()
    assert runs("tiny") == 0
    record = Record.load(runs.record("tiny", "cupc-e"))
    assert (record.status, record.repeats, record.reused_samples) == ("ok", 1, 1)


def test_a_failure_costs_the_others_nothing(again, monkeypatch, capsys):
    for dataset in ("tiny", "graph-p8-seed0", "graph-p10-seed0"):
        again.record(dataset, "cupc-e").unlink()
    measure = gpu_records.measure_dataset

    def fails_on_a_graph(problem, facts, *arguments, **others):
        if facts["name"] == "graph-p8-seed0":
            raise RuntimeError("the disk is full")
        return measure(problem, facts, *arguments, **others)

    monkeypatch.setattr(gpu_records, "measure_dataset", fails_on_a_graph)
    assert again() == 1
    assert "cupc_fig10, graph-p8-seed0: cupc-e: RuntimeError: the disk is full" in capsys.readouterr().err
    there = [again.record(name, "cupc-e").is_file() for name in ("tiny", "graph-p8-seed0", "graph-p10-seed0")]
    assert there == [True, False, True]


def dies_at_work(cores, most, share):
    """What makes problems ahead is killed while it makes the second."""
    share.making.value = 1
    os.kill(os.getpid(), signal.SIGKILL)


def answer(path):
    """What a record says, but for numbers of tests, which differ from run to run."""
    record = Record.load(path)
    found = record.result
    return record.status, found and (found.skeleton_sha256, found.sepsets_sha256, found.edges_per_level)


def test_gpus_side_by_side_record_what_one_does(recorded, tmp_path):
    """Two recorders, of which the host backend has as many as one likes."""
    runs, one = Runs(tmp_path), recorded[0]
    assert runs("--gpus", "0,1") == 0
    tables = ["verification.csv", "sharing.csv", *(f"verification/{name}.csv" for name in ("tiny", "cupc_fig10"))]
    for name in tables:
        assert read_csv(runs.into / name) == read_csv(one.into / name), name
    there = {path.relative_to(one.into) for path in one.into.rglob("*") if path.is_file()}
    assert {path.relative_to(runs.into) for path in runs.into.rglob("*") if path.is_file()} == there
    for path in runs.into.glob("records/*/*.json"):
        assert answer(path) == answer(one.into / path.relative_to(runs.into)), path
    logs = [(runs.store / f"log-{gpu}.txt").read_text() for gpu in (0, 1)]
    assert all(f"[{gpu}] " in log for gpu, log in enumerate(logs))


@pytest.mark.skipif(available_cores() < 2, reason="a process of its own makes problems ahead where there are two cores")
def test_problems_are_made_ahead(recorded, tmp_path):
    runs, one = Runs(tmp_path), recorded[0]
    assert runs("cupc_fig10", "--gpus", "0") == 0
    for graph in ("graph-p8-seed0", "graph-p10-seed0"):
        assert (runs.store / "problems" / f"{graph}.made.json").is_file()
        assert answer(runs.record(graph, "cupc-e")) == answer(one.record(graph, "cupc-e"))


@pytest.mark.skipif(available_cores() < 2, reason="a process of its own makes problems ahead where there are two cores")
def test_a_problem_whose_maker_is_gone_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_shares, "_make_ahead", dies_at_work)
    runs = Runs(tmp_path)
    assert runs("cupc_fig10", "--gpus", "0") == 0
    assert runs.record("graph-p10-seed0", "cupc-e").is_file()


@pytest.mark.parametrize("text", ["", "0,", "a", "-1", "0,0"])
def test_gpus_that_are_no_numbers_are_refused(text, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        Runs(tmp_path)("--gpus", text)
    assert stop.value.code == 2
    assert f"{text!r} does not name GPUs by numbers from 0 on" in capsys.readouterr().err


def test_numbers_are_those_of_visible_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_shares._visible(3) == "3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7")
    assert [gpu_shares._visible(gpu) for gpu in (0, 1, 2)] == ["2", "GPU-7", ""]


def test_stale_records_are_named_and_kept_unless_told(again, capsys):
    path = again.record("tiny", "cupc-e")
    content = read_json(path) | {"code": "0" * 64}
    path.write_text(json.dumps(content))
    again("--plan")
    assert (
        "stale, by other code or another config (kept; --stale measures again): tiny: cupc-e" in capsys.readouterr().out
    )
    assert again() == 0
    assert read_json(path)["code"] == "0" * 64
    again("--plan", "--stale")
    assert "gaussian, tiny: cupc-e\n" in capsys.readouterr().out
    assert again("--stale") == 0
    assert Record.load(path).code != "0" * 64
    again.config["settings"]["gaussian"]["cupc-e"] = {"params": {"beta": 4}}
    again("--plan")
    shown = capsys.readouterr().out
    assert "tiny: cupc-e" in shown
    assert "graph-p8-seed0: cupc-e" in shown


def test_nothing_is_started_when_the_time_is_up(tmp_path, capsys):
    runs = Runs(tmp_path)
    assert runs("--minutes", "0") == 0
    assert "no time was left for:\n  gaussian, tiny: cupc-e, no-room, elsewhere\n" in capsys.readouterr().out
    assert not list(runs.into.glob("records/*/*"))


def test_another_implementation_is_added_to_the_single_tests(again):
    path = again.into / "tests" / "cmiknn_table1.json"
    before = read_json(path)["cells"]
    again.config["ci_tests"]["implementations"] = {
        "insertion": {"method": "gpucmiknn-single", "params": {"selection": "insertion"}},
        **again.config["ci_tests"]["implementations"],
    }
    assert again("cmiknn_table1") == 0
    cells = read_json(path)["cells"]
    assert [cell["implementation"] for cell in cells] == ["insertion", "insertion", "counting", "counting"]
    assert cells[2:] == before


def test_single_tests_of_other_code_are_stale(again, capsys):
    path = again.into / "tests" / "cmiknn_table1.json"
    content = read_json(path)
    assert again("cmiknn_table1", "--plan") == 0
    assert "stale" not in capsys.readouterr().out
    for cell in content["cells"]:
        cell["code"] = "0" * 64
    save_json(content, path)
    assert again("cmiknn_table1", "--plan") == 0
    assert "stale, by other code or another config (kept; --stale measures again): cmiknn_table1: counting" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("chosen", "said"), [("9", "there is no slice 9"), ("cupc_fig7", "nothing called 'cupc_fig7'")]
)
def test_an_unknown_slice_is_refused(tmp_path, capsys, chosen, said):
    with pytest.raises(SystemExit):
        Runs(tmp_path)(chosen)
    assert said in capsys.readouterr().err


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['jsonschema'] = None; import workflow.lib.gpu_records"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "packages that are not installed here: jsonschema" in done.stderr


def test_problems_can_be_prepared_alone(tmp_path):
    runs = Runs(tmp_path)
    assert runs("tiny", "--prepare") == 0
    prepared = runs.store / "problems" / "tiny.npz"
    made = prepared.stat().st_mtime_ns
    assert runs("tiny", "--prepare") == 0
    assert prepared.stat().st_mtime_ns == made
    runs.config["alpha"] = 0.01
    assert runs("tiny", "--prepare") == 0
    assert prepared.stat().st_mtime_ns != made


# --- slices ----------------------------------------------------------------------------------------------------------


def test_slices_keep_the_order_and_the_minutes():
    estimates = [Estimate(seconds) for seconds in (3, 4, 2, 20, 1, 1)]
    assert slices.cut(estimates, 8) == [[0, 1], [2], [3], [4, 5]]
    assert slices.cut([], 8) == []


def test_estimates_come_from_the_nearest_record(recorded):
    """Twice the variables of the graphs: eight times the time of the runs, but not of what a cold run has beside it."""
    runs, _ = recorded
    config = copy.deepcopy(CONFIG)
    complete(config)
    plan = Plan(config)
    (unit,) = [u for u in slices.units(plan) if u.dataset == "tiny" and not u.references]
    nearest = Record.load(runs.record("graph-p10-seed0", "cupc-e"))
    far = Record.load(runs.record("graph-p8-seed0", "cupc-e"))
    start = slices.START_S + slices.EACH_S + slices.verifying(plan, unit)
    run = 8 * nearest.median
    expected = start + run + max(nearest.time_s.cold - nearest.median, 0) + run
    assert Rates([far, nearest], []).of(plan, unit, ["cupc-e"], True) == Estimate(pytest.approx(expected))
    recorded_one = Record.load(runs.record("tiny", "cupc-e"))
    expected = start + recorded_one.time_s.cold + sum(recorded_one.time_s.warm)
    assert Rates([nearest, recorded_one], []).of(plan, unit, ["cupc-e"], True) == Estimate(pytest.approx(expected))
    assert Rates([], []).of(plan, unit, ["cupc-e"], True) == Estimate(pytest.approx(start + 60), bound=True)


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_has_a_plan(path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    complete(config)
    plan = Plan(config)
    found = slices.units(plan)
    measured = [(unit.target, unit.dataset, name) for unit in found if unit.kind == "search" for name in unit.settings]
    assert len(set(measured)) == len(measured)
    assert {(dataset, setting) for _, dataset, setting in measured} == {
        (dataset, setting)
        for measurement in plan.measurements().values()
        for dataset in measurement.datasets
        for setting in measurement.settings
    }
    assert {unit.target for unit in found if unit.kind == "tests"} == set(config["ci_tests"]["tables"])
    for unit in found:
        if unit.kind != "tests":
            Rates([], []).of(plan, unit, list(unit.settings), prepared=False)


def test_the_gpu_config_asks_for_every_table_and_figure():
    config = yaml.safe_load((ROOT / "config" / "gpu.yaml").read_text(encoding="utf-8"))
    complete(config)
    assert set(Plan(config).outputs()) == set(entries())
