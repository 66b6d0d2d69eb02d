"""Out of core, any accepted budget gives the edges and the separating sets of cuPC-S in core."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl import DeviceMemoryError, GaussianProblem, Skeleton, methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.solve import solve, unavailable
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from gpupc_impl.out_of_core import gathered, plans
from tests.wide import assert_same

LAYOUTS = ("auto", "blocks")
REASON = unavailable(methods()["out-of-core-block"], "host")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def sample(rng: np.random.Generator, p: int, m: int, degree: float, hubs: int = 0) -> np.ndarray:
    """(m, p) samples of a linear model of that mean degree; hubs are parents of most variables."""
    weights = np.tril(rng.random((p, p)) < degree / p, -1) * rng.uniform(0.2, 1, (p, p))
    weights[hubs:, :hubs] = rng.uniform(0.5, 1, (p - hubs, hubs)) * (rng.random((p - hubs, hubs)) < 0.7)
    data = np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T
    return data[:, rng.permutation(p)]


def least_budget(problem: GaussianProblem, pmax: bool = False) -> int:
    return plans.least_budget(problem.n_variables, problem.max_level != 0, pmax)


def in_core(problem: GaussianProblem, **options) -> Skeleton:
    return skeleton(problem, method="cupc-s", backend="host", **options)


def out_of_core(problem: GaussianProblem, budget: int | None, **options) -> Skeleton:
    """The answer in the budget, or in the budgets that refusals of later levels name."""
    backend = open_backend("host", budget)
    pmax = options.pop("pmax", False)
    try:
        result = solve(problem, methods()["out-of-core-block"], backend, options, pmax=pmax)
    except DeviceMemoryError as refused:
        if not budget < refused.requested < 64 * problem.n_variables**2 + 100_000:
            raise
        return out_of_core(problem, refused.requested, pmax=pmax, **options)
    assert budget is None or backend.memory_peak <= budget
    assert result.facts["out_of_core"]["peak_device_bytes"] == backend.memory_peak
    assert backend.memory_used == 0
    return result


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
    result = out_of_core(dense, 300_000, layout=layout)
    assert_same(result, in_core(dense))
    assert result.tests_per_level[1] == p * (p - 1) // 2 * (p - 2)
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((200, 1)) @ rng.uniform(0.2, 1, (1, p)) + rng.standard_normal((200, p))
    factor[:, 5], factor[:, 9] = factor[:, 70], factor[:, 70]
    mixed = GaussianProblem.from_data(factor, alpha=0.2, max_level=1)
    for budget in (300_000, None):
        result, expected = out_of_core(mixed, budget, layout=layout, block_size=64), in_core(mixed)
        assert_same(result, expected)
        assert result.undefined_tests > 0
    removed = expected.edges_per_level[0] - expected.edges_per_level[1]
    assert removed > 1000


@pytest.mark.parametrize("gathered_first", [False, True], ids=["in panels", "gathered"])
def test_fixed_edges_at_level_one(gathered_first, monkeypatch):
    """Panels test required edges like others and drop the results; gathered rows skip them."""
    monkeypatch.setattr(gathered, "GATHER_FACTOR", 0 if gathered_first else 10**6)
    rng = np.random.default_rng(4)
    data = sample(rng, 80, 60, 4)
    pairs = np.argwhere(np.triu(rng.random((80, 80)) < 0.02, 1)).astype(np.int32)
    problem = GaussianProblem.from_data(data, alpha=0.05)
    problem = dataclasses.replace(problem, fixed=FixedPairs(pairs[::2], pairs[1::2]))
    for pmax in (False, True):
        expected, result = in_core(problem, pmax=pmax), out_of_core(problem, 60_000, block_size=32, pmax=pmax)
        assert_same(result, expected)
        one = result.facts["out_of_core"]["levels"][1]["layout"]
        assert one == ("gathered" if gathered_first else "panels")
    np.testing.assert_allclose(result.pmax, expected.pmax, rtol=1e-9, atol=1e-13)


def test_a_row_that_does_not_fit_is_refused_with_the_budget_that_suffices():
    rng = np.random.default_rng(5)
    problem = GaussianProblem.from_data(sample(rng, 90, 400, 1, hubs=2), alpha=0.2)
    sentence = r"level 2 .* with its \d+ neighbours.* set device_memory_limit to"
    with pytest.raises(DeviceMemoryError, match=sentence) as refused:
        solve(problem, methods()["out-of-core-block"], open_backend("host", least_budget(problem)))
    assert_same(out_of_core(problem, refused.value.requested), in_core(problem))


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
        assert_same(out_of_core(sliced, 60_000, layout=layout, block_size=32), in_core(problem))


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
@given(problem=problems(), pmax=st.booleans())
def test_unified_memory_with_the_kernels_of_blocks_finds_the_same(problem, pmax):
    expected = in_core(problem, pmax=pmax)
    options = {"method": "out-of-core-um", "backend": "host", "level_one": "pairs"}
    result = skeleton(problem, **options, pmax=pmax)
    assert_same(result, expected)
    if pmax:
        np.testing.assert_array_equal(result.pmax, expected.pmax)
    first_come = skeleton(problem, **options, separating_sets="first-come")
    assert np.array_equal(first_come.adjacency, expected.adjacency)
