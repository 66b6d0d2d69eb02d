"""What every discrete method must do, references included; a new method is tested here without being named.

The last tests are those of the statements and the table in docs/discrete.md.
"""

import dataclasses

import numpy as np
import pandas
import pytest
from scipy import stats

from gpupc_impl import InvalidParameter, methods, skeleton
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Method
from gpupc_impl.core.solve import unavailable
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.conformance.test_discrete_agreement import make_problem, reference
from tests.graphs import assert_well_formed

pytestmark = pytest.mark.xdist_group("discrete")  # so that only one process compiles the references

PAPER_METHODS = {"gpupc", "disc-cupc"}
REFERENCES = {"causal-learn-discrete", "discrete-parallel", "discrete-serial"}
COMPILED = ("discrete-parallel", "discrete-serial")
"""The references that Numba compiles, which for codes of 16 bits takes 20 s."""


@pytest.fixture
def canonical(discrete) -> tuple[Method, str]:
    """A setting whose separating sets and counts are those that the contract defines."""
    if not discrete[0].canonical:
        pytest.skip(f"{discrete[0].name} has separating sets and a rule for degrees of freedom of its own")
    return discrete


@pytest.fixture
def find(discrete):
    method, backend = discrete
    return lambda problem, **options: skeleton(problem, method=method.name, backend=backend, **options)


def chain(p: int, n: int, categories: int = 3, noise: float = 0.4, seed: int = 0) -> np.ndarray:
    """(n, p) codes of a Markov chain: with probability ``noise`` a variable forgets the one before it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(categories, size=(n, p))
    for v in range(1, p):
        codes[:, v] = np.where(rng.random(n) < noise, codes[:, v], codes[:, v - 1])
    return codes


def problem_of(codes, **options) -> DiscreteProblem:
    return make_problem(codes, **{"df_rule": "adjusted", **options})


def test_all_methods_are_tested():
    assert set(methods("discrete")) >= PAPER_METHODS | REFERENCES
    usable = {
        name
        for name, method in methods("discrete").items()
        if any(unavailable(method, backend) is None for backend in method.backends)
    }
    assert usable >= PAPER_METHODS, "no backend runs the paper's methods here: is there a C++ compiler?"


def test_recovers_a_chain(discrete, find):
    found = find(problem_of(chain(5, 20_000), alpha=0.001))
    assert_well_formed(found, 5)
    assert found.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    if discrete[0].canonical:
        assert found.sepsets[0, 2] == (1,)
        assert found.sepsets[0, 4] == (1,)


def test_one_variable(find):
    found = find(problem_of(chain(1, 20)))
    assert_well_formed(found, 1)
    assert found.levels_run == 0


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_two_variables(find, noise):
    found = find(problem_of(chain(2, 200, noise=noise), alpha=0.001))
    assert_well_formed(found, 2)
    assert found.n_edges == (noise < 1)
    assert found.levels_run == 1


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 129])
def test_few_samples(discrete, find, n):
    problem = problem_of(chain(5, n, categories=4), alpha=0.5)
    found = find(problem)
    assert_well_formed(found, 5)
    assert np.array_equal(found.adjacency, reference(problem).adjacency)


@pytest.mark.parametrize("test", ["chi-square", "g-square"])
@pytest.mark.parametrize("df_rule", ["full", "adjusted"])
@pytest.mark.parametrize(("categories", "max_level"), [(2, 4), (5, 3), (12, 2), (40, 1)])
def test_equals_the_reference(canonical, find, test, df_rule, categories, max_level):
    """Small tables, and tables larger than the data."""
    codes = chain(8, 700, categories, noise=0.5)
    problem = problem_of(codes, alpha=0.2, test=test, df_rule=df_rule, max_level=max_level)
    found, expected = find(problem), reference(problem)
    assert_well_formed(found, 8)
    assert found == expected
    assert found.edges_per_level == expected.edges_per_level
    assert all(a >= b for a, b in zip(found.tests_per_level, expected.tests_per_level, strict=True))


def of_300_categories() -> DiscreteProblem:
    """Codes of 16 bits; a table of 300 x 300 cells, most of which are empty."""
    problem = problem_of(np.column_stack([chain(2, 3000, 300), chain(2, 3000)]), alpha=0.9, max_level=1)
    assert problem.codes.dtype == np.uint16
    return problem


def test_more_than_256_categories(discrete, find):
    if discrete[0].name in COMPILED:
        pytest.skip("test_references_take_more_than_256_categories is a slow test")
    if reason := unavailable(methods()["causal-learn-discrete"]):
        pytest.skip(reason)
    problem = of_300_categories()
    assert np.array_equal(find(problem).adjacency, skeleton(problem, method="causal-learn-discrete").adjacency)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_references_take_more_than_256_categories(name):
    expected = skeleton(of_300_categories(), method="causal-learn-discrete")
    assert np.array_equal(skeleton(of_300_categories(), method=name).adjacency, expected.adjacency)


def test_column_order_does_not_matter(find):
    codes, order = chain(9, 500, 4), np.random.default_rng(0).permutation(9)
    found = find(problem_of(codes[:, order])).adjacency
    assert np.array_equal(found, find(problem_of(codes)).adjacency[np.ix_(order, order)])


def test_names_of_categories_do_not_matter(find):
    codes = chain(6, 400, 4)
    labels = np.array(["red", "blue", "green", "Ω"])
    found = find(problem_of(pandas.DataFrame(labels[codes], columns=list("abcdef"))))
    assert np.array_equal(found.adjacency, find(problem_of(codes)).adjacency)
    assert found.names == tuple("abcdef")


@pytest.mark.parametrize("max_level", [0, 1, 2])
def test_max_level_is_respected(find, max_level):
    codes = np.repeat(chain(1, 500, 4), 6, axis=1)
    codes[::7] = np.random.default_rng(0).integers(4, size=codes[::7].shape)  # alike, but none determines another
    found = find(problem_of(codes, max_level=max_level, alpha=0.5))
    assert found.levels_run == max_level + 1
    assert "max_level" in found.stopped_because


def test_stops_before_tables_that_no_index_numbers(canonical, find):
    """The declared numbers of categories count: with 16 variables of 20, a table of level 13 has too many cells."""
    codes = np.random.default_rng(0).integers(2, size=(40, 16))
    problem = problem_of(codes, categories={f"V{v}": 20 for v in range(16)}, max_level=2)
    assert problem.obstacle(12) is None
    assert "2^62" in problem.obstacle(13)
    assert np.array_equal(find(problem).adjacency, reference(problem).adjacency)
    assert "set max_level to 12 or merge categories" in problem.obstacle(13)


def test_first_come_sets_leave_the_same_graph(canonical, find):
    problem = problem_of(chain(9, 500, 4), alpha=0.2)
    found = find(problem, separating_sets="first-come")
    assert_well_formed(found, 9)
    assert np.array_equal(found.adjacency, reference(problem).adjacency)


@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_pmax(find, test):
    """Undefined on the diagonal, below alpha on edges, at least alpha elsewhere, and the same from every method."""
    problem = problem_of(chain(8, 300, 4), alpha=0.1, test=test)
    found = find(problem, pmax=True)
    assert find(problem).pmax is None
    assert np.isnan(found.pmax.diagonal()).all()
    off_diagonal = ~np.eye(8, dtype=bool)
    assert np.array_equal(found.pmax[off_diagonal] < 0.1, found.adjacency[off_diagonal])
    np.testing.assert_allclose(found.pmax, reference(problem, pmax=True).pmax, rtol=1e-9, atol=1e-300)


def test_parameters_out_of_range_are_rejected(discrete, find):
    method, _ = discrete
    with pytest.raises(InvalidParameter, match=rf"{method.name}.*no_such_parameter"):
        find(problem_of(chain(3, 30)), no_such_parameter=1)
    for name, parameter in method.params.items():
        wrong = "no such choice" if parameter.choices else parameter.minimum - 1
        with pytest.raises(InvalidParameter, match=name):
            find(problem_of(chain(3, 30)), **{name: wrong})


def test_facts_say_how_it_was_found(discrete, find):
    method, backend = discrete
    problem = problem_of(chain(4, 50), test="g-square", df_rule="full", categories={"V0": 7})
    found = find(problem).facts
    assert (found["method"], found["backend"]) == (method.name, backend)
    assert set(found["params"]) == set(method.params)
    told = found["problem"]
    assert told["test"] == "g-square"
    assert (told["max_categories"], told["categories_declared"], told["categories_observed"]) == (7, 1, 3)
    solved = problem if method.canonical else dataclasses.replace(problem, df_rule="adjusted")
    assert told["df_rule"] == solved.df_rule
    assert told.get("fingerprint", solved.fingerprint) == solved.fingerprint


def test_constant_variable_ends_isolated(find):
    """It leaves no degrees of freedom: statistic 0, p = 1. Declared categories change that, not its independence."""
    codes = chain(6, 300)
    codes[:, 3] = 1
    for categories in ({}, {"V3": 4}):
        for df_rule in ("full", "adjusted"):
            with pytest.warns(UserWarning, match="V3"):
                problem = DiscreteProblem.from_data(codes, categories=categories, df_rule=df_rule)
            found = find(problem, pmax=True)
            assert not found.adjacency[3].any()
            assert (np.delete(found.pmax[3], 3) == 1).all()


def test_constant_member_of_a_set_changes_nothing(canonical, find):
    """One declared state multiplies the strata by one. Of more, only the full rule takes notice."""
    codes = np.column_stack([chain(4, 400, 4), np.zeros(400, int)])
    without = find(problem_of(codes[:, :4], alpha=0.3))
    assert np.array_equal(find(problem_of(codes, alpha=0.3)).adjacency[:4, :4], without.adjacency)
    full = problem_of(codes, df_rule="full", categories={"V4": 5})
    assert full.degrees_of_freedom(0, 1, (4,)) == 5 * full.degrees_of_freedom(0, 1)


def test_categories_that_never_occur_count_by_the_full_rule_only(find, discrete):
    """A third category that never occurs makes 2 degrees of freedom of 1; alpha lies between the two p-values."""
    codes = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [30, 20, 20, 30], axis=0)
    statistic = stats.chi2_contingency([[30, 20], [20, 30]], correction=False).statistic
    assert stats.chi2.sf(statistic, 1) < 0.1 < stats.chi2.sf(statistic, 2)
    declared = {"alpha": 0.1, "categories": {"V0": 3}}
    assert find(problem_of(codes, alpha=0.1, df_rule="full")).n_edges == 1
    assert find(problem_of(codes, df_rule="adjusted", **declared)).n_edges == 1
    adjusts_anyway = not discrete[0].canonical
    assert find(problem_of(codes, df_rule="full", **declared)).n_edges == adjusts_anyway


def test_strata_that_never_occur_count_by_the_full_rule_only(find, discrete):
    """V2 = V0 + V1 leaves V0 and V1 dependent in one stratum of three that occur, of five declared."""
    rng = np.random.default_rng(3)
    codes = rng.integers(2, size=(60, 2))
    codes = np.column_stack([codes, codes.sum(axis=1)])
    problem = problem_of(codes, df_rule="full", categories={"V2": 5})
    assert problem.degrees_of_freedom(0, 1, (2,)) == 5
    middle = int((codes[:, 2] == 1).sum())  # of these, half the cells hold all samples: the statistic is their number
    pmax = find(dataclasses.replace(problem, alpha=1 - 1e-12), pmax=True).pmax  # no edge goes before level 1
    df = 5 if discrete[0].canonical else 1
    pairwise = stats.chi2_contingency(pandas.crosstab(codes[:, 0], codes[:, 1]), correction=False).pvalue
    assert pmax[0, 1] == pytest.approx(max(pairwise, stats.chi2.sf(middle, df)), rel=1e-9)


def test_expected_counts_of_zero_count_zero(find):
    """Rows and columns that are empty have no terms, in either statistic: scipy's without them is the same."""
    rng = np.random.default_rng(4)
    codes = rng.integers(4, size=(80, 2)) * 2  # odd codes never occur
    for test, power in (("chi-square", 1), ("g-square", 0)):
        problem = problem_of(codes, test=test, categories={"V0": 8, "V1": 9})
        table = pandas.crosstab(codes[:, 0], codes[:, 1])
        expected = stats.chi2_contingency(table, correction=False, lambda_=float(power))
        assert find(problem, pmax=True).pmax[0, 1] == pytest.approx(expected.pvalue, rel=1e-10)


def test_causal_learn_says_which_rule_it_solved():
    if reason := unavailable(methods()["causal-learn-discrete"]):
        pytest.skip(reason)
    problem = problem_of(chain(6, 300, 5), df_rule="full", alpha=0.2)
    adjusted = dataclasses.replace(problem, df_rule="adjusted")
    found = skeleton(problem, method="causal-learn-discrete")
    assert found.facts["problem"] == adjusted.facts()
    assert found == reference(adjusted)
    with pytest.raises(InvalidProblem, match="tests_per_edge"):
        skeleton(dataclasses.replace(problem, tests_per_edge=3, decay=0.5), method="causal-learn-discrete")
