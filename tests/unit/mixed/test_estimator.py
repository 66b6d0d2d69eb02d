"""The estimator of mixed data: against the definition and against known entropies."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from gpupc_impl import MixedProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.mixed.gpucmiknn_mixed import MixedCmiEstimator, mixed_ci_test
from gpupc_impl.mixed.retest import MixedRetest
from gpupc_impl.nonlinear.tuning import DEFAULTS, TUNING


def cmi(problem, i, j, members=()):
    return mixed_ci_test(problem, i, j, members, open_backend("host"))[1]


def by_definition(problem, i, j, members):
    """Algorithm 1 of Mesner and Shalizi in float64, without its max(0, .)."""
    values, n = problem.values.astype(float), problem.n_samples
    apart = {v: np.abs(values[v][:, None] - values[v]) for v in (i, j, *members)}
    for v in apart:
        if problem.categories[v]:
            apart[v] = (apart[v] > 0).astype(float)

    def space(*variables):
        return np.max([np.zeros((n, n)), *(apart[v] for v in variables)], axis=0)

    joint = space(i, j, *members)
    radius = np.sort(joint, axis=1)[:, problem.k_cmi, None]  # the sample itself comes first

    def others(distances):
        return digamma((distances <= radius).sum(axis=1) - 1)

    terms = others(joint) - others(space(i, *members)) - others(space(j, *members)) + others(space(*members))
    return terms.mean()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_cmi_is_the_definitions(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(4, 60)), int(rng.integers(2, 6))
    data = pd.DataFrame(rng.normal(size=(n, p)) + rng.normal(size=(n, 1))).rename(columns=str)
    for k in range(p):
        if rng.random() < 0.3:
            data[str(k)] = np.round(data[str(k)] * rng.choice([1, 3]))
        if rng.random() < 0.5:
            data[str(k)] = np.round(data[str(k)]).astype(int).astype(str)
    transform, few = str(rng.choice(["ranks", "standardize", "none"])), {"k_perm": 1, "permutations": 1}
    k_cmi = int(rng.integers(1, n))
    problem = MixedProblem.from_data(data, transform=transform, precision="float64", k_cmi=k_cmi, **few)
    members = tuple(range(2, p))
    assert cmi(problem, 0, 1, members) == pytest.approx(by_definition(problem, 0, 1, members), abs=1e-9)


@pytest.mark.parametrize("transform", ["ranks", "standardize"])
@pytest.mark.parametrize("members", [[], [2], [2, 3]])
def test_lists_that_end_early_give_the_same(transform, members):
    """With many categories most replicates need samples of other categories, which have the largest distance."""
    rng = np.random.default_rng(4)
    data = pd.DataFrame(rng.normal(size=(150, 4)) + rng.normal(size=(150, 1))).rename(columns=str)
    data["1"], data["3"] = rng.integers(0, 12, 150).astype(str), rng.integers(0, 3, 150).astype(str)
    problem = MixedProblem.from_data(data, transform=transform, k_cmi=9, permutations=40)
    tuning = dataclasses.replace(TUNING["host"], reach=9)
    estimator = MixedCmiEstimator(problem, open_backend("host"), DEFAULTS | {"selection": "buckets"}, tuning=tuning)
    estimator.fitting(len(members), 1, 1)
    found = estimator.partials(len(members), np.array([[0, *members]]), np.array([[0, 1]]))[0]
    assert np.array_equal(found, MixedRetest(problem).partials(0, 1, members))


def entropy(*columns):
    _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    shares = counts / counts.sum()
    return -(shares * np.log(shares)).sum()


def test_cmi_of_categories_is_their_entropies():
    """H(X, Z) + H(Y, Z) - H(X, Y, Z) - H(Z) of the table, where no combination is rare; a copy and independence."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 2000)
    x, y = (z + (rng.random(2000) < 0.3)) % 2, (z + 2 * (rng.random(2000) < 0.4)) % 3
    y = np.where(rng.random(2000) < 0.3, x, y)
    data = np.stack([x, y, z, x], axis=1)
    problem = MixedProblem.from_data(data, categories=["V0", "V1", "V2", "V3"], permutations=1)
    plug_in = entropy(x, z) + entropy(y, z) - entropy(x, y, z) - entropy(z)
    assert cmi(problem, 0, 1, (2,)) == pytest.approx(plug_in, abs=2e-3)
    assert cmi(problem, 0, 1) == pytest.approx(entropy(x) + entropy(y) - entropy(x, y), abs=2e-3)
    assert cmi(problem, 0, 3) == pytest.approx(entropy(x), abs=2e-3)


def test_mi_of_a_number_and_a_category_is_the_known_one():
    """X uniform on [Y, Y + 2], Y one of 0, ..., 4: I(X; Y) = log 5 - 4/5 log 2 (Gao et al. 2017)."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 5, 1500)
    x = y + rng.uniform(0, 2, 1500)
    for transform in ("none", "ranks"):
        data = pd.DataFrame({"x": x, "y": y.astype(str)})
        problem = MixedProblem.from_data(data, transform=transform, permutations=1)
        assert cmi(problem, 0, 1) == pytest.approx(np.log(5) - 4 / 5 * np.log(2), abs=0.03)


def test_neighbours_are_of_the_same_categories_in_turn():
    """Ties are broken cyclically from the sample on; a short list is repeated, and an empty one holds the sample."""
    groups = np.repeat([0, 1, 2], [6, 2, 1])
    problem = MixedProblem.from_data(groups[:, None], categories=["V0"], k_cmi=1, k_perm=3, permutations=1)
    lists = MixedRetest(problem)._nearest([0])
    codes = problem.values[0]
    sizes = {code: int((codes == code).sum()) for code in codes}
    for a, row in enumerate(lists):
        same = [b % 9 for b in range(a + 1, a + 9) if codes[b % 9] == codes[a]]
        expected = list(itertools.islice(itertools.cycle(same or [a]), 3))
        assert row.tolist() == expected
    assert sorted(sizes.values()) == [1, 2, 6]
