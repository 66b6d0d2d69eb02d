"""How the references in numba divide a level among threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from gpupc_impl import DiscreteProblem, skeleton
from gpupc_impl.integers import ceil_div

pytest.importorskip("numba")

ALARM = Path(__file__).parents[2] / "golden" / "data" / "alarm-5000.csv"


def test_a_task_is_worth_handing_to_a_thread(monkeypatch):
    """ALARM takes milliseconds. With a task for every few edges two threads took longer than one."""
    handed = []

    def count(pool, function, tasks):
        tasks = list(tasks)
        handed.append(len(tasks))
        return map(function, tasks)

    problem = DiscreteProblem.from_data(pd.read_csv(ALARM), alpha=0.01)
    serial = skeleton(problem, method="discrete-serial", backend="cpu")
    monkeypatch.setattr(ThreadPoolExecutor, "map", count)
    parallel = skeleton(problem, method="discrete-parallel", backend="cpu", threads=2)
    assert (parallel.sha256, parallel.tests_per_level) == (serial.sha256, serial.tests_per_level)
    counted, first, *later = handed
    pairs, *edges = serial.tests_per_level[0], *serial.edges_per_level[:-1]
    assert counted * 50_000 <= 2 * 37 * 5000  # each task counts some hundred thousand codes
    assert first * 16 <= pairs
    assert later == [ceil_div(left, 16) for left in edges]
