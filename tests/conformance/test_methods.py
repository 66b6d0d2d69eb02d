"""What every Gaussian method must do, references included; a new method is tested here without being named."""

import dataclasses
import functools

import numpy as np
import pandas
import pytest

from gpupc_impl import GaussianProblem, InvalidParameter, Skeleton, methods, skeleton
from tests.graphs import assert_well_formed, edges_to_adjacency, linear_samples

PAPER_METHODS = {"baseline-1", "baseline-2", "cupc-e", "cupc-s"}
REFERENCES = {"causal-learn", "stable-parallel", "stable-serial"}


sample = functools.partial(linear_samples, least=0.1)


def equicorrelated(p: int, n_samples: int, alpha: float, **options) -> GaussianProblem:
    """Every partial correlation is far from zero, so that no edge goes when alpha is large."""
    correlation = np.full((p, p), 0.5) + 0.5 * np.eye(p)
    return GaussianProblem.from_correlation(correlation, n_samples=n_samples, alpha=alpha, **options)


def reference(data, **options) -> Skeleton:
    return skeleton(data, method="stable-serial", **options)


def test_all_methods_are_tested(usable_settings):
    assert set(methods("gaussian")) >= PAPER_METHODS | REFERENCES
    tested = {method.name for method, _ in usable_settings.values()}
    assert tested >= {"stable-serial", "stable-parallel"}
    assert tested >= PAPER_METHODS, "no backend runs the papers' methods here: is there a C++ compiler?"


def test_recovers_a_known_graph(setting, find):
    """A diamond with a tail, 0 -> {1, 2} -> 3 -> 4, from its exact correlations; needs levels 0 to 2."""
    weights = np.zeros((5, 5))
    for cause, effect, weight in ((0, 1, 0.7), (0, 2, 0.8), (1, 3, 0.6), (2, 3, 0.5), (3, 4, 0.9)):
        weights[effect, cause] = weight
    mixing = np.linalg.inv(np.eye(5) - weights)
    covariance = mixing @ mixing.T
    scale = np.sqrt(np.diagonal(covariance))
    found = find(covariance / np.outer(scale, scale), n_samples=1_000_000)
    assert found.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]]
    assert found.edges_per_level[0] == 10
    assert found.levels_run == 3
    if setting[0].canonical:
        expected = {(0, 3): (1, 2), (0, 4): (3,), (1, 2): (0,), (1, 4): (3,), (2, 4): (3,)}
        assert dict(found.sepsets) == expected


def test_one_variable(find):
    found = find(sample(1, 20))
    assert_well_formed(found, 1)
    assert found.levels_run == 0
    assert len(found.sepsets) == 0


@pytest.mark.parametrize("related", [True, False])
def test_two_variables(find, related):
    x = np.random.default_rng(1).standard_normal((50, 2))
    if related:
        x[:, 1] += x[:, 0]
    found = find(x)
    assert_well_formed(found, 2)
    assert found.n_edges == related
    assert found.levels_run == 1
    assert dict(found.sepsets) == ({} if related else {(0, 1): ()})


def test_constant_column_ends_isolated(find):
    x = sample(12, 80, seed=2)
    x[:, 4] = 3.25
    with pytest.warns(UserWarning, match="V4"):
        found = find(x)
    assert_well_formed(found, 12)
    assert not found.adjacency[4].any()
    others = np.delete(np.arange(12), 4)
    assert np.array_equal(found.adjacency[np.ix_(others, others)], find(x[:, others]).adjacency)


@pytest.mark.parametrize("df_convention", ["pcalg", "cupc"])
def test_fewer_samples_than_variables(find, df_convention):
    x = sample(25, 12, seed=3)
    found = find(x, df_convention=df_convention)
    assert_well_formed(found, 25)
    assert np.array_equal(found.adjacency, reference(x, df_convention=df_convention).adjacency)


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_reference(setting, find, seed):
    x = sample(20, 150, density=0.4, seed=seed)
    found, expected = find(x), reference(x)
    assert_well_formed(found, 20)
    assert np.array_equal(found.adjacency, expected.adjacency)
    assert found.edges_per_level == expected.edges_per_level
    if setting[0].canonical:
        assert found == expected
        if setting[0].name in PAPER_METHODS:  # the others may share a test between the two ends of an edge
            assert found.tests_per_level >= expected.tests_per_level


def test_duplicated_columns(canonical_setting, find):
    """Exact and near duplicates: undefined tests and near-singular conditioning matrices."""
    x = sample(14, 60, density=0.5, seed=4)
    rng = np.random.default_rng(4)
    x[:, 5], x[:, 9] = x[:, 2], x[:, 2]
    x[:, 11] = x[:, 7] + 1e-8 * rng.standard_normal(60)
    found, expected = find(x, alpha=0.3), reference(x, alpha=0.3)
    assert_well_formed(found, 14)
    assert found == expected
    assert found.undefined_tests > 0
    assert found.pseudo_inverses > 0


def test_column_order_does_not_matter(find):
    x = sample(18, 100, density=0.4, seed=5)
    order = np.random.default_rng(5).permutation(18)
    assert np.array_equal(find(x[:, order]).adjacency, find(x).adjacency[np.ix_(order, order)])


def test_second_run_is_the_same(find):
    x = sample(18, 100, density=0.5, seed=6)
    first, second = find(x, alpha=0.2), find(x, alpha=0.2)
    assert first == second
    assert first.edges_per_level == second.edges_per_level


@pytest.mark.parametrize("max_level", [0, 1, 2])
def test_max_level_is_respected(find, max_level):
    found = find(equicorrelated(6, 100, 0.9, max_level=max_level))
    assert_well_formed(found, 6)
    assert found.levels_run == max_level + 1
    assert "max_level" in found.stopped_because


@pytest.mark.parametrize(("df_convention", "levels"), [("pcalg", 2), ("cupc", 1)])
def test_stops_without_degrees_of_freedom(find, df_convention, levels):
    found = find(equicorrelated(6, 5, 0.9, df_convention=df_convention))
    assert_well_formed(found, 6)
    assert found.levels_run == levels
    assert "degrees of freedom" in found.stopped_because


EXTREMES = {
    "too few samples for any test": (equicorrelated(4, 3, 0.05), {}, 4, 0, 6),
    "a tiny alpha": (np.random.default_rng(7).standard_normal((40, 10)), {"alpha": 1e-12}, 10, 1, 0),
    "a huge alpha": (equicorrelated(7, 50, 1 - 1e-12), {}, 7, 6, 21),
}


@pytest.mark.parametrize(("data", "options", "p", "levels", "edges"), EXTREMES.values(), ids=EXTREMES)
def test_everything_is_kept_or_removed(find, data, options, p, levels, edges):
    found = find(data, **options)
    assert_well_formed(found, p)
    assert found.levels_run == levels
    assert found.n_edges == edges


def test_deep_levels(canonical_setting, find):
    """Eleven mutual neighbours: every set of up to nine variables is tested from both ends."""
    found = find(equicorrelated(11, 200, 0.9))
    assert_well_formed(found, 11)
    assert found.levels_run == 10
    assert found == reference(equicorrelated(11, 200, 0.9))


def test_cupc_convention_has_one_degree_of_freedom_less(find):
    x = sample(15, 30, density=0.4, seed=8)
    problem = GaussianProblem.from_data(x)
    published = find(dataclasses.replace(problem, df_convention="cupc"))
    assert published == find(dataclasses.replace(problem, n_samples=29))


def test_first_come_sets_leave_the_same_graph(canonical_setting, find):
    x = sample(20, 120, density=0.4, seed=9)
    found = find(x, separating_sets="first-come")
    assert_well_formed(found, 20)
    assert np.array_equal(found.adjacency, reference(x).adjacency)


def test_pmax(setting, find):
    """Undefined on the diagonal, below alpha on edges, at least alpha elsewhere, and the same from every method."""
    x = sample(15, 100, density=0.4, seed=10)
    found = find(x, alpha=0.1, pmax=True)
    assert find(x, alpha=0.1).pmax is None
    assert found.pmax.dtype == np.float64
    assert np.isnan(found.pmax.diagonal()).all()
    off_diagonal = ~np.eye(15, dtype=bool)
    assert np.array_equal(found.pmax[off_diagonal] < 0.1, found.adjacency[off_diagonal])
    expected = reference(x, alpha=0.1, pmax=True).pmax
    np.testing.assert_allclose(found.pmax, expected, rtol=1e-6, atol=1e-13)


def test_progress_is_reported(find):
    seen = []
    found = find(sample(10, 60, seed=11), progress=seen.append)
    assert [step.level for step in seen] == list(range(found.levels_run))
    assert tuple(step.edges for step in seen) == found.edges_per_level
    assert tuple(step.tests for step in seen) == found.tests_per_level


def test_names_survive(find):
    names = ["height", "weight", "shoe size", "Ω"]
    x = sample(4, 60, density=0.9, seed=12)
    found = find(pandas.DataFrame(x, columns=names))
    assert found.names == tuple(names)
    assert set(found.to_networkx().nodes) == set(names)
    assert len(found.to_frame()) == found.n_edges


def test_unknown_parameter_is_rejected(setting, find):
    with pytest.raises(InvalidParameter, match=rf"{setting[0].name}.*no_such_parameter"):
        find(sample(4, 30), no_such_parameter=1)


def test_parameters_out_of_range_are_rejected(setting, find):
    for name, parameter in setting[0].params.items():
        if parameter.minimum is not None:
            with pytest.raises(InvalidParameter, match=name):
                find(sample(4, 30), **{name: parameter.minimum - 1})


def test_facts_say_how_it_was_found(setting, find):
    method, backend = setting
    found = find(sample(4, 30))
    assert found.facts["method"] == method.name
    assert found.facts["backend"] == backend
    assert set(found.facts["params"]) == set(method.params)


def test_saved_and_loaded(find, tmp_path):
    found = find(sample(15, 80, density=0.4, seed=13), pmax=True)
    found.save(tmp_path / "skeleton.npz")
    loaded = Skeleton.load(tmp_path / "skeleton.npz")
    assert loaded == found
    assert loaded.sha256 == found.sha256
    np.testing.assert_array_equal(loaded.pmax, found.pmax)
    assert loaded.problem is loaded.reading is None  # files do not hold the data
    for field in dataclasses.fields(Skeleton):
        if field.name not in ("adjacency", "sepsets", "pmax", "problem", "reading", "facts"):
            assert getattr(loaded, field.name) == getattr(found, field.name), field.name
    told = found.facts["problem"]
    if found.problem is not None:
        told = {"fingerprint": found.problem.fingerprint} | told  # a file says whose answer it holds
    assert loaded.facts == {**found.facts, "problem": told}


def test_adjacency_from_edges(find):
    found = find(sample(10, 60, seed=14))
    assert np.array_equal(edges_to_adjacency(found.edges, 10), found.adjacency)
