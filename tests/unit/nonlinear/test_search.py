"""GPU-CMIknn Single and Parallel: the skeleton and the sets of a serial PC-stable, however the work is batched."""

import concurrent.futures
import tracemalloc

import numpy as np
import pytest

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.nonlinear import retest
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest


def graph_problem(seed, p=7, n=60, density=0.4, **options):
    rng = np.random.default_rng(seed)
    data = np.zeros((n, p))
    for v in range(p):
        causes = np.flatnonzero(rng.random(v) < density)
        data[:, v] = 0.6 * rng.normal(size=n) + sum(np.tanh(data[:, u]) * 1.5 for u in causes)
    options = {"permutations": 40, "k_cmi": 6, "k_perm": 5, "seed": seed, "max_level": 3, **options}
    return NonlinearProblem.from_data(data, **options)


def test_first_come_keeps_the_edges(backend):
    problem = graph_problem(4, alpha=0.1)
    expected = solve(problem, get_method("gpucmiknn-single"), backend)
    for params in ({}, {"delta": 4}, {"delta": 500}):
        found = solve(problem, get_method("gpucmiknn-parallel"), backend, params, separating_sets="first-come")
        assert np.array_equal(found.adjacency, expected.adjacency)


def test_single_makes_no_test_too_many_and_batches_only_few(backend):
    problem = graph_problem(5, p=8)
    single = solve(problem, get_method("gpucmiknn-single"), backend)
    parallel = solve(problem, get_method("gpucmiknn-parallel"), backend, {"delta": 1})
    everything = solve(problem, get_method("gpucmiknn-parallel"), backend, {"delta": 10_000})
    for level, least in enumerate(single.tests_per_level):
        assert least <= parallel.tests_per_level[level] <= everything.tests_per_level[level]
    assert single == parallel == everything


def test_little_memory_means_smaller_batches(backend):
    problem = graph_problem(6, p=8)
    expected = solve(problem, get_method("gpucmiknn-parallel"), backend, {"delta": 1000})
    peaks = []
    for limit in (40_000, 100_000, 300_000):
        small = open_backend("host", device_memory_limit=limit)
        found = solve(problem, get_method("gpucmiknn-parallel"), small, {"delta": 1000})
        assert found == expected
        assert small.memory_peak <= limit
        peaks.append(small.memory_peak)
    assert peaks[0] < peaks[1] < peaks[2]
    with pytest.raises(DeviceMemoryError):
        solve(problem, get_method("gpucmiknn-parallel"), open_backend("host", device_memory_limit=12_000))


@pytest.mark.parametrize("members", [[], [2], [2, 3, 4]])
def test_the_retest_finds_the_same_in_small_pieces(monkeypatch, members):
    problem = graph_problem(3)
    whole = Retest(problem).partials(0, 1, members)
    for numbers in (1, 100, 1000):
        monkeypatch.setattr(retest, "_AT_ONCE", numbers)
        assert np.array_equal(Retest(problem).partials(0, 1, members), whole)


def test_the_retest_holds_no_matrix_of_all_samples():
    """A float32 matrix of all samples by all would take 37 MB, their argsort twice as much."""
    problem = NonlinearProblem.from_data(np.random.default_rng(0).normal(size=(3000, 3)), permutations=2)
    tracemalloc.start()
    try:
        Retest(problem).count(0, 1, [2])
        assert tracemalloc.get_traced_memory()[1] < 25e6
    finally:
        tracemalloc.stop()


@pytest.mark.xdist_group("cmiknn")  # where the references are compiled anyway
def test_the_threads_of_single_tests_end_with_them(monkeypatch):
    pytest.importorskip("numba")
    from baselines.references import open_cmiknn_test as open_test

    events = []

    class Pool(concurrent.futures.ThreadPoolExecutor):
        def shutdown(self, *args, **options):
            super().shutdown(*args, **options)
            events.append("ended")

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Pool)
    problem = graph_problem(1)
    test = open_test(problem, None, {"threads": 2})
    assert test(0, 1, (2,)) == problem.p_value(Retest(problem).count(0, 1, [2]))
    assert not events
    del test
    assert events == ["ended"]


def test_the_retest_confirms_separating_sets_and_refuses_others(backend):
    problem = graph_problem(2, alpha=0.1)
    found = solve(problem, get_method("gpucmiknn-parallel"), backend)
    test = Retest(problem)
    for (i, j), members in found.sepsets.items():
        ratios, tolerances = test.ratios(np.array([[i, j], [j, i]]), np.array([members, members]).reshape(2, -1))
        assert (ratios <= 1).any()
        assert not tolerances.any()
    edges = found.edges
    assert len(edges)
    ratios, _ = test.ratios(edges, np.empty((len(edges), 0), np.int64))
    assert (ratios > 1).all()
