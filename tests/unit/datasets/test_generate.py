"""What all generators do, the random DAGs and series, and the Gaussian networks."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets
from datasets import networks
from datasets.dataset import DataError, DatasetUnavailable, fingerprint
from datasets.discrete import uniform_categories
from datasets.expression import saturating_genes
from datasets.generate import dag, random_dag_gaussian, random_dag_of_degree, random_equations
from datasets.mixed import categorized_noise
from datasets.nonlinear import additive_noise
from datasets.series import linear_series
from datasets.wide import regulated_genes

STAR = np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
GENERATORS = {
    random_dag_gaussian: {"p": 4, "m": 3, "density": 0.5, "seed": 7},
    random_dag_of_degree: {"p": 4, "n": 3, "degree": 2, "seed": 7},
    linear_series: {"p": 3, "n": 3, "tau_max": 2, "links": 1.0, "seed": 7},
    uniform_categories: {"p": 4, "n": 3, "categories": 40, "seed": 7},
    additive_noise: {"p": 4, "n": 3, "seed": 7, "density": 0.8},
    categorized_noise: {"p": 4, "n": 5, "seed": 7},
    regulated_genes: {"p": 4, "n": 3, "seed": 7, "regulators": 2, "coupling": 0.5},
    saturating_genes: {
        **{"network": STAR, "names": tuple("abcd"), "m": 3, "seed": 7},
        **{"weakest": 1.0, "strongest": 2.0, "noise": 0.5},
    },
}


@pytest.mark.parametrize("generator", GENERATORS)
def test_the_arguments_decide(generator):
    data, again = (generator(**GENERATORS[generator]) for _ in range(2))
    assert data.facts == again.facts
    assert fingerprint(data.values) == fingerprint(again.values)
    assert np.array_equal(data.true_dag, again.true_dag)
    other = generator(**GENERATORS[generator] | {"seed": 8})
    assert not np.array_equal(data.values, other.values)


PINNED = {
    random_dag_gaussian: [
        [-0.49220651855132963, 0.35688700816006075, -0.02925182246327349, -0.20970298965836592],
        [-0.6204748998199404, 0.10541424899789856, 0.6953031944582878, -1.8777568359920138],
        [0.4898420501851982, -0.9304680447082047, -1.344214547285082, -2.018993209052633],
    ],
    additive_noise: [
        [1.0468006004789991, -0.8929474765409264, 0.850099087794372, -0.08334064986473419],
        [-0.9454860464186442, 1.0804955069065203, -1.1018055233302328, -0.9557216502008266],
        [-0.10131455406035508, -0.18754803036559317, 0.2517064355358608, 1.0390623000655606],
    ],
    regulated_genes: [
        [-1.407492079170518, -0.15262569722609554, -0.23739487414692184, 0.26329057429884056],
        [-1.553158646346539, 0.9978096381188644, -0.8732469463068409, -0.8443929192502804],
        [-0.7904245750542693, 0.7470963320832703, -0.9685410218425328, -0.37299897809417765],
    ],
}


@pytest.mark.parametrize("generator", PINNED)
def test_values_are_pinned(generator):
    """A change of a generator would silently change every recorded result on its data."""
    np.testing.assert_allclose(generator(**GENERATORS[generator]).values, PINNED[generator], rtol=1e-12)


@pytest.mark.parametrize(
    ("generator", "wrong", "named"),
    [
        (random_dag_gaussian, {"p": 0}, "p must be an integer >= 1"),
        (random_dag_gaussian, {"seed": -1}, "seed must be an integer >= 0"),
        (random_dag_gaussian, {"density": 1.5}, r"density must be a number in \[0, 1\], not 1.5"),
        (uniform_categories, {"n": 0.5}, "n must be an integer >= 1"),
        (uniform_categories, {"categories": 65_537}, "categories must be at most 65536"),
        (additive_noise, {"degree": 1}, "density and degree are given"),
        (additive_noise, {"density": None, "degree": 4}, r"degree must be a number in \[0, 3\]"),
        (categorized_noise, {"n": 3}, "n must be an integer >= 4"),
        (categorized_noise, {"share": 1.5}, "share must be a number"),
        (regulated_genes, {"regulators": 6}, "regulators must be at most p = 4, not 6"),
        (regulated_genes, {"weakest": -0.01}, r"weakest must be a number in \[0, 1\]"),
        (saturating_genes, {"noise": -1.0}, r"noise must be a number in \[0, 1e\+06\], not -1"),
        (saturating_genes, {"weakest": 3.0}, r"weakest must be at most strongest = 2\.0, not 3"),
    ],
)
def test_wrong_arguments_are_named(generator, wrong, named):
    with pytest.raises(ValueError, match=named):
        generator(**GENERATORS[generator] | wrong)


SMALL = st.fixed_dictionaries(
    {"p": st.integers(1, 25), "m": st.integers(1, 40), "density": st.floats(0, 1), "seed": st.integers(0, 2**63)}
)


def implied_correlation(equations):
    """The correlation matrix of a linear Gaussian model, from its equations alone."""
    p = len(equations)
    weights, variance = np.zeros((p, p)), np.zeros(p)
    for equation in equations:
        weights[equation.variable, equation.parents] = equation.weights
        variance[equation.variable] = equation.sd**2
    total = np.linalg.inv(np.eye(p) - weights)
    covariance = total @ np.diag(variance) @ total.T
    sd = np.sqrt(np.diag(covariance))
    return covariance / np.outer(sd, sd)


@settings(deadline=None)
@given(SMALL)
def test_shape_and_triangularity(parameters):
    data = random_dag_gaussian(**parameters)
    p, m = parameters["p"], parameters["m"]
    assert data.values.shape == (m, p)
    assert data.values.dtype == np.float64
    assert data.values.flags.c_contiguous
    assert np.isfinite(data.values).all()
    assert data.names == tuple(f"V{i}" for i in range(p))
    assert data.true_dag.dtype == bool
    assert data.true_dag.shape == (p, p)
    assert not np.tril(data.true_dag).any()  # i -> j only for i < j: the paper's A[j, i] is strictly lower triangular


@settings(max_examples=20, deadline=None)
@given(p=st.integers(2, 8), density=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_sample_correlation_is_the_models(p, density, seed):
    m = 20_000
    equations = random_equations(np.random.Generator(np.random.PCG64(seed)), p, density)
    data = random_dag_gaussian(p, m, density, seed)
    assert np.array_equal(dag(equations), data.true_dag)
    assert np.corrcoef(data.values, rowvar=False) == pytest.approx(implied_correlation(equations), abs=6 / np.sqrt(m))


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_density_and_weights(density):
    p = 300
    equations = random_equations(np.random.Generator(np.random.PCG64(5)), p, density)
    pairs = p * (p - 1) / 2
    weights = np.concatenate([equation.weights for equation in equations])
    assert weights.size / pairs == pytest.approx(density, abs=5 * np.sqrt(density * (1 - density) / pairs))
    if density:
        assert 0.1 <= weights.min() < 0.15
        assert 0.95 < weights.max() <= 1.0
        assert weights.mean() == pytest.approx(0.55, abs=0.02)


def test_values_that_would_overflow_are_an_error():
    with pytest.raises(DataError, match=r"variable \d+ of 2000 reaches .* lower density"):
        random_dag_gaussian(p=2000, m=4, density=0.5, seed=0)


@pytest.mark.parametrize(
    ("name", "p", "arcs"), [("ecoli70", 46, 70), ("arth150", 107, 150), ("magic-niab", 44, 66), ("magic-irri", 64, 102)]
)
def test_networks(name, p, arcs):
    data = datasets.load(name)
    assert data.values.shape == (1000, p)
    assert data.family == "gaussian"
    assert data.true_dag.sum() == arcs
    assert np.linalg.matrix_power(data.true_dag.astype(float), p).sum() == 0  # no path as long as p: acyclic
    assert fingerprint(data.values) == fingerprint(datasets.load(name).values)
    assert "pgmpy" in data.facts["source"]
    assert data.facts["citation"]


@pytest.mark.parametrize("name", ["ecoli70", "arth150", "magic-niab", "magic-irri"])
def test_network_samples_follow_the_network(name):
    names, equations = networks.read_network(json.loads(networks.network_path("gaussian", name).read_bytes()), name)
    m = 40_000
    data = datasets.load("big", spec={"kind": "network", "family": "gaussian", "network": name, "samples": m})
    assert data.names == names
    assert data.name == "big"
    assert np.corrcoef(data.values, rowvar=False) == pytest.approx(implied_correlation(equations), abs=6 / np.sqrt(m))


def model(**changes):
    return {
        "nodes": ["a", "b"],
        "arcs": [["b", "a"]],
        "cpds": {
            "a": {"coefficients": {"(Intercept)": [1.0], "b": [2.0]}, "variance": [4.0], "parents": ["b"]},
            "b": {"coefficients": {"(Intercept)": [0.0]}, "variance": [1.0], "parents": []},
        },
        **changes,
    }


def test_read_network():
    names, (first, second) = networks.read_network(model(), "toy")
    assert names == ("a", "b")
    assert (first.variable, second.variable) == (1, 0)
    assert (second.parents.tolist(), second.weights.tolist(), second.intercept, second.sd) == ([1], [2.0], 1.0, 2.0)


@pytest.mark.parametrize(("arcs", "said"), [([], "the arcs into 'a'"), ([["b", "a"], ["a", "b"]], "not acyclic")])
def test_inconsistent_networks_are_errors(arcs, said):
    with pytest.raises(DataError, match=said):
        networks.read_network(model(arcs=arcs), "toy")


@pytest.mark.parametrize(("family", "name"), [("gaussian", "ecoli70"), ("discrete", "asia")])
def test_a_network_of_another_version_is_an_error(family, name):
    with pytest.raises(DataError, match=r"expected sha256 0000.*, found \w{64}"):
        networks.network_dataset(family, name, 10, 0, sha256="0" * 64)


def test_without_pgmpy_networks_are_unavailable(monkeypatch):
    def absent(name):
        raise networks.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(networks.importlib.metadata, "distribution", absent)
    for name in ("ecoli70", "alarm-5000"):
        with pytest.raises(DatasetUnavailable, match="pgmpy, which is not installed"):
            datasets.load(name)


def test_hidden_variables_are_causes_of_several_and_the_graph_is_that_of_the_columns():
    data = random_dag_of_degree(30, 200_000, 2, 5, hidden=6)
    edges = np.array(data.facts["edges_with_hidden"])
    assert data.values.shape == (200_000, 30)
    assert data.true_dag is None
    assert set(edges.ravel().tolist()) <= set(range(36))
    assert all((edges[:, 0] == hidden).sum() >= 2 for hidden in range(30, 36))
    ends = np.setdiff1d(np.arange(30), edges[:, 1])  # A variable without parents is noise alone.
    np.testing.assert_allclose(data.values[:, ends].std(axis=0), 1, atol=0.01)
    both = np.argwhere(random_dag_of_degree(400, 10, 3, 0).true_dag)
    assert 450 < len(both) < 750


def test_a_linear_series_is_stationary_and_has_the_links_of_its_seed():
    values = linear_series(40, 4000, 3, 1.5, 0).values
    assert values.shape == (4000, 40)
    halves = values[:2000].std(axis=0), values[2000:].std(axis=0)
    np.testing.assert_allclose(*halves, rtol=0.2)
    assert np.array_equal(values, linear_series(40, 4000, 3, 1.5, 0).values)
    alone = linear_series(20, 20_000, 1, 0, 1).values
    memory = [np.corrcoef(column[1:], column[:-1])[0, 1] for column in alone.T]
    assert 0.15 < min(memory) < max(memory) < 0.65
    assert np.abs(np.corrcoef(alone.T) - np.eye(20)).max() < 0.05
