"""The CPU references are compared with plain numpy: their CI test, their search, and their counts."""

import functools
import importlib.util

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, methods, skeleton
from gpupc_impl.core.solve import unavailable
from tests.graphs import linear_samples, plain_pc_stable


def sample(rng: np.random.Generator, p: int, m: int, density: float = 0.5) -> np.ndarray:
    return linear_samples(p, m, density, rng, least=0.1)


def plain_test(problem: GaussianProblem, i: int, j: int, members: tuple[int, ...]) -> tuple[float, bool]:
    """By H of cuPC, equations 3 to 5, with numpy's own pseudo-inverse: the p-value, and whether the set separates."""
    correlation, ends, level = problem.correlation, [i, j], len(members)
    cross = correlation[np.ix_(ends, members)]
    inverse = np.linalg.pinv(correlation[np.ix_(members, members)], rcond=1e-9, hermitian=True)
    h = correlation[np.ix_(ends, ends)] - cross @ inverse @ cross.T
    square = h[0, 1] ** 2 / (h[0, 0] * h[1, 1])
    return problem.p_value(square, level), square <= problem.critical_r_squared(level)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["stable-serial", "stable-parallel"])
def test_search_is_the_plain_one(method, seed):
    rng = np.random.default_rng(seed)
    data = sample(rng, int(rng.integers(3, 10)), int(rng.integers(14, 120)))
    problem = GaussianProblem.from_data(data, alpha=float(rng.choice([0.01, 0.1, 0.7])))
    adjacency, sets, tests, pmax = plain_pc_stable(problem, functools.partial(plain_test, problem))
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
        values = sample(np.random.default_rng(4), 15, 60)
        problem = GaussianProblem.from_data(values, alpha=0.1, df_convention=df_convention)
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
