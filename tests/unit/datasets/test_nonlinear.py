"""The additive noise models of GPU-CMIknn's settings."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import datasets
from datasets.dataset import DataError
from datasets.nonlinear import FUNCTIONS, Node, additive_noise, random_nodes, sample, signal, tanh

SIZES = {"p": st.integers(1, 25), "n": st.integers(2, 40), "seed": st.integers(0, 2**63)}
SMALL = st.fixed_dictionaries({**SIZES, "density": st.none() | st.floats(0, 1)})


@settings(deadline=None)
@given(SMALL)
def test_shape_standardisation_and_triangularity(parameters):
    data = additive_noise(**parameters)
    assert data.values.shape == (parameters["n"], parameters["p"])
    assert data.values.dtype == np.float64
    assert data.family == "nonlinear"
    assert not np.tril(data.true_dag).any()
    np.testing.assert_allclose(data.values.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.values.std(axis=0, ddof=1), 1, rtol=1e-12)


def test_the_signal_is_that_of_manm_cs():
    """`ContinuousVariable.get_non_root_signal` of manm-cs 0.1.7 with the same functions, betas and parents."""
    rows = np.array([[0.5, -1.25, 2.0, 0.0, -0.3], [1.5, -0.2, 0.7, 3.0, -2.5], [0.1, -0.8, 1.7, -4.0, 25.0]])
    node = Node(np.arange(3), np.arange(3), np.array([0.75, -0.625, 0.9]))
    expected = [-0.9415488048375398, -1.5601330932410642, 2.035618163542789, -6.52439636976516, -3.2312499999999997]
    np.testing.assert_allclose(signal(node, rows), expected, rtol=1e-15)


def test_each_variable_is_its_signal_plus_standard_normal_noise():
    rng = np.random.Generator(np.random.PCG64(2))
    nodes = random_nodes(rng, 8, 0.5)
    rows = sample(rng, nodes, 5000, standardize=False).T
    for variable, node in enumerate(nodes):
        assert stats.kstest(rows[variable] - signal(node, rows), "norm").pvalue > 1e-4


def test_standardised_parents_are_what_children_see():
    nodes = [Node(*(np.array([], dtype=int),) * 2, np.array([])), Node(np.array([0]), np.array([1]), np.array([50.0]))]
    values = sample(np.random.Generator(np.random.PCG64(0)), nodes, 2000, standardize=True)
    assert np.corrcoef(values[:, 0] ** 2, values[:, 1])[0, 1] > 0.999


def test_functions_weights_and_signs():
    rng = np.random.Generator(np.random.PCG64(4))
    nodes = random_nodes(rng, 200, 0.3)
    functions = np.concatenate([node.functions for node in nodes])
    weights = np.concatenate([node.weights for node in nodes])
    expected = functions.size / 3
    assert ((np.bincount(functions, minlength=3) - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-4, 2)
    assert [function.__name__ for function in FUNCTIONS] == ["positive", "square", "tanh"]
    assert np.abs(weights).min() >= 0.5
    assert np.abs(weights).max() <= 1.0
    assert stats.kstest(np.abs(weights), "uniform", args=(0.5, 0.5)).pvalue > 1e-4
    assert (weights > 0).mean() == pytest.approx(0.5, abs=4 / np.sqrt(weights.size))
    assert weights.size == pytest.approx(0.3 * 200 * 199 / 2, rel=0.05)


@pytest.mark.parametrize("name", [name for name in datasets.names("nonlinear") if "sparse" in name])
def test_sparse_graphs_have_the_degree_of_table_10(name):
    data = datasets.load(name)
    p = data.values.shape[1]
    assert 2 * data.true_dag.sum() / p == pytest.approx(1.5, abs=5 * np.sqrt(3 / p))
    assert "density=" in data.facts["source"]


def test_without_standardisation_deep_graphs_explode():
    with pytest.raises(DataError, match=r"variable \d+ of 50 reaches .* standardise"):
        additive_noise(p=50, n=10, seed=0, density=0.5, standardize=False)


def test_tanh_is_tanh():
    x = np.concatenate([np.linspace(-25, 25, 401), np.logspace(-300, 1.5, 200), [0.0]])
    exact = np.array([float(mpmath.tanh(mpmath.mpf(float(value)))) for value in x])
    np.testing.assert_allclose(tanh(x), exact, rtol=8e-16)
    assert np.abs(tanh(x)).max() <= 1
