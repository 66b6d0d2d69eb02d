"""A nonlinear or mixed search that was killed goes on at its level, with the same answer."""

import itertools

import numpy as np
import pytest

from gpupc_impl import InvalidProblem, skeleton
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from tests.graphs import assert_same
from tests.launches import Killed, kill_after

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))

METHODS = ["gpucmiknn-parallel", "gpucmiknn-single", "gpucmiknn-mixed"]


SLOW = 1_000_000
"""Seconds between two looks at the clock of the search that is killed; one second in the search that goes on."""


def run_clock(monkeypatch, seconds):
    """Let the clock of searches go on by so many seconds whenever it is read."""
    ticks = itertools.count(0, seconds)
    monkeypatch.setattr(HostBackend, "clock", lambda backend: float(next(ticks)))


def make_problem(method: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(60, 8)) + rng.normal(size=(60, 1))
    search = {"alpha": 0.5, "permutations": 20, "k_cmi": 5, "k_perm": 4}
    if method == "gpucmiknn-mixed":
        data[:, 2] = data[:, 2] > 0
        return MixedProblem.from_data(data, categories=["V2"], **search)
    return NonlinearProblem.from_data(data, **search)


def search(problem, method, path, **options):
    return skeleton(problem, method=method, backend="host", checkpoint=str(path), **options)


@pytest.mark.parametrize("pmax", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_search_goes_on_at_the_level_it_had_come_to(tmp_path, monkeypatch, method, pmax):
    problem, path = make_problem(method), tmp_path / "new" / "checkpoint.npz"
    expected = skeleton(problem, method=method, backend="host", pmax=pmax)
    assert expected.levels_run >= 3
    for level in range(expected.levels_run):
        run_clock(monkeypatch, SLOW)
        with pytest.raises(Killed):
            search(problem, method, path, progress=kill_after(level), pmax=pmax)
        run_clock(monkeypatch, 1)
        found = search(problem, method, path, pmax=pmax)
        assert_same(found, expected)
        assert found.tests_per_level == expected.tests_per_level
        took_long = [seconds >= SLOW for seconds in found.seconds_per_level]
        assert took_long == [each <= level for each in range(expected.levels_run)], "levels tell what they took then"
        assert not list(path.parent.iterdir()), "a search that came to its end leaves nothing behind"


def test_either_method_goes_on_where_the_other_was(tmp_path):
    problem, path = make_problem("gpucmiknn-parallel"), tmp_path / "checkpoint.npz"
    with pytest.raises(Killed):
        search(problem, "gpucmiknn-parallel", path, progress=kill_after(1))
    levels = []
    found = search(problem, "gpucmiknn-single", path, progress=levels.append)
    assert found == skeleton(problem, method="gpucmiknn-single", backend="host")
    assert [done.level for done in levels] == list(range(found.levels_run))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gpucmiknn-parallel", {"seed": 1}, "another problem"),
        ("gpucmiknn-parallel", {"pmax": True}, "without pmax"),
        ("gpucmiknn-parallel", {"separating_sets": "first-come"}, "'first-come' is asked for"),
        ("gpucmiknn-single-racing", {}, "'canonical, racing' is asked for"),
    ],
)
def test_a_checkpoint_of_another_search_is_refused(tmp_path, method, options, message):
    path = tmp_path / "checkpoint.npz"
    with pytest.raises(Killed):
        search(make_problem("gpucmiknn-parallel"), "gpucmiknn-parallel", path, progress=kill_after(0))
    problem = make_problem(method, options.pop("seed", 0))
    with pytest.raises(InvalidProblem, match=message):
        search(problem, method, path, **options)
    assert path.exists()
