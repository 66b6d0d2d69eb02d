"""Measurements on cores of their own: which cores, and that nothing runs beside another on the same ones."""

import io
import json
import os
import threading
import time

import psutil
import pytest

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.bench import Bench, Setting
from workflow.lib.core_sets import TIMES, VARIABLE, divide, measure_parts, use_core_sets
from workflow.lib.job_times import report

SETTINGS = {"stable-serial": {}, "scan": {"method": "pair-scan"}, "causal-learn": {}, "cupc-s": {}}


def bench_of(threads):
    return Bench("host", threads, io.StringIO())


@pytest.mark.parametrize(("cores", "size"), [(8, 1), (16, 2), (64, 8)])
def test_sets_are_disjoint_and_leave_cores_for_the_rest(cores, size):
    sets, rest = divide(range(cores))
    assert [len(each) for each in sets] == [size] * 5
    assert sorted(core for each in [*sets, rest] for core in each) == list(range(cores))
    assert len(rest) >= 3 * size


def test_without_sets_all_settings_are_measured_together(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert measure_parts("job", SETTINGS, bench_of, lambda settings, bench: (settings, bench.threads)) == [
        (SETTINGS, available_cores())
    ]


@pytest.fixture
def sets(monkeypatch, tmp_path):
    """Sets that all consist of one core of this machine."""
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    core = min(os.sched_getaffinity(0))
    monkeypatch.setenv(VARIABLE, json.dumps([core] * 8))
    return core


def test_references_run_beside_kernels_on_their_own_cores(sets):
    both = threading.Barrier(2)
    before = os.sched_getaffinity(0)

    def measure(settings, bench):
        both.wait(30)
        shared = psutil.Process(bench.worker_of(Setting("scan", "pair-scan")).pid)
        return list(settings), bench.cores, os.sched_getaffinity(0), shared.cpu_affinity()

    assert measure_parts("job", SETTINGS, bench_of, measure) == [
        (["stable-serial", "causal-learn"], 1, {sets}, [sets]),
        (["scan", "cupc-s"], 1, {sets}, [sets]),
    ]
    assert os.sched_getaffinity(0) == before


def test_parallel_references_take_all_sets(sets):
    references = {
        "tigramite": {},
        "tigramite-8": {"method": "tigramite", "params": {"workers": 8}},
        "cmiknn-parallel": {},
    }
    running, together, threads = [], [], []

    def bench_of_one_core(wanted):
        threads.append(wanted)
        return bench_of(1)

    def measure(settings, bench):
        running.append(settings)
        together.append(len(running))
        time.sleep(0.2)
        running.remove(settings)

    measure_parts("job", references, bench_of_one_core, measure)
    assert sorted(threads) == [1, 4]
    assert together == [1, 1]
    assert {line.split(",")[0] for line in TIMES.read_text().splitlines()} == {"references 1", "all references"}


def test_one_job_at_a_time_measures_on_the_gpu_and_several_measure_references(sets):
    running, most, lock = {"gpu": 0, "references": 0}, {"gpu": 0, "references": 0}, threading.Lock()

    def measure(settings, bench):
        kind = "gpu" if "scan" in settings else "references"
        with lock:
            running[kind] += 1
            most[kind] = max(most[kind], running[kind])
        time.sleep(0.3)
        with lock:
            running[kind] -= 1

    jobs = [threading.Thread(target=measure_parts, args=("job", SETTINGS, bench_of, measure)) for _ in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert most["gpu"] == 1
    assert 2 <= most["references"] <= 4
    lines = TIMES.read_text().splitlines()
    assert len(lines) == 12
    assert sum(line.startswith("gpu,job,") for line in lines) == 6
    assert all(float(asked) <= float(taken) < float(end) for _, _, asked, taken, end in (x.split(",") for x in lines))


def test_the_workflow_keeps_off_the_cores_of_measurements(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    moved = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(32)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: moved.append(cores))
    use_core_sets(16)
    assert json.loads(os.environ[VARIABLE]) == list(range(16))
    assert moved == [list(range(10, 16))]


def test_times_of_jobs_are_printed(sets, tmp_path):
    metadata = tmp_path / ".snakemake/metadata"
    metadata.mkdir(parents=True)
    now = time.time()
    for name, start, end in (("compile_ahead", 0, 10), ("measure_gaussian/mcc", 10, 30)):
        facts = {"rule": name, "log": [f"logs/{name}.log"], "starttime": now + start, "endtime": now + end}
        (metadata / name.replace("/", "-")).write_text(json.dumps(facts))
    TIMES.write_text(f"gpu,mcc,{now + 11},{now + 15},{now + 29}\n")
    printed = report(tmp_path)
    assert printed.startswith("30.0 s, 2 jobs\n")
    assert "   10.0    20.0  measure_gaussian/mcc" in printed
    assert "   15.0    14.0  gpu: mcc" in printed
    assert "gpu: taken for 14.0 s" in printed
