"""The graph does not depend on the order of the variables."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import IndependenceOracle, fci
from tests.golden.test_latent_pags import linear_gaussian
from tests.latent_graphs import confounded


def reordered(pag, order):
    """The marks, with the variables in their order before they were permuted."""
    back = np.argsort(order)
    return pag.marks[np.ix_(back, back)]


def same(data, order, permuted, **options):
    first, second = fci(data, **options), fci(permuted, **options)
    inverse = [tuple(sorted((order[i], order[j]))) for i, j in second.removed]
    assert np.array_equal(first.marks, reordered(second, order))
    assert sorted(inverse) == sorted(first.removed)
    disputed = sorted((order[i], order[j]) for i, j in second.conflicts.tolist())
    assert disputed == sorted(map(tuple, first.conflicts.tolist()))
    return first


@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
def test_samples(algorithm):
    removed = conflicts = 0
    for seed in range(24):
        values = linear_gaussian(12 + seed, hidden=4, degree=3.5, samples=(60, 150, 600)[seed % 3])
        order = np.random.default_rng(seed).permutation(12 + seed)
        alpha = (0.2, 0.1, 0.01)[seed % 3]
        found = same(values, order, values[:, order], alpha=alpha, algorithm=algorithm)
        removed, conflicts = removed + len(found.removed), conflicts + len(found.conflicts)
    assert conflicts > 0
    assert removed > 0


@settings(max_examples=6)
@given(st.integers(0, 10**6))
def test_oracles(seed):
    graph, p = confounded(seed)
    order = np.random.default_rng(seed).permutation(p)
    whole = np.concatenate([order, np.arange(p, len(graph))])
    for algorithm in ("rfci", "fci"):
        graphs, hidden = (graph, graph[np.ix_(whole, whole)]), range(p, len(graph))
        oracle, other = (IndependenceOracle.from_graph(each, hidden=hidden) for each in graphs)
        assert np.array_equal(reordered(fci(other, algorithm=algorithm), order), fci(oracle, algorithm=algorithm).marks)


def test_categories():
    values = linear_gaussian(6, hidden=2, samples=300)
    codes = pd.DataFrame(values > np.median(values, axis=0)).astype(str).add_suffix("x")
    order = np.random.default_rng(0).permutation(6)
    same(codes, order, codes.iloc[:, order], alpha=0.05, algorithm="fci")


@pytest.mark.filterwarnings("ignore:.*have missing values and are dropped")
@pytest.mark.parametrize("missing", ["drop-rows", "pairwise", "imputed"])
def test_missing_values(missing):
    values, rng = linear_gaussian(10, hidden=3, samples=200), np.random.default_rng(1)
    holes = rng.random(values.shape) < 0.05
    tables = [np.where(holes, rng.normal(size=values.shape), values) for _ in range(3)]
    data = tables if missing == "imputed" else np.where(holes, np.nan, values)
    order = np.random.default_rng(0).permutation(10)
    permuted = [table[:, order] for table in tables] if missing == "imputed" else data[:, order]
    same(data, order, permuted, alpha=0.05, missing=missing, algorithm="fci")


def test_sets_that_come_first_decide_nothing():
    values = linear_gaussian(14, hidden=4, degree=3.5, samples=150)
    assert fci(values, 0.1, separating_sets="first-come") == fci(values, 0.1)
