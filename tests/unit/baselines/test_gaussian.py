"""The CPU references are compared with plain numpy: their CI test, their search, and their counts."""

import importlib.util
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import _fisher_z, _levels
from gpupc_impl import GaussianProblem, methods, skeleton
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.solve import unavailable
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE

NEVER = (-1.0, RESIDUAL_TOLERANCE, RESIDUAL_TOLERANCE, PSEUDO_INVERSE_TOLERANCE)
"""Limits with which no set separates, so that all tests are made."""

NUMBA = settings(deadline=None, derandomize=True, max_examples=100)


def sample(rng: np.random.Generator, p: int, m: int, density: float = 0.5) -> np.ndarray:
    weights = np.tril(rng.random((p, p)) < density, -1) * rng.uniform(0.1, 1, (p, p))
    return np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T


def residuals(correlation, i, j, members):
    """H of cuPC, equations 3 to 5, with numpy's own pseudo-inverse."""
    ends, members = [i, j], list(members)
    cross = correlation[np.ix_(ends, members)]
    inverse = np.linalg.pinv(correlation[np.ix_(members, members)], rcond=1e-9, hermitian=True)
    return correlation[np.ix_(ends, ends)] - cross @ inverse @ cross.T


def r_squared(correlation, i, j, members):
    h = residuals(correlation, i, j, members)
    return h[0, 1] ** 2 / (h[0, 0] * h[1, 1])


def plain_pc_stable(problem: GaussianProblem):
    """PC-stable by cuPC's Algorithm 1: (adjacency, separating sets, tests per level, largest p-values)."""
    p = problem.n_variables
    graph = ~np.eye(p, dtype=bool)
    sets, tests, pmax = {}, [], np.full((p, p), np.nan)
    level = 0
    while graph.sum(axis=1).max() > level and problem.obstacle(level) is None:
        before, critical = graph.copy(), problem.critical_r_squared(level)
        tests.append(0)
        for i, j in np.argwhere(np.triu(before)).tolist():
            sides = [np.flatnonzero(before[end]) for end in ((i, j) if level else (i,))]
            candidates = [side[(side != i) & (side != j)].tolist() for side in sides]
            for members in itertools.chain(*(itertools.combinations(side, level) for side in candidates)):
                tests[-1] += 1
                square = r_squared(problem.correlation, i, j, members)
                pmax[i, j] = pmax[j, i] = np.fmax(pmax[i, j], problem.p_value(square, level))
                if square <= critical:
                    graph[i, j] = graph[j, i] = False
                    sets[i, j] = members
                    break
        level += 1
    return graph, sets, tuple(tests), pmax


@NUMBA
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 8), extra=st.integers(0, 60))
def test_partial_correlation(seed, size, extra):
    """Numba's factorisation against numpy's pseudo-inverse of the submatrix."""
    rng = np.random.default_rng(seed)
    p = size + 2
    correlation = np.corrcoef(sample(rng, p, p + 6 + extra), rowvar=False)
    i, j, *members = rng.permutation(p).tolist()
    i, j, members = min(i, j), max(i, j), np.sort(members)
    expected = r_squared(correlation, i, j, members)
    if size == 1:
        starts, edges = np.zeros(p + 1, np.int64), np.array([[i, j]], np.int32)
        starts[i + 1 :] = 1  # row i has one neighbour, which is the set
        smallest = np.array([np.inf])
        *_, tests, undefined, _ = _fisher_z.separate_edges_level_one(
            correlation, starts, members.astype(np.int32), edges, np.empty(0, np.int32), NEVER, smallest
        )
        found = smallest[0]
    else:
        chosen = np.empty(size, np.int32)
        separated, found, (tests, undefined, _) = _fisher_z.first_separating_set(
            correlation, i, j, members.astype(np.int32), chosen, NEVER, True
        )
        assert not separated
    assert (tests, undefined) == (1, 0)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-12)


@NUMBA
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 7))
def test_pseudo_inverse(seed, size):
    """A repeated variable in S has no effect, as with numpy's pseudo-inverse and as if S did not have it."""
    rng = np.random.default_rng(seed)
    p = size + 1  # the last variable of `once` becomes a copy of an earlier one
    once = np.corrcoef(sample(rng, p, p + 40, density=0.3), rowvar=False)
    order = np.append(np.arange(p), 2 + rng.integers(size - 1))
    correlation = once[np.ix_(order, order)]
    members = np.arange(2, p + 1, dtype=np.int32)
    h11, h12, h22 = _fisher_z.residuals_by_pseudo_inverse(correlation, 0, 1, members, PSEUDO_INVERSE_TOLERANCE)
    for h in (residuals(correlation, 0, 1, members), residuals(once, 0, 1, range(2, p))):
        np.testing.assert_allclose([h11, h12, h22], [h[0, 0], h[0, 1], h[1, 1]], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (5, 1), (5, 2), (5, 5), (8, 4), (12, 3)])
def test_next_combination(n, size):
    expected = itertools.combinations(range(n), size)
    chosen = np.arange(size)
    previous, changed = None, 0
    while changed >= 0:
        current = tuple(chosen.tolist())
        assert current == next(expected)
        if previous is not None:
            assert changed == next(k for k in range(size) if current[k] != previous[k])
        previous, changed = current, _levels.next_combination(chosen, n)
    assert next(expected, None) is None


def test_neighbour_lists():
    adjacent = np.random.default_rng(0).random((9, 9)) < 0.4
    adjacent = np.triu(adjacent, 1) | np.triu(adjacent, 1).T
    adjacent[4] = adjacent[:, 4] = False
    starts, neighbours, edges = _levels.neighbour_lists(adjacent)
    rows = [neighbours[starts[i] : starts[i + 1]].tolist() for i in range(9)]
    assert rows == [np.flatnonzero(row).tolist() for row in adjacent]
    assert edges.tolist() == np.argwhere(np.triu(adjacent)).tolist()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["stable-serial", "stable-parallel"])
def test_search_is_the_plain_one(method, seed):
    rng = np.random.default_rng(seed)
    data = sample(rng, int(rng.integers(3, 10)), int(rng.integers(14, 120)))
    problem = GaussianProblem.from_data(data, alpha=float(rng.choice([0.01, 0.1, 0.7])))
    adjacency, sets, tests, pmax = plain_pc_stable(problem)
    found = skeleton(problem, method=method, pmax=True)
    assert np.array_equal(found.adjacency, adjacency)
    assert dict(found.sepsets) == sets
    assert found.tests_per_level == tests
    np.testing.assert_allclose(found.pmax, pmax, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads(threads):
    problem = GaussianProblem.from_data(sample(np.random.default_rng(1), 40, 90, density=0.2), alpha=0.2)
    serial = skeleton(problem, method="stable-serial", pmax=True)
    parallel = skeleton(problem, method="stable-parallel", pmax=True, threads=threads)
    assert parallel == serial
    assert parallel.tests_per_level == serial.tests_per_level
    np.testing.assert_array_equal(parallel.pmax, serial.pmax)


def test_available_cores():
    assert available_cores() >= 1


def test_undefined_tests_do_not_separate():
    """Variables 0 and 1 are equal, so that neither has variance left given the other."""
    rng = np.random.default_rng(2)
    base = rng.standard_normal(100)
    data = np.stack([base, base, base + 0.1 * rng.standard_normal(100)], axis=1)
    found = skeleton(data, method="stable-serial", pmax=True)
    assert found.tests_per_level == (3, 6)
    # 0-2 and 1-2 given the twin, from both ends; 0-1 given 2 is defined, and keeps its edge.
    assert found.undefined_tests == 4
    assert found.n_edges == 3
    assert found.pmax[0, 2] == pytest.approx(0, abs=1e-12)


def test_near_singular_sets_take_the_pseudo_inverse():
    """0 and 1 depend on each other through 2, of which 3 is a copy: {2, 3} is the only set of level 2."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 3))
    x[:, 0] += x[:, 2]
    x[:, 1] += x[:, 2] + 0.5 * x[:, 0]
    found = skeleton(np.column_stack([x, x[:, 2]]), method="stable-serial")
    assert found.adjacency[0, 1]
    assert found.pseudo_inverses > 0
    assert found.undefined_tests > 0


class TestCausalLearn:
    @pytest.fixture(autouse=True)
    def installed(self):
        if reason := methods()["causal-learn"].unavailable():
            pytest.skip(reason)

    @pytest.mark.parametrize("df_convention", ["pcalg", "cupc"])
    def test_agrees_in_all_that_it_reports(self, df_convention):
        """It has our graph, separating sets, edges per level and largest p-values, but makes more tests than ours."""
        problem = GaussianProblem.from_data(
            sample(np.random.default_rng(4), 15, 60), alpha=0.1, df_convention=df_convention
        )
        found = skeleton(problem, method="causal-learn", pmax=True)
        expected = skeleton(problem, method="stable-serial", pmax=True)
        assert found == expected
        assert found.edges_per_level == expected.edges_per_level
        assert found.stopped_because == expected.stopped_because
        assert found.tests_per_level[0] == 15 * 14 // 2
        assert found.tests_per_level >= expected.tests_per_level
        assert all(seconds > 0 for seconds in found.seconds_per_level)
        np.testing.assert_allclose(found.pmax, expected.pmax, rtol=1e-6, atol=1e-12)

    @pytest.mark.parametrize("seed", range(3))
    def test_its_own_directions_are_those_of_its_pc(self, seed):
        from causallearn.search.ConstraintBased.PC import pc

        values = sample(np.random.default_rng(seed), 12, 300)
        found = skeleton(values, method="causal-learn", orientation="own")
        marks = pc(values, 0.05, "fisherz", show_progress=False).G.graph
        assert found == skeleton(values, method="causal-learn")
        assert found.facts["arrows"] == [[i, j] for i, j in np.ndindex(12, 12) if (marks[i, j], marks[j, i]) == (-1, 1)]
        assert found.facts["arrows"]
        assert found.facts["translation_s"] > 0

    def test_singular_matrix_is_an_error(self):
        correlation = np.ones((3, 3))
        with pytest.raises(ValueError, match="singular"):
            skeleton(correlation, n_samples=50, method="causal-learn")


def test_causal_learn_says_that_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not installed" in methods()["causal-learn"].unavailable()


# --- without a tolerance ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["stable-serial", "cupc-s", "pair-scan"])
@pytest.mark.parametrize(
    ("r_12", "tolerance", "edges"), [(1.0, 1e-10, 3), (1.0, 0.0, 3), (1 - 1e-12, 1e-10, 3), (1 - 1e-12, 0.0, 1)]
)
def test_a_tolerance_of_zero_lets_near_copies_separate(method, r_12, tolerance, edges):
    """Two copies and a third variable: exact copies leave 0/0, near ones a number that here means independence."""
    backend = "cpu" if method == "stable-serial" else "host"
    if (reason := unavailable(methods()[method], backend)) is not None:
        pytest.skip(reason)
    correlation = np.array([[1, r_12, 0.5], [r_12, 1, 0.5], [0.5, 0.5, 1]])
    found = skeleton(correlation, method=method, backend=backend, n_samples=1000, residual_tolerance=tolerance)
    assert found.n_edges == edges
    assert (found.undefined_tests > 0) == (tolerance > 0 or r_12 == 1)


@pytest.mark.parametrize(
    ("residuals", "undefined", "independent"),
    [
        ((1.0, 0.5, 1.0), False, False),
        ((1.0, 0.001, 1.0), False, True),
        ((-1.0, 0.001, 1.0), False, True),  # absolute variances count
        ((-1.0, 0.5, 1.0), False, False),
        ((1.0, 2.0, 1.0), False, False),
        ((1.0, 1000.0, 1.0), False, True),  # |r| = 1000, whose |Z| is that of 1 / 1000
        ((0.0, 0.0, 1.0), True, None),
        ((1.0, np.nan, 1.0), False, False),
    ],
)
def test_what_the_arithmetic_gives_decides_as_in_the_published_code(residuals, undefined, independent):
    h11, h12, h22 = residuals
    assert _fisher_z.is_undefined(h11, h22, 0.0) == undefined
    if not undefined:
        assert _fisher_z.is_independent(h11, h12, h22, 0.01, 0.0) == independent
        assert (_fisher_z.r_squared(h11, h12, h22, 0.0) <= 0.01) == independent
