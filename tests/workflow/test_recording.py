"""A recording: a run of the workflow that ends at a deadline, goes on when it is called again, and is published."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import yaml

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import read_csv
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.checking import check
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.publish import publish
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import Limits, Record, Result, Times
from gpupc_impl.reporting.catalogue import entries
from tests.workflow.test_workflow import record, snakemake, variant
from workflow.lib import durations
from workflow.lib.config import complete
from workflow.lib.deadline import TimeLeft, deadline
from workflow.lib.durations import START_S, Durations, Estimate
from workflow.lib.gpu_slots import own_gpu
from workflow.lib.plan import Plan, recorded_plans
from workflow.lib.single_tests import cases, is_timed, joined

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.yaml")


# --- estimates -------------------------------------------------------------------------------------------------------


def recorded(dataset, p, seconds, method="cupc-e", status="ok", **facts):
    """A record with this time on a problem of p variables."""
    ok = status == "ok"
    return Record(
        setting=method,
        method=method,
        family="gaussian",
        reference=False,
        canonical=True,
        backend="host",
        params=get_method(method).parse_params({}),
        separating_sets="canonical",
        dataset=dataset,
        problem={"n_variables": p, "n_samples": 100, "alpha": 0.05, "max_level": None} | facts,
        status=status,
        why=None if ok else "too slow",
        limits=Limits(),
        time_s=Times(cold=seconds + 1 if ok else None, warm=[seconds] if ok else []),
        result=Result(0, 2, "complete", [0, 0], [10, 7], 0, 0, "a" * 64, "b" * 64) if ok else None,
        code="c" * 64,
        environment=environment(1, 1),
    )


@pytest.fixture
def plan():
    config = yaml.safe_load(TINY.read_text())
    config["timing"] |= {"time_limit_s": 60, "long_run_s": 10, "repeats": 3}
    complete(config)
    return Plan(config)


def estimate(plan, records, dataset="tiny", setting="cupc-e"):
    return Durations(plan, records, []).search(plan.measurements()["gaussian"], dataset, setting)


def test_a_run_is_estimated_from_its_own_record(plan):
    own = recorded("tiny", 20, 2.0)
    assert estimate(plan, [recorded("near", 20, 5.0), own]) == Estimate(START_S + 3.0 + 3 * 2.0)
    assert estimate(plan, [recorded("tiny", 20, 20.0)]) == Estimate(
        START_S + 21.0 + 20.0
    )  # a long run is repeated once
    assert estimate(plan, [recorded("tiny", 20, 0, status="timeout")]) == Estimate(START_S + 60)
    assert estimate(plan, [recorded("tiny", 20, 0, status="oom")]) == Estimate(START_S)


def test_without_one_it_is_estimated_from_the_nearest_problem(plan):
    """Twice the variables are eight times the time of the runs, but not of what a cold run takes beside."""
    near, far = recorded("near", 10, 0.25), recorded("far", 5, 0.01)
    assert estimate(plan, [far, near]) == Estimate(START_S + 8 * 0.25 + 1 + 3 * 8 * 0.25)
    other_alpha = recorded("twin", 20, 9.0, alpha=0.01)
    assert estimate(plan, [other_alpha, near]) == estimate(plan, [near])
    assert estimate(plan, [recorded("near", 10, 30.0)]) == Estimate(START_S + 60)


def test_without_any_the_time_limit_is_an_upper_bound(plan):
    assert estimate(plan, []) == Estimate(START_S + 60, bound=True)
    assert str(estimate(plan, []) + Estimate(58)) == "≤ 2.0"
    assert estimate(plan, [], dataset="ecoli70", setting="pair-scan") == Estimate(0)  # measured on another one only


def test_single_tests_are_estimated_from_the_nearest_cell(plan):
    plan.config["ci_tests"] |= {
        "tests": 4,
        "time_limit_s": 30,
        "implementations": {"serial": {"method": "cmiknn-serial"}},
    }
    table = {"varies": "k_cmi", "k_cmi": [5, 0.1], "samples": 100, "permutations": 10, "set_size": 1}
    cell = dict.fromkeys(("samples", "k_cmi", "set_size", "permutations"), 1)
    cell |= {"method": "cmiknn-serial", "params": {}, "status": "ok", "cold_s": 2.0, "seconds": [0.5, 1.5]}
    near, far = cell | {"samples": 50, "permutations": 10}, cell | {"samples": 5}
    each = 2.0 + 4 * 1.0 * 2
    assert Durations(plan, [], [far, near]).single_tests(table, "serial") == Estimate(START_S + 2 * each)
    assert Durations(plan, [], []).single_tests(table, "serial") == Estimate(START_S + 2 * 30, bound=True)


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_run_of_a_config_has_an_estimate(path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    complete(config)
    plan = Plan(config)
    found = Durations(plan, [], []).all()
    assert set(found) == set(plan.order)
    for name, measurement in plan.measurements().items():
        assert set(found[name]) == set(measurement.datasets)
        assert all(set(of_dataset) == set(measurement.settings) for of_dataset in found[name].values())


def test_the_gpu_config_asks_for_every_table_and_figure():
    config = yaml.safe_load((ROOT / "config" / "gpu.yaml").read_text(encoding="utf-8"))
    complete(config)
    assert set(Plan(config).outputs()) == set(entries())


def test_the_gpu_config_times_tigramite_on_six_cells():
    config = yaml.safe_load((ROOT / "config" / "gpu.yaml").read_text(encoding="utf-8"))
    complete(config)
    ci_tests = config["ci_tests"]
    tigramite = ci_tests["implementations"]["tigramite"]
    chosen = [case for table in ci_tests["tables"].values() for case in cases(table) if is_timed(tigramite, case)]
    distinct = {tuple(case.values()) for case in chosen}
    assert len(distinct) == 6
    assert {case["samples"] for case in chosen} == {1000, 10_000}


def test_the_page_has_what_the_recording_lacks(capsys):
    """Minutes are estimates, which may change with any record, so they are not compared."""
    recorded = ROOT / "results/recorded/nvidia-h100"
    assert durations.main(["--backend", "cuda", "--recorded", str(recorded)]) == 0
    printed, page = capsys.readouterr().out, (ROOT / "docs/recorded.md").read_text(encoding="utf-8")
    table = page.partition("## What is missing\n")[2].partition("\n## ")[0]
    rows = [[line.split("|")[1:4] for line in text.splitlines() if line.startswith("|")] for text in (printed, table)]
    assert rows[0] == rows[1]
    assert not any("cupc_fig10" in row[0] for row in rows[0])


def test_the_plan_is_printed(capsys):
    assert durations.main(["--config", str(TINY), "cupc_fig7", "ooc_table1", "--backend", "host"]) == 0
    printed = capsys.readouterr().out
    assert "| cupc_fig7 | 1 | 2 | " in printed
    assert "| gaussian |" not in printed
    with pytest.raises(SystemExit):
        durations.main(["--config", str(TINY), "cupc_fig99"])
    assert "the config measures nothing for cupc_fig99; known: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        durations.main(["--config", str(TINY), "--recorded", "nowhere"])
    assert "nowhere: no folder of published runs" in capsys.readouterr().err


# --- what there is time for ------------------------------------------------------------------------------------------

SETTINGS = {"stable-serial": {}, "cupc-s": {}, "other": {"method": "cupc-e"}}


def left(seconds, **estimates):
    of_settings = {"stable-serial": 5, "cupc-s": 10, "other": 20} | estimates
    return TimeLeft(time.time() + seconds, {"gaussian": {"tiny": of_settings}})


def test_without_a_deadline_all_settings_are_measured_side_by_side(tmp_path):
    time_left = TimeLeft(None, {})
    assert list(time_left.groups("gaussian", "tiny", SETTINGS)) == [SETTINGS]
    assert time_left.certifies("tiny", 10**12)
    time_left.end_job(tmp_path / "log")


def test_nothing_begins_that_would_end_too_late(tmp_path):
    assert list(left(40).groups("gaussian", "tiny", SETTINGS)) == [SETTINGS]
    time_left = left(30.5)  # the reference has the least weight
    assert next(list(group) for group in time_left.groups("gaussian", "tiny", SETTINGS)) == ["cupc-s", "other"]
    time_left = left(6)
    groups = time_left.groups("gaussian", "tiny", SETTINGS)
    assert list(next(groups)) == ["stable-serial"]
    time_left.end = time.time() + 1  # it took as long as estimated
    assert list(groups) == []
    assert time_left.certifies("tiny", 100)
    assert not time_left.certifies("tiny", 10**7)
    with pytest.raises(
        SystemExit, match=r"^no time is left for cupc-s on tiny, other on tiny, testing the removed edges of tiny"
    ):
        time_left.end_job(tmp_path / "log")
    assert "no time is left for cupc-s on tiny" in (tmp_path / "log").read_text()
    time_left.left_out = [str(k) for k in range(15)]
    with pytest.raises(SystemExit, match="8, 9, and 5 more; the next call goes on with it"):
        time_left.end_job(tmp_path / "log")


def test_a_deadline_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("GPUPC_DEADLINE", "soon")
    with pytest.raises(ValueError, match="GPUPC_DEADLINE is 'soon'; give it seconds of Unix time"):
        deadline()


def test_times_of_single_tests_are_joined_in_the_order_of_the_config():
    parts = [
        {"cells": [{"implementation": name, "k": k} for k in (1, 2)], "environments": {name: {}}, "source": {"9": "s"}}
        for name in ("b", "a")
    ]
    whole = joined(parts, ["a", "b"])
    assert [(cell["implementation"], cell["k"]) for cell in whole["cells"]] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert whole["environments"] == {"a": {}, "b": {}}
    assert cases({"samples": [1, 2], "permutations": 3, "set_size": 1, "k_cmi": 7})[1]["samples"] == 2


# --- several GPUs ----------------------------------------------------------------------------------------------------


def take_gpu(folder, taken, end):
    with own_gpu(2, folder):
        taken.put((os.environ["CUDA_VISIBLE_DEVICES"], sorted(os.sched_getaffinity(0))))
        end.wait(30)


def test_jobs_side_by_side_have_gpus_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-7")
    context = multiprocessing.get_context("fork")
    taken, end = context.Queue(), context.Event()
    jobs = [context.Process(target=take_gpu, args=(tmp_path, taken, end)) for _ in range(3)]
    for job in jobs:
        job.start()
    first = [taken.get(timeout=30) for _ in range(2)]
    assert {name for name, _ in first} == {"3", "GPU-7"}
    assert {len(cores) for _, cores in first} == {max(1, len(os.sched_getaffinity(0)) // 3)}
    if available_cores() > 1:
        assert first[0][1] != first[1][1]
    end.set()
    assert taken.get(timeout=30)[0] in ("3", "GPU-7")  # the third job waited for one of them
    for job in jobs:
        job.join()


@pytest.mark.parametrize("put", [lambda path, other: path.symlink_to(other), lambda path, other: os.mkfifo(path)])
def test_what_others_put_in_place_of_a_lock_is_not_written_to(tmp_path, put):
    other = tmp_path / "other"
    other.write_text("mine")
    put(tmp_path / ".gpu-0.lock", other)
    with pytest.raises(OSError, match=r"gpu-0\.lock"), own_gpu(2, tmp_path):
        pass
    assert other.read_text() == "mine"


def test_a_job_alone_keeps_all_gpus_and_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cores = os.sched_getaffinity(0)
    with own_gpu(1, tmp_path):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
        assert os.sched_getaffinity(0) == cores


# --- for real: slow tests, but for the last ---------------------------------------------------------------------------


def small(config):
    """One data set, a quick setting and one whose time limit is beyond any deadline, and one large graph."""
    tiny = config["datasets"]["tiny"]
    graphs = {"spec": {"family": "gaussian", "generator": "generate.random_dag_gaussian"}, "name": "graph-p{p}"}
    graphs["sweeps"] = {"n": {"varies": "p", "parameters": {"p": [8], "m": 100, "density": 0.2, "seed": 0}}}
    config["datasets"] = {"tiny": tiny}
    config["settings"] = {"gaussian": {"stable-serial": {"time_limit_s": 120}, "slow": {"time_limit_s": 5000}}}
    config["experiments"] = {"cupc_fig10": {"large": True, "settings": ["stable-serial"], "graphs": graphs}}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A folder, its config, and what a call with a deadline printed."""
    folder = tmp_path_factory.mktemp("recording")
    config = variant(folder / "config.yaml", small)
    printed = snakemake(folder, config, *CALL, fails=True, GPUPC_DEADLINE=str(time.time() + 300))
    return folder, config, printed


CALL = ("--keep-incomplete", "record")


@pytest.mark.slow
def test_a_recording_ends_in_time_and_goes_on(recording):
    folder, config, printed = recording
    assert "no time is left for slow on tiny; the next call goes on with it" in printed
    assert "Traceback" not in printed
    assert not (folder / "results/records/tiny/slow.json").exists()
    assert record(folder, "tiny", "stable-serial")["status"] == "ok"
    assert [row["status"] for row in read_csv(folder / "results/verification/cupc_fig10.csv")] == ["alone"]
    assert not list(folder.glob("results/problems/graph-p8.np?")), "a large problem is removed when it is verified"
    assert (folder / "results/problems/graph-p8.json").is_file()

    assert "Nothing to be done" not in snakemake(folder, config, *CALL, "--dry-run")
    measured = (folder / "results/records/graph-p8/stable-serial.json").stat().st_mtime_ns
    snakemake(folder, config, *CALL)
    assert record(folder, "tiny", "slow")["status"] == "ok"
    assert record(folder, "tiny", "stable-serial")["reused_samples"] == 2
    assert (folder / "results/records/graph-p8/stable-serial.json").stat().st_mtime_ns == measured
    assert (folder / "results/verification.ok").is_file()
    assert "Nothing to be done" in snakemake(folder, config, *CALL, "--dry-run")


@pytest.mark.slow
def test_a_recording_is_published(recording, tmp_path):
    """Of the first call, where the second one did not go on."""
    device = tmp_path / "device"
    publish(recording[0] / "results", device)
    assert check(device) == []
    published = open_published(device)
    assert {("tiny", "stable-serial"), ("graph-p8", "stable-serial")} <= set(published)
    assert published.verification("graph-p8", "stable-serial")["status"] == "alone"
    (plan,) = recorded_plans({"recorded": [str(device)]})
    assert plan.recorded_source(entries()["cupc_fig10"]).runs == [("graph-p8", "stable-serial")]


def test_nothing_is_started_when_the_time_is_up(tmp_path):
    printed = snakemake(tmp_path, variant(tmp_path / "config.yaml", small), *CALL, fails=True, GPUPC_DEADLINE="1")
    assert "Measuring" not in printed
    assert not list(tmp_path.glob("results/records/*/*.json"))
