"""What is shown within a level: the work that is done, on terminals alone, and nothing where nobody watches."""

import time

import numpy as np
import pytest

from gpupc_impl import skeleton
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.views import progress
from tests.graphs import chain


class Recorder:
    """A watcher that keeps what it is told, by level."""

    def __init__(self):
        self.told = []

    def begin(self, level):
        self.told.append([])

    def advance(self, done, total, unit):
        self.told[-1].append((done, total, unit))

    def end(self):
        pass


HOST = {"backend": "host"}
KNN = {"permutations": 20, "k_cmi": 5, "k_perm": 5, "max_level": 1}


@pytest.mark.parametrize(
    ("family", "method", "options"),
    [
        ("nonlinear", "gpucmiknn-parallel", {**HOST, **KNN}),
        ("nonlinear", "gpucmiknn-single", {**HOST, **KNN}),
        ("mixed", "gpucmiknn-mixed", {**HOST, **KNN}),
        ("kernel", "kernel-batched", {**HOST, "max_level": 1}),
        ("kernel", "kernel-serial", {"max_level": 1}),
        ("gaussian", "auto", {"missing": "pairwise"}),
        ("gaussian", "stable-serial", {}),
        ("gaussian", "out-of-core-block", {**HOST, "device_memory_limit": 1 << 20, "layout": "blocks"}),
    ],
)
def test_batches_are_told(family, method, options):
    data = chain(60, 6)
    if options.get("missing"):
        data = np.where(np.arange(data.size).reshape(data.shape) == 7, np.nan, data)
    recorder = Recorder()
    with progress_watcher.watched_by(recorder):
        found = skeleton(data, 0.05, family=family, method=method, **options)
    assert len(recorder.told) == found.levels_run
    told = [each for level in recorder.told for each in level]
    assert told
    assert all(total is None or 0 <= done <= total for done, total, _ in told)
    for level, tests in zip(recorder.told, found.tests_per_level, strict=True):
        assert [done for done, _, _ in level] == sorted(done for done, _, _ in level)
        if level and level[0][2] == "possible tests":
            assert level[-1][0] == tests


class SlowSearch(LevelSearch):
    def run_level(self, level):
        progress_watcher.advance(3, 10, "blocks")
        time.sleep(0.1)
        return LevelOutcome(edges=0, max_degree=0, tests=3)

    def adjacency(self):
        return np.zeros((3, 3), bool)


def run_slow_search(shown):
    problem = GaussianProblem.from_correlation(np.eye(3), n_samples=50)
    with progress.level_progress(shown) as report:
        pc_stable(problem, SlowSearch(), progress=report)


@pytest.mark.parametrize("shown", [None, lambda level: None])
def test_a_level_that_takes_long_has_a_line_on_a_terminal(shown, capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_interactive", lambda: True)
    monkeypatch.setattr(progress, "SECONDS", 0.02)
    run_slow_search(shown)
    lines = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    assert lines[0] == "level 0: 3 of 10 blocks, 0 s"
    assert len(lines) <= 5


@pytest.mark.parametrize(("shown", "interactive"), [(None, False), (False, True)])
def test_nothing_is_shown_where_nobody_looks(shown, interactive, capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_interactive", lambda: interactive)
    monkeypatch.setattr(progress, "SECONDS", 0.02)
    run_slow_search(shown)
    assert capsys.readouterr().err == ""


def test_a_bar_takes_the_line(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(progress, "is_interactive", lambda: True)
    monkeypatch.setattr(progress, "SECONDS", 0.02)
    with progress.bar(True, 5, "alphas", " alphas"):
        run_slow_search(None)
    error = capsys.readouterr().err
    assert "alphas" in error
    assert "level 0: 3 of 10 blocks" in error
    assert "level 0: 3 of 10 blocks, 0 s".ljust(progress.LINE_WIDTH) not in error  # it is at the bar
