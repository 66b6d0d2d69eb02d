"""The test of mixed data against tigramite's CMIknnMixed: CMI values, and p-values under the null.

tigramite adds noise of relative size 1e-16 to numbers, which breaks ties of small ones; here it is off, so that both
see the same samples. docs/mixed.md tells what else differs.
"""

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import MixedProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.mixed.gpucmiknn_mixed import mixed_ci_test

pytest.importorskip("tigramite")
from baselines._mixed import MixedTest
from baselines.tigramite_searches import TigramiteMixedTest
from tests.golden.test_cmiknn_tigramite import without_noise

pytestmark = pytest.mark.xdist_group("cmiknn")  # so that only one process compiles the references

INPUTS = 60


def draw_case(rng: np.random.Generator) -> tuple[MixedProblem, tuple[int, ...]]:
    n, size = int(rng.integers(10, 120)), int(rng.integers(4))
    data = rng.normal(size=(n, size + 2))
    data[:, 1:] += rng.choice([0, 0.7]) * data[:, :1]
    coded = rng.random(size + 2) < 0.5
    data[:, coded] = np.round(data[:, coded])
    transform = str(rng.choice(["ranks", "standardize", "none"]))
    k_cmi = int(rng.choice([1, 5, 7, n // 5, n // 2, n - 1]))
    options = {"transform": transform, "k_cmi": k_cmi, "k_perm": 5, "permutations": 1, "precision": "float64"}
    problem = MixedProblem.from_data(data, categories=[f"V{v}" for v in np.flatnonzero(coded)], **options)
    return problem, tuple(range(2, size + 2))


def test_cmi_is_tigramites():
    rng, backend = np.random.default_rng(0), open_backend("host")
    kinds = set()
    for case in range(INPUTS):
        problem, members = draw_case(rng)
        test = without_noise(TigramiteMixedTest(problem))
        _, found, _ = mixed_ci_test(problem, 0, 1, members, backend, selection=("counting", "buckets")[case % 2])
        assert found == pytest.approx(test.dependence(0, 1, members), abs=1e-9)
        kinds.add(tuple(problem.categories[:2] > 0))
    assert len(kinds) == 4


def dependent_given_a_category(n: int, strength: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    z = rng.integers(0, 3, n)
    x = np.array([0.0, 3.0, -3.0])[z] + rng.normal(size=n)
    y = np.array([1.0, -1.0, 4.0])[z] + strength * x + rng.normal(size=n)
    return pd.DataFrame({"x": x, "y": y, "z": z.astype(str)})


def test_p_values_are_uniform_under_the_null_and_small_beside_it():
    """60 data sets of 90 samples, 99 permutations: the mean of p-values, and how many are below 0.1. tigramite's shares
    the level, with random numbers of its own."""
    backend = open_backend("host")
    null, related = [], []
    for seed in range(60):
        for strength, values in ((0.0, null), (0.8, related)):
            problem = MixedProblem.from_data(dependent_given_a_category(90, strength, seed), permutations=99, seed=seed)
            values.append(problem.p_value(mixed_ci_test(problem, 0, 1, (2,), backend)[0]))
    assert 0.38 < np.mean(null) < 0.62
    assert sum(p < 0.1 for p in null) <= 13  # of 60; more come once in 150 times where the level is 0.1
    assert sum(p < 0.1 for p in related) >= 55


def test_neighbours_of_a_category_are_all_of_it():
    """Where a category is larger than k_perm, tigramite's tree gives every sample of it the same neighbours; ours gives
    each its own, so that a permutation takes nearly all values."""
    data = dependent_given_a_category(120, 0.0, 0)
    problem = MixedProblem.from_data(data, permutations=20, k_perm=5)
    lists = MixedTest(problem)._neighbours([2])
    codes = problem.values[2]
    assert (codes[lists] == codes[:, None]).all()
    assert (np.bincount(lists.ravel(), minlength=120) == 5).all()
