"""Measurements on cores of their own: which cores, and that nothing runs beside another on the same ones."""

import json
import os
import threading
import time

import pytest

from workflow.lib.core_sets import VARIABLE, divide, measure_parts, use_core_sets

SETTINGS = {"stable-serial": {}, "scan": {"method": "pair-scan"}, "causal-learn": {}, "cupc-s": {}}


@pytest.mark.parametrize(("cores", "size"), [(8, 1), (16, 2), (64, 8)])
def test_sets_are_disjoint_and_leave_cores_for_the_rest(cores, size):
    sets, rest = divide(range(cores))
    assert [len(each) for each in sets] == [size] * 5
    assert sorted(core for each in [*sets, rest] for core in each) == list(range(cores))
    assert len(rest) >= 3 * size


def test_without_sets_all_settings_are_measured_together(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert measure_parts(SETTINGS, 3, lambda settings, threads: (settings, threads)) == [(SETTINGS, 3)]


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

    def measure(settings, threads):
        both.wait(30)
        return list(settings), threads, os.sched_getaffinity(0)

    assert measure_parts(SETTINGS, 16, measure) == [
        (["stable-serial", "causal-learn"], 1, {sets}),
        (["scan", "cupc-s"], 1, {sets}),
    ]
    assert os.sched_getaffinity(0) == before


def test_one_job_at_a_time_measures_on_the_gpu_and_several_measure_references(sets):
    running, most, lock = {"gpu": 0, "references": 0}, {"gpu": 0, "references": 0}, threading.Lock()

    def measure(settings, threads):
        kind = "gpu" if "scan" in settings else "references"
        with lock:
            running[kind] += 1
            most[kind] = max(most[kind], running[kind])
        time.sleep(0.3)
        with lock:
            running[kind] -= 1

    jobs = [threading.Thread(target=measure_parts, args=(SETTINGS, 16, measure)) for _ in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert most["gpu"] == 1
    assert 2 <= most["references"] <= 4


def test_the_workflow_keeps_off_the_cores_of_measurements(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    moved = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(32)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: moved.append(cores))
    use_core_sets(16)
    assert json.loads(os.environ[VARIABLE]) == list(range(16))
    assert moved == [list(range(10, 16))]
