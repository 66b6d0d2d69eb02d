"""`pair-scan` part by part: its arithmetic to the bit, its shapes and limits, and the work that it does."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, DeviceMemoryError, GaussianProblem, Skeleton, methods, skeleton
from gpupc_impl.backends import KernelLaunchError, open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.gaussian import fused_levels, pair_block
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from tests import bounds
from tests.graphs import assert_same, linear_samples
from tests.launches import WatchedBackend, solve

LAUNCHES = ({}, {"fused_levels": "always"}, {"tiles": "always"})

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


class Work(NamedTuple):
    """What the levels of a search did: launches and downloaded bytes of each, and of all that follows the last."""

    launches: list[int]
    downloaded: list[int]


def solve_watched(problem: GaussianProblem, backend: WatchedBackend, params: dict) -> tuple[Skeleton, Work]:
    def work() -> tuple[int, int]:
        return backend.work["launches"], backend.work["downloaded"]

    ends = [work()]
    found = solve(problem, methods()["pair-scan"], backend, params, progress=lambda step: ends.append(work()))
    ends.append(work())
    return found, Work(*(np.diff(counts).tolist() for counts in zip(*ends, strict=True)))


@pytest.fixture(scope="module")
def narrow() -> HostBackend:
    """A backend whose shared memory is too small for the cells of a prefix, which go to device memory."""
    backend = open_backend("host")
    backend.max_shared_bytes = 16
    return backend


def factor_model(factors: int, others: int) -> np.ndarray:
    """Exact correlations of factors and of others, which are independent given all factors but not given fewer."""
    weights = np.random.default_rng(0).uniform(0.5, 1, (others, factors))
    mixing = np.block([[np.eye(factors), np.zeros((factors, others))], [weights, np.eye(others)]])
    covariance = mixing @ mixing.T
    scale = np.sqrt(np.diagonal(covariance))
    return covariance / np.outer(scale, scale)


def matrices(p: int) -> dict[str, np.ndarray]:
    """(p, p) correlations by kind, some of nearly dependent variables, and matrices that are no correlations."""
    rng = np.random.default_rng(3)
    data = rng.standard_normal((40, p))
    common = data + rng.standard_normal((40, 1))
    determined = common.copy()
    for scale, copy in zip((0.0, 1e-7, 1e-5, 1.001e-5, 1e-3), range(1, p, 2), strict=False):
        noise = rng.standard_normal(40)
        determined[:, copy] = determined[:, copy - 1] + scale * determined[:, copy - 1].std() * noise / noise.std()
    arbitrary = rng.uniform(-1, 1, (p, p))
    arbitrary = np.triu(arbitrary, 1) + np.triu(arbitrary, 1).T + np.eye(p)
    edge = np.full((p, p), math.sqrt(1 - RESIDUAL_TOLERANCE))
    np.fill_diagonal(edge, 1.0)
    random = {"random": data, "common": common, "determined": determined}
    found = {name: np.corrcoef(values, rowvar=False) for name, values in random.items()}
    return {**found, "few samples": np.corrcoef(data[:5], rowvar=False), "arbitrary": arbitrary, "tolerance": edge}


@pytest.mark.parametrize("kind", matrices(2))
def test_every_squared_correlation_has_the_bits_of_cupc_s(kind):
    """No pair is separated, so that all tests are made; at the last level the smallest of a pair is its only one."""
    problem = GaussianProblem.from_correlation(matrices(8)[kind], n_samples=1000, alpha=1 - 1e-15)
    expected, found = WatchedBackend(), WatchedBackend()
    given = solve(problem, methods()["cupc-s"], expected, pmax=True)
    assert_same(solve(problem, methods()["pair-scan"], found, pmax=True), given)
    assert len(found.smallest) == len(expected.smallest) == given.levels_run - 1
    assert given.levels_run == 7 or kind in ("few samples", "determined")
    for level, (ours, theirs) in enumerate(zip(found.smallest, expected.smallest, strict=True), 1):
        pairs = np.triu(given.adjacency_at(level + 1), 1)
        np.testing.assert_array_equal(ours[pairs].view(np.uint64), theirs[pairs].view(np.uint64))


@pytest.mark.parametrize(("steps", "edges"), [(-1, 0), (0, 0), (1, 2)])
def test_at_the_critical_value_a_pair_is_separated(backend, monkeypatch, steps, edges):
    r, tiny = 0.3, 1e-12
    near = np.nextafter(r, math.copysign(math.inf, steps)) if steps else r
    monkeypatch.setattr(GaussianProblem, "critical_r_squared", lambda problem, level: r * r)
    correlation = np.array([[1, near, tiny], [near, 1, -near], [tiny, -near, 1]])
    problem = GaussianProblem.from_correlation(correlation, n_samples=100, max_level=0)
    for name in ("pair-scan", "cupc-s"):
        assert solve(problem, methods()[name], backend).n_edges == edges


@pytest.mark.parametrize("p", [2, 4, 31, 32, 33, 127, 128, 129, 260])
def test_rows_of_any_number_of_words(backend, p):
    data = linear_samples(p, m=60, density=min(1, 3 / p), seed=p)
    problem = GaussianProblem.from_data(data, alpha=0.1, max_level=2)
    expected = solve(problem, methods()["stable-serial"], None)
    for params in LAUNCHES:
        assert_same(solve(problem, methods()["pair-scan"], backend, params), expected)


@pytest.mark.parametrize("params", LAUNCHES, ids=str)
@pytest.mark.parametrize("max_level", [0, 1, 2, 3])
def test_rows_too_long_for_shared_memory(narrow, params, max_level):
    problem = GaussianProblem.from_data(linear_samples(25), max_level=max_level)
    expected = solve(problem, methods()["stable-serial"], None)
    assert expected.levels_run == max_level + 1
    assert_same(solve(problem, methods()["pair-scan"], narrow, params), expected)


@pytest.mark.parametrize(
    "params",
    [pytest.param(each, id=str(each), marks=[pytest.mark.slow] * ("fused_levels" in each)) for each in LAUNCHES],
)
def test_sets_of_nine(backend, params):
    """Level 9 lies beyond the levels of the first table of binomials."""
    problem = GaussianProblem.from_correlation(factor_model(9, 3), n_samples=10**12)
    expected = solve(problem, methods()["stable-serial"], None)
    assert expected.edges_per_level[7:10] == (30, 30, 27)
    assert expected.sepsets[9, 10] == tuple(range(9))
    assert_same(solve(problem, methods()["pair-scan"], backend, params), expected)


def test_a_budget_is_kept_or_named(backend):
    problem = GaussianProblem.from_data(linear_samples(60, density=0.1))
    expected, how = solve(problem, methods()["pair-scan"], backend), {"method": "pair-scan", "backend": "host"}
    unlimited = HostBackend()
    solve(problem, methods()["pair-scan"], unlimited)
    for share in (0.2, 0.5, 0.9, 0.99):
        with pytest.raises(DeviceMemoryError, match="device memory exhausted"):
            skeleton(problem, **how, device_memory_limit=int(share * unlimited.memory_peak))
    limited = skeleton(problem, **how, device_memory_limit=unlimited.memory_peak)
    assert_same(limited, expected)


def count_of_level_one(problem: GaussianProblem) -> int:
    """The tests of level 1: third variables in words of 32, each counted whole or up to the one that decides."""
    c, p = problem.correlation, problem.n_variables
    edges = (np.square(c) > problem.critical_r_squared(0)) & ~np.eye(p, dtype=bool)
    tests = 0
    for i, j in itertools.combinations(range(p), 2):
        if not edges[i, j]:
            continue
        left_i, left_j, both = 1 - c[i] ** 2, 1 - c[j] ** 2, c[i, j] - c[i] * c[j]
        separates = np.square(both) <= problem.critical_r_squared(1) * left_i * left_j
        separates &= np.minimum(left_i, left_j) > RESIDUAL_TOLERANCE
        found_in_j = False
        for word in range(0, p, 32):
            candidates = [k for k in range(word, min(word + 32, p)) if k not in (i, j)]
            tested = [k for k in candidates if edges[i, k] or (edges[j, k] and not found_in_j)]
            deciding = next((k for k in tested if separates[k] and edges[i, k]), None)
            if deciding is not None:
                tests += tested.index(deciding) + 1
                break
            tests += len(tested)
            found_in_j |= bool(separates[tested].any())
    return tests


@pytest.mark.parametrize("p", [20, 70])
def test_tests_of_level_one_are_counted(p):
    problem = GaussianProblem.from_data(linear_samples(p, density=4 / p, seed=2), max_level=1)
    expected = count_of_level_one(problem)
    for params in LAUNCHES:
        found = solve(problem, methods()["pair-scan"], WatchedBackend(), params)
        assert found.tests_per_level == (p * (p - 1) // 2, expected)


def test_launches_of_a_level_and_bytes_of_a_search():
    problem = GaussianProblem.from_data(linear_samples(50, density=0.15), alpha=0.1)
    watched, p = WatchedBackend(), 50
    found, work = solve_watched(problem, watched, {})
    assert found.levels_run >= 4
    *levels, result = work.launches
    assert levels[0] == 1
    assert levels[1] <= 3
    assert max(levels[2:]) <= 6
    assert result == 2  # the adjacency matrix, and the sets of all levels merged
    assert watched.work["cooperative"] == 0
    sets = found.sepsets
    results = p * p + sets.pairs.nbytes + sets.members.nbytes + len(sets.pairs)  # a byte for the size of each
    assert watched.work["downloaded"] - results <= 8192 * found.levels_run
    assert watched.work["uploaded"] - problem.correlation.nbytes <= 65536


def test_fused_levels_take_three_launches_and_one_read():
    """One launch for the tests of each of the first two levels, and one for all levels up to 5 and the result."""
    problem = GaussianProblem.from_data(linear_samples(50, density=0.15), alpha=0.1)
    watched = WatchedBackend()
    expected = solve(problem, methods()["pair-scan"], HostBackend(), {"fused_levels": "never"})
    assert 4 <= expected.levels_run <= 6
    found, work = solve_watched(problem, watched, {"fused_levels": "always"})
    assert_same(found, expected)
    assert work.launches == [3, *([0] * found.levels_run)]
    assert watched.work["cooperative"] == 1
    assert 0 < work.downloaded[0] <= 8192  # the counters
    assert not any(work.downloaded[1:-1])
    assert all(seconds > 0 for seconds in found.seconds_per_level)
    assert all(tests > 0 for tests in found.tests_per_level)


@pytest.mark.parametrize(
    ("limit", "value"), [("MOST_EDGES", 100), ("LONGEST_ROW", 32), ("MOST_TESTS", 1), ("MEMORY_SHARE", 1 << 60)]
)
def test_what_is_too_much_for_queued_levels_runs_after_them(monkeypatch, limit, value):
    """More edges or neighbours than there is room for from level 2 on, many tests, or little memory."""
    data = np.random.default_rng(0).normal(size=(40, 45))
    problem = GaussianProblem.from_data(data + data[:, :1], alpha=0.5, max_level=2)
    expected = solve(problem, methods()["pair-scan"], HostBackend(), {"fused_levels": "never"})
    backend = WatchedBackend()
    monkeypatch.setattr(fused_levels, limit, value)
    monkeypatch.setattr(fused_levels, "MOST_TESTS_OF_CORES", fused_levels.MOST_TESTS)
    solve(problem, methods()["pair-scan"], HostBackend(), {"fused_levels": "always"})  # compiles
    # A limit of tests holds unless levels are always to be fused.
    found, work = solve_watched(problem, backend, {"fused_levels": "auto" if limit == "MOST_TESTS" else "always"})
    assert_same(found, expected)
    assert expected.edges_per_level[1] > 100
    assert expected.adjacency_at(2).sum(axis=0).max() > 32
    queued = limit != "MEMORY_SHARE"
    assert work.launches[0] == (3 if queued else 1)
    assert (work.launches[1] == 0) == queued
    assert work.launches[2] > 0


@pytest.mark.parametrize("edges", [(), ((0, 1),), ((0, 1), (2, 3))])
def test_queued_levels_of_a_graph_without_tests(backend, edges):
    correlation = np.eye(5)
    for i, j in edges:
        correlation[i, j] = correlation[j, i] = 0.9
    problem = GaussianProblem.from_correlation(correlation, n_samples=100)
    found = solve(problem, methods()["pair-scan"], backend, {"fused_levels": "always"})
    assert_same(found, solve(problem, methods()["stable-serial"], None))
    assert found.levels_run == 1
    assert not len(found.sepsets.pairs)


@pytest.mark.parametrize("max_level", [0, 1, 2, 3, 4])
def test_queued_and_fused_levels_end_with_max_level(max_level):
    problem = GaussianProblem.from_correlation(factor_model(6, 3), n_samples=10**12, max_level=max_level)
    expected, watched = solve(problem, methods()["stable-serial"], None), WatchedBackend()
    assert expected.levels_run == max_level + 1
    assert_same(solve(problem, methods()["pair-scan"], watched, {"fused_levels": "always"}), expected)
    assert watched.work["cooperative"] == (max_level > 0)


def test_fused_levels_end_with_the_degrees_of_freedom(backend):
    problem = GaussianProblem.from_correlation(factor_model(5, 3), n_samples=7, alpha=1 - 1e-9)
    expected = solve(problem, methods()["stable-serial"], None)
    assert "degrees of freedom" in expected.stopped_because
    assert expected.levels_run == 4
    assert_same(solve(problem, methods()["pair-scan"], backend, {"fused_levels": "always"}), expected)


def test_a_cooperative_launch_has_one_block_on_the_host(backend):
    kernel = backend.kernel(*fused_levels.KERNELS[1, 5])
    assert kernel.resident_blocks(4, 0) == 1
    with pytest.raises(KernelLaunchError, match=r"2 blocks asked for .*; 1 of this size are resident at once"):
        kernel((2,), (1,), [], cooperative=True)


@pytest.mark.parametrize(("critical", "tolerance"), bounds.CASES)
def test_no_test_that_separates_is_ruled_out_in_single_precision(backend, critical, tolerance):
    bounds.check(backend, critical, tolerance)


@pytest.fixture
def tiles_tried(monkeypatch):
    """On the host backend, too, level 1 takes tiles where scans of some pairs are long."""
    monkeypatch.setattr(pair_block, "TILED", ("host",))
    monkeypatch.setattr(pair_block, "TILED_FROM", 0)


@pytest.mark.parametrize(("alpha", "in_tiles"), [(1 - 2**-53, True), (0.5, True), (1e-5, False)])
def test_tiles_are_taken_where_scans_are_long(tiles_tried, alpha, in_tiles):
    """Level 1 has one launch more than if its way had been requested: it scans some pairs to find out."""
    rng = np.random.default_rng(2)
    factor = rng.normal(size=(500, 1))
    data = np.hstack([factor, factor + rng.normal(size=(500, 149))])
    problem = GaussianProblem.from_data(data, alpha=alpha, max_level=1)
    found, work = solve_watched(problem, WatchedBackend(), {})
    requested = {tiles: solve_watched(problem, WatchedBackend(), {"tiles": tiles}) for tiles in ("always", "never")}
    launches = {tiles: each.launches[1] for tiles, (_, each) in requested.items()}
    assert launches["always"] != launches["never"]
    assert work.launches[1] == 1 + launches["always" if in_tiles else "never"]
    for expected, _ in requested.values():
        assert found == expected
        assert found.tests_per_level == expected.tests_per_level
    assert found.edges_per_level[0] / (150 * 149 / 2) > 0.1


def test_p_values_and_fixed_edges_are_the_same_if_tiles_are_requested(tiles_tried):
    """Tiles support neither, so pairs are scanned."""
    data = np.random.default_rng(1).normal(size=(40, 12))
    problem = GaussianProblem.from_data(data, alpha=1 - 2**-53, max_level=1)
    known = with_knowledge(problem, BackgroundKnowledge(required_edges=[("V0", "V1")]))
    for given, pmax in ((problem, True), (known, False)):
        found, expected = (
            solve(given, methods()["pair-scan"], HostBackend(), {"tiles": tiles}, pmax=pmax)
            for tiles in ("always", "never")
        )
        assert found == expected
        np.testing.assert_array_equal(found.pmax, expected.pmax)
