"""The device search and its kernels, part by part, on the host backend."""

import math

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, InvalidParameter, methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian import level_graph
from gpupc_impl.gaussian.fixed_order import device_correlation
from gpupc_impl.gaussian.matrix import correlation_fault
from gpupc_impl.gaussian.partial_correlation import partial_r_squared
from tests.graphs import assert_same, linear_samples
from tests.launches import WatchedBackend

DEVICE_METHODS = ("cupc-e", "cupc-s", "baseline-1", "baseline-2")
FOUND = methods("gaussian").items()
HOST_METHODS = [name for name, each in FOUND if "host" in each.backends and each.canonical and not each.cluster]


def problem(p=25, m=60, seed=0, density=0.15, **search):
    """A sparse linear model, whose search has a few levels."""
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.random((p, p)) < density, -1) * rng.uniform(0.3, 1, (p, p))
    return GaussianProblem.from_data(rng.normal(size=(m, p)) @ np.linalg.inv(np.eye(p) - weights).T, **search)


@pytest.mark.parametrize("name", DEVICE_METHODS)
@pytest.mark.parametrize("kept", [True, False])
def test_the_host_waits_once_a_level(monkeypatch, name, kept):
    if not kept:
        monkeypatch.setattr(level_graph, "KEPT_BYTES", 0)
    given, counting, of_levels = problem(m=200), WatchedBackend(), []

    def end_level(_):
        of_levels.append({kind: counting.work[kind] for kind in ("launches", "fills", "waits", "uploads")})
        counting.work.clear()

    found = solve(given, methods()[name], counting, progress=end_level)
    edges = found.edges_per_level
    assert found.levels_run >= 4
    assert edges[1] > edges[2]
    assert edges[-2] == edges[-1]  # Unless the graphs of all levels are kept, this level makes no list.
    assert (of_levels[0]["waits"], of_levels[0]["launches"]) == (1, 2)
    more = {"uploads": 1}  # the binomials of all these levels
    for before, after, work in zip(edges, edges[1:], of_levels[1:], strict=False):
        if kept:
            assert work == {"launches": 3 if more else 2, "fills": 0, "waits": 1, "uploads": 0, **more}
        else:
            launches = 4 if after < before else 3
            assert work == {"launches": launches, "fills": 1, "waits": 1, "uploads": 0, **more}
        more = {}
    assert counting.work["waits"] == 1  # the result


@pytest.mark.parametrize("name", DEVICE_METHODS)
@pytest.mark.parametrize("max_level", [None, 0, 1, 2])
def test_kept_levels_change_no_answer(monkeypatch, backend, name, max_level):
    given = problem(density=0.3, m=300, max_level=max_level)
    kept = solve(given, methods()[name], backend)
    monkeypatch.setattr(level_graph, "KEPT_BYTES", 0)
    assert kept.levels_run == (5 if max_level is None else max_level + 1)
    assert_same(kept, solve(given, methods()[name], backend))


@pytest.mark.parametrize("name", ["cupc-e", "cupc-s"])
@pytest.mark.parametrize(
    "shape",
    [
        {"m": 20, "density": 0.3, "alpha": 0.2},  # The critical values of the levels differ most for few samples.
        {"p": 14, "m": 3000, "density": 0.7, "alpha": 0.05},  # The levels that general kernels run remove edges.
        {"m": 300, "density": 0.1},  # The last level removes edges of the variable with the most neighbours.
    ],
)
def test_each_kept_level_has_its_own_numbers(monkeypatch, backend, name, shape):
    given = problem(**shape)
    monkeypatch.setattr(backend, "is_ready", lambda kernel: False)
    kept = solve(given, methods()[name], backend)
    monkeypatch.setattr(level_graph, "KEPT_BYTES", 0)
    assert_same(kept, solve(given, methods()[name], backend))


@pytest.mark.parametrize("name", DEVICE_METHODS)
def test_first_come_sets_separate_and_leave_the_same_edges(backend, name):
    given = problem(p=40, m=80)
    canonical = solve(given, methods()[name], backend)
    first_come = solve(given, methods()[name], backend, separating_sets="first-come")
    np.testing.assert_array_equal(first_come.adjacency, canonical.adjacency)
    for level in range(1, canonical.levels_run):
        rows = np.flatnonzero(first_come.sepsets.sizes() == level)
        sets = np.array([first_come.sepsets[tuple(pair)] for pair in first_come.sepsets.pairs[rows]]).reshape(-1, level)
        r_squared = partial_r_squared(given.correlation, first_come.sepsets.pairs[rows], sets)
        assert (r_squared <= given.critical_r_squared(level) * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", DEVICE_METHODS)
def test_a_variable_connected_to_all_others_keeps_its_row(backend, name):
    """The published cuPC stores the length of a row in the last column of A'_G, which a full row overwrites."""
    p = 12
    correlation = np.full((p, p), 0.9)
    np.fill_diagonal(correlation, 1.0)
    given = GaussianProblem.from_correlation(correlation, n_samples=10**6, max_level=4)
    found = solve(given, methods()[name], backend)
    assert found.edges_per_level == (66,) * 5
    assert found.tests_per_level == tuple(66 * (2 if level else 1) * math.comb(p - 2, level) for level in range(5))


@pytest.mark.parametrize("name", DEVICE_METHODS)
def test_rows_too_long_for_shared_memory_are_read_from_device_memory(name, monkeypatch):
    given = problem(p=40, m=80)
    expected = solve(given, methods()[name], open_backend("host"))
    limited = open_backend("host")
    monkeypatch.setattr(limited, "max_shared_bytes", 16)
    assert solve(given, methods()[name], limited) == expected


def data_with_copies(p=30, m=60, seed=0):
    """(m, p) samples; which of two near copies separates a pair depends on the last bits."""
    rng = np.random.default_rng(seed)
    data = linear_samples(p, m, 0.2, rng)
    for original, copy, scale in ((1, 20, 0.0), (2, 21, 1e-5), (3, 29, 1e-7)):
        data[:, copy] = data[:, original] + scale * rng.normal(size=m)
    data[:, 12] = 3.0
    return data


@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
def test_methods_agree_on_correlations_that_the_device_makes(backend):
    search = {"alpha": 0.1, "max_level": 3}
    given = GaussianProblem.from_data(data_with_copies(), correlations="device", **search)
    on_device = backend.download(device_correlation(backend, given))
    assert correlation_fault(on_device) is None
    np.testing.assert_allclose(on_device, given.correlation, rtol=0, atol=1e-14)
    of_matrix = GaussianProblem.from_correlation(on_device, n_samples=60, **search)
    expected = solve(of_matrix, methods()["stable-serial"], None)
    for name in HOST_METHODS:
        found = solve(given, methods()[name], backend)
        assert found == expected, name
        assert found.facts["problem"]["correlations"] == "device", name


@pytest.mark.parametrize(("m", "p"), [(2, 1), (3, 2), (50, 31), (9, 33), (20, 129)])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_correlations_that_the_device_makes(backend, m, p, scale):
    data = np.random.default_rng(p).normal(size=(m, p))
    data[:, p // 2] = -3 * data[:, 0]
    given = GaussianProblem.from_data(scale * data, correlations="device")
    found = backend.download(device_correlation(backend, given))
    assert correlation_fault(found) is None
    np.testing.assert_allclose(found, given.correlation, rtol=0, atol=1e-14)


def test_blocks_larger_than_the_limit_are_refused():
    with pytest.raises(InvalidParameter, match=r"beta \* gamma is 1024; a block holds at most 512"):
        skeleton(problem(), method="cupc-e", backend="host", beta=32, gamma=32)


@pytest.mark.parametrize("method", DEVICE_METHODS)
def test_a_method_that_always_takes_the_pseudo_inverse_solves_that_problem_and_says_so(method):
    problem = GaussianProblem.from_data(np.random.default_rng(0).standard_normal((50, 12)), alpha=0.3)
    found = skeleton(problem, method=method, backend="host", inverse="pseudo")
    assert found.facts["problem"] == problem.by_pseudo_inverse.facts()
    assert found.facts["problem"]["pseudo_inverse"] == "always"
    plain = skeleton(problem.by_pseudo_inverse, method=method, backend="host")
    assert found == plain
    assert min(found.pseudo_inverses, plain.pseudo_inverses) > 0  # their number depends on the order of threads
    assert skeleton(problem, method=method, backend="host").pseudo_inverses == 0


def test_cupc_s_ends_a_row_with_its_last_open_edge():
    """Effects lose all edges to sets of two of four causes; the many sets behind these are not factorised."""
    rng = np.random.default_rng(0)
    causes = rng.standard_normal((5000, 2))
    sums = causes @ [[1, 1], [1, -1]] + 1e-2 * rng.standard_normal((5000, 2))
    effects = causes @ [[1.0], [0.3]] + 0.3 * rng.standard_normal((5000, 40))
    problem = GaussianProblem.from_data(np.column_stack((causes, sums, effects)), alpha=1e-9, max_level=2)
    how = {"method": "cupc-s", "backend": "host", "inverse": "pseudo", "theta": 1, "delta": 1}
    for separating_sets in ("canonical", "first-come"):
        found = skeleton(problem, separating_sets=separating_sets, **how)
        assert found.edges_per_level == (944, 896, 4)  # edges are left because each cause is in both sums
        assert found.pseudo_inverses < 8_000  # at most one for each of 36,000 sets
