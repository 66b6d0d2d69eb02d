"""The stand-in for TCGA: its correlations, what level 0 leaves of it, and that it is drawn in blocks."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import datasets
from datasets.dataset import fingerprint
from datasets.wide import regulated_genes, rows

SIZES = {"p": st.integers(1, 30), "n": st.integers(2, 40), "regulators": st.integers(1, 30)}


@settings(deadline=None)
@given(
    **SIZES, seed=st.integers(0, 2**63), coupling=st.floats(0, 1), weakest=st.floats(0, 1), block=st.integers(1, 5000)
)
def test_blocks_do_not_matter(p, n, seed, regulators, coupling, weakest, block):
    parameters = {"p": p, "n": n, "seed": seed, "regulators": min(p, regulators)}
    parameters |= {"coupling": coupling, "weakest": weakest}
    whole = regulated_genes(**parameters)
    with mock.patch("datasets.wide.BLOCK_BYTES", block):
        blocks = list(rows(**parameters))
    assert all(b.shape == (len(b), p) for b in blocks)
    assert np.array_equal(np.concatenate(blocks), whole.values)
    assert whole.values.flags.c_contiguous
    assert whole.facts["sha256"] == fingerprint(whole.values)


def test_fewer_samples_are_the_first_of_more():
    few, more = (regulated_genes(7, n, 1, 3, 0.5).values for n in (10, 300))
    assert np.array_equal(few, more[:10])
    assert not np.array_equal(few, regulated_genes(7, 10, 2, 3, 0.5).values)


@pytest.mark.parametrize("coupling", [0.0, 0.3, 1.0])
def test_regulators_separate_their_genes(coupling):
    p, n, regulators = 60, 20_000, 6
    values = regulated_genes(p, n, 5, regulators, coupling).values
    correlation = np.corrcoef(values, rowvar=False)
    np.testing.assert_allclose(values.std(axis=0), 1, atol=6 / np.sqrt(n))
    position = np.arange(regulators) * p // regulators
    among = correlation[np.ix_(position, position)][np.triu_indices(regulators, 1)]
    np.testing.assert_allclose(among, coupling, atol=6 / np.sqrt(n))
    if coupling == 1:  # all regulators are one variable
        return
    genes = np.setdiff1d(np.arange(p), position)
    own = position[np.abs(correlation[np.ix_(genes, position)]).argmax(axis=1)]  # loadings of zero aside
    loading = correlation[genes, own]
    clear = np.abs(loading) > 0.1
    genes, own, loading = genes[clear], own[clear], loading[clear]
    assert len(genes) > 40
    shared = np.where(own[:, None] == own, 1.0, coupling)
    implied = shared * np.outer(loading, loading)
    found = correlation[np.ix_(genes, genes)]
    off = ~np.eye(len(genes), dtype=bool)
    np.testing.assert_allclose(found[off], implied[off], atol=8 / np.sqrt(n))


def test_no_loading_is_weaker_than_asked_for():
    values = regulated_genes(40, 20_000, 5, 4, 0.0, weakest=0.7).values
    correlation = np.abs(np.corrcoef(values, rowvar=False))
    genes = np.setdiff1d(np.arange(40), [0, 10, 20, 30])
    loading = correlation[genes][:, [0, 10, 20, 30]].max(axis=1)
    assert 0.68 < loading.min() < 0.75
    assert loading.max() > 0.95


def removed_at_level_0(values, alpha=0.01):
    n = len(values)
    r = np.corrcoef(values, rowvar=False)[np.triu_indices(values.shape[1], 1)]
    return np.mean(np.abs(np.arctanh(r)) * np.sqrt(n - 3) <= -special.ndtri(alpha / 2))


def test_level_0_removes_a_third_as_in_the_paper():
    parameters = {**datasets.entry("tcga-like")["parameters"], "p": 1500, "regulators": 30}
    assert removed_at_level_0(regulated_genes(**parameters).values) == pytest.approx(1 / 3, abs=0.02)


def test_the_sparse_set_is_sparse():
    parameters = {**datasets.entry("regulated-p20000-n3189")["parameters"], "p": 2000}
    assert 1 - removed_at_level_0(regulated_genes(**parameters).values) == pytest.approx(1 / 70, abs=0.003)


def test_the_shapes_are_those_of_the_paper():
    parameters, tcga = datasets.entry("tcga-like")["parameters"], datasets.entry("tcga")
    assert (parameters["p"], parameters["n"]) == (tcga["variables"], tcga["samples"]) == (55_572, 3189)
