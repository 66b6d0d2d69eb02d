"""Out of core, any accepted budget gives the edges and the separating sets of cuPC-S in core."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl import DeviceMemoryError, GaussianProblem, Skeleton, methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.solve import solve, unavailable
from gpupc_impl.gaussian import pair_scan
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from gpupc_impl.out_of_core import memory_plan

LAYOUTS = ("auto", "blocks", "panels", "gather")
REASON = unavailable(methods()["out-of-core-block"], "host")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def sample(rng: np.random.Generator, p: int, m: int, degree: float, hubs: int = 0) -> np.ndarray:
    """(m, p) samples of a linear model of that mean degree; hubs are parents of most variables."""
    weights = np.tril(rng.random((p, p)) < degree / p, -1) * rng.uniform(0.2, 1, (p, p))
    weights[hubs:, :hubs] = rng.uniform(0.5, 1, (p - hubs, hubs)) * (rng.random((p - hubs, hubs)) < 0.7)
    data = np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T
    return data[:, rng.permutation(p)]


def least_budget(problem: GaussianProblem, pmax: bool = False) -> int:
    return memory_plan.least_budget(problem.n_variables, problem.max_level, problem.degrees_of_freedom, pmax)


def in_core(problem: GaussianProblem, **options) -> Skeleton:
    return skeleton(problem, method="cupc-s", backend="host", **options)


def out_of_core(problem: GaussianProblem, budget: int | None, **options) -> Skeleton:
    backend = open_backend("host", budget)
    pmax = options.pop("pmax", False)
    result = solve(problem, methods()["out-of-core-block"], backend, options, pmax=pmax)
    assert budget is None or backend.memory_peak <= budget
    assert result.facts["out_of_core"]["peak_device_bytes"] == backend.memory_peak
    assert backend.memory_used == 0
    return result


def assert_same(result: Skeleton, expected: Skeleton) -> None:
    assert np.array_equal(result.adjacency, expected.adjacency)
    assert result.sepsets == expected.sepsets
    assert result.edges_per_level == expected.edges_per_level
    assert result.stopped_because == expected.stopped_because


@st.composite
def problems(draw) -> GaussianProblem:
    p, m = draw(st.integers(2, 90)), draw(st.integers(8, 100))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    data = sample(rng, p, m, draw(st.sampled_from([0.5, 1, 2])), min(draw(st.integers(0, 2)), p - 1))
    for noise in draw(st.lists(st.sampled_from([0.0, 1e-7, 1e-3]), max_size=3)):  # singular conditioning matrices
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * rng.standard_normal(m)
    alpha = draw(st.sampled_from([0.001, 0.01, 0.05, 0.3]))
    tolerance = draw(st.sampled_from([RESIDUAL_TOLERANCE, 0.0]))
    return GaussianProblem.from_data(data, alpha=alpha, max_level=4 if p <= 15 else 2, residual_tolerance=tolerance)


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_budget_and_block_size_find_the_same(data):
    problem = data.draw(problems(), label="problem")
    p, least = problem.n_variables, least_budget(problem)
    expected = in_core(problem)
    everything = 64 * p * p + 100_000
    for _ in range(2):
        budget = data.draw(st.one_of(st.just(least), st.integers(least, max(least, everything))), label="budget")
        block_size = data.draw(st.sampled_from([1, 7, 32, 33, 64, max(1, p // 2), p, p + 1]), label="block_size")
        layout = data.draw(st.sampled_from(LAYOUTS), label="layout")
        result = out_of_core(problem, budget, block_size=block_size, layout=layout)
        assert_same(result, expected)
        for level in result.facts["out_of_core"]["levels"][1:]:
            event(f"layout: {level['layout']}")


@pytest.mark.parametrize("p", [600, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hundreds_and_thousands_of_variables(layout, p):
    rng = np.random.default_rng(7)
    problem = GaussianProblem.from_data(sample(rng, p, 100, 2), alpha=0.001)
    expected = in_core(problem)
    assert expected.levels_run >= 4
    for budget in (1500 * p, 100_000 * p):
        assert_same(out_of_core(problem, budget, layout=layout, block_size=300), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_test_of_dense_blocks_is_made(layout):
    """Without removals both kernels of level 1 must run all tests; a pair that is separated must stop its tests."""
    p = 150
    dense = GaussianProblem.from_correlation(np.full((p, p), 0.5) + 0.5 * np.eye(p), n_samples=1000, max_level=1)
    result = out_of_core(dense, 2_000_000, layout=layout)
    assert_same(result, in_core(dense))
    tests = p * (p - 1) // 2 * (p - 2)
    assert result.tests_per_level[1] == (2 * tests if layout == "gather" else tests)
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((200, 1)) @ rng.uniform(0.2, 1, (1, p)) + rng.standard_normal((200, p))
    factor[:, 5], factor[:, 9] = factor[:, 70], factor[:, 70]
    mixed = GaussianProblem.from_data(factor, alpha=0.2, max_level=1)
    for budget in (1_000_000, None):
        result, expected = out_of_core(mixed, budget, layout=layout, block_size=64), in_core(mixed)
        assert_same(result, expected)
        assert result.undefined_tests > 0
    removed = expected.edges_per_level[0] - expected.edges_per_level[1]
    assert removed > 1000


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_rows_that_do_not_fit_are_split(level, monkeypatch):
    """A hub's neighbours do not fit into a pipeline, so its sets are drawn from blocks of neighbours, of any sizes."""
    rng = np.random.default_rng(level)
    p = {1: 48, 2: 34, 3: 22, 4: 16}[level]
    data = sample(rng, p, 400, 1, hubs=2)
    data[:, 3] = data[:, 11]
    data[:, 5] = data[:, 12] + 1e-7 * data[:, 1]
    problem = GaussianProblem.from_data(data, alpha=0.2, max_level=level)
    expected = in_core(problem, pmax=True)
    assert expected.levels_run == level + 1
    assert expected.pseudo_inverses or level == 1
    split, original = [], memory_plan.longest_piece
    monkeypatch.setattr(memory_plan, "longest_piece", lambda *given: split.append(given) or original(*given))
    for size in (1024, 2048):
        monkeypatch.setattr("gpupc_impl.out_of_core.gathered.Gathered.largest_arena", lambda *given, size=size: size)
        split.clear()
        result = out_of_core(problem, None, layout="gather", pmax=True)
        assert split, "no row was split"
        assert_same(result, expected)
        np.testing.assert_allclose(result.pmax, expected.pmax, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("pmax", [False, True])
def test_without_a_budget_the_search_is_in_core(pmax):
    rng = np.random.default_rng(8)
    data = sample(rng, 120, 200, 3)
    data[:, 5] = data[:, 70]
    problem = GaussianProblem.from_data(data, alpha=0.05)
    expected, result = (
        skeleton(problem, method="pair-scan", backend="host", pmax=pmax),
        out_of_core(problem, None, pmax=pmax),
    )
    assert_same(result, expected)
    assert result.undefined_tests > 0
    assert np.array_equal(result.pmax, expected.pmax, equal_nan=True) if pmax else result.pmax is None
    report = result.facts["out_of_core"]
    assert {level["layout"] for level in report["levels"]} == {"core"}
    assert report["peak_device_bytes"] <= report["forecast"]["level_0"]["device_bytes"]
    assert [level["bytes_up"] for level in report["levels"]] == [4 * 120 * 121] + [0] * (result.levels_run - 1)


def test_a_sufficient_budget_is_in_core_with_the_tests_of_pair_scan():
    """A level that would exceed the budget leaves core, and keeps the results so far, p-values included."""
    rng = np.random.default_rng(9)
    data = rng.standard_normal((60, 1)) + rng.standard_normal((60, 100))
    data[:, 5] = data[:, 70]
    problem = GaussianProblem.from_data(data, alpha=0.1)
    first = memory_plan.pair_scan(100, None, False).device_bytes
    pair_scan = skeleton(problem, method="pair-scan", backend="host", pmax=True)
    for budget, layouts in {
        10**6: ["core", "core", "core"],
        first: ["core", "core", "gather"],
        first - 1: ["blocks", "panels", "gather"],
    }.items():
        for pmax in (False, True):
            result = out_of_core(problem, budget + 80_000 * pmax, pmax=pmax)
            assert_same(result, pair_scan)
            assert [level["layout"] for level in result.facts["out_of_core"]["levels"]][:3] == layouts
            assert result.tests_per_level[:2] == pair_scan.tests_per_level[:2]
            assert (result.undefined_tests > 0) == (pair_scan.undefined_tests > 0)
        np.testing.assert_allclose(result.pmax, pair_scan.pmax, rtol=1e-9, atol=1e-13)


def test_a_small_device_without_a_budget_is_left_behind_levels_in_one_launch(monkeypatch):
    """As on a GPU, where levels are fused by default: what they removed is found again, level by level."""
    fused_levels = dataclasses.replace(pair_scan.PARAMETERS["fused_levels"], default="always")
    monkeypatch.setitem(pair_scan.PARAMETERS, "fused_levels", fused_levels)
    monkeypatch.setattr("gpupc_impl.backends.host.memory_bytes", lambda: 2_000_000)
    monkeypatch.setattr(HostBackend, "max_shared_bytes", 1024)  # rows of level 3 do not fit
    rng = np.random.default_rng(0)
    data = rng.standard_normal((40, 60)) + rng.standard_normal((40, 1))
    problem = GaussianProblem.from_data(data, alpha=0.3, max_level=3)
    result = out_of_core(problem, None)
    assert_same(result, in_core(problem))
    layouts = [level["layout"] for level in result.facts["out_of_core"]["levels"]]
    assert layouts[0] == "core"
    assert layouts[-1] != "core"


def test_lists_that_cannot_be_merged_on_the_device_are_merged_on_the_host(monkeypatch):
    problem = GaussianProblem.from_data(sample(np.random.default_rng(10), 80, 60, 4), alpha=0.1)

    def full(*given):
        raise DeviceMemoryError(2, 0, 1)

    monkeypatch.setattr("gpupc_impl.gaussian.pair_scan.download_result", full)
    result = out_of_core(problem, None, pmax=True)
    assert_same(result, in_core(problem))
    assert {level["layout"] for level in result.facts["out_of_core"]["levels"]} == {"core"}
    assert result.pmax is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_staging_memory_is_taken_once(layout, monkeypatch):
    rng = np.random.default_rng(12)
    problem = GaussianProblem.from_data(sample(rng, 100, 80, 4), alpha=0.1)
    taken, host_empty = [], HostBackend.host_empty
    monkeypatch.setattr(HostBackend, "host_empty", lambda *given: taken.append(given[1]) or host_empty(*given))
    result = out_of_core(problem, 200_000, layout=layout, block_size=40)
    assert result.levels_run >= 3
    assert len(taken) == (3 if layout == "blocks" else 2)  # a pipeline each; blocks of pairs have one of their own


@pytest.mark.parametrize("layout", LAYOUTS)
def test_largest_p_values(layout):
    rng = np.random.default_rng(11)
    problem = GaussianProblem.from_data(sample(rng, 70, 80, 4), alpha=0.1)
    expected = in_core(problem, pmax=True)
    for budget in (least_budget(problem, pmax=True), None):
        result = out_of_core(problem, budget, layout=layout, block_size=32, pmax=True)
        assert_same(result, expected)
        np.testing.assert_allclose(result.pmax, expected.pmax, rtol=1e-9, atol=1e-13)


def test_a_mapped_correlation_matrix_is_read_in_pieces(tmp_path):
    rng = np.random.default_rng(5)
    problem = GaussianProblem.from_data(sample(rng, 130, 60, 3), alpha=0.05)
    np.save(tmp_path / "correlation.npy", problem.correlation)
    mapped = np.load(tmp_path / "correlation.npy", mmap_mode="r")
    result = out_of_core(dataclasses.replace(problem, correlation=mapped), least_budget(problem), block_size=40)
    assert_same(result, in_core(problem))


def test_a_matrix_that_can_only_be_sliced(monkeypatch):
    """An array-like such as zarr's supports two slices at a time."""
    rng = np.random.default_rng(6)
    problem = GaussianProblem.from_data(sample(rng, 60, 90, 3), alpha=0.05)

    class Sliced:
        shape, dtype = problem.correlation.shape, problem.correlation.dtype

        def __getitem__(self, key):
            assert all(isinstance(part, slice) for part in key)
            return problem.correlation[key].copy()

    sliced = dataclasses.replace(problem, correlation=Sliced())
    sliced.__dict__["fingerprint"] = problem.fingerprint
    for layout in LAYOUTS:
        assert_same(out_of_core(sliced, 600_000, layout=layout, block_size=32), in_core(problem))


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
@given(problem=problems(), pmax=st.booleans())
def test_unified_memory_with_the_kernels_of_blocks_finds_the_same(problem, pmax):
    expected = in_core(problem, pmax=pmax)
    result = skeleton(problem, method="out-of-core-um", backend="host", level_one="pairs", pmax=pmax)
    assert_same(result, expected)
    if pmax:
        np.testing.assert_array_equal(result.pmax, expected.pmax)
    first_come = skeleton(
        problem, method="out-of-core-um", backend="host", level_one="pairs", separating_sets="first-come"
    )
    assert np.array_equal(first_come.adjacency, expected.adjacency)
