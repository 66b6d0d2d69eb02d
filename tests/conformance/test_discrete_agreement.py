"""One answer: on random coded data every discrete method, with any launch parameters, finds what discrete-serial finds.

And that answer is right: statistics are scipy's, the search is the textbook's, and causal-learn finds the same.
"""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from gpupc_impl import Skeleton, methods, skeleton
from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.solve import unavailable
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.conformance.affordable import affordable
from tests.conformance.drawn import launch_parameters, usable
from tests.graphs import plain_pc_stable

TESTS, DF_RULES = ("chi-square", "g-square"), ("full", "adjusted")

pytestmark = pytest.mark.xdist_group("discrete")  # else two processes compile the twins at once

STRUCTURES = ("sparse", "dense", "chain", "independent")
MOST_SETS = 20_000
"""Tests that the deepest level of a drawn problem could need if no edge were removed."""
MOST_SAMPLES_READ = 20_000_000
"""Upper bound on the tests of a level, times the samples."""
DISC_CUPC_CELLS = 2000
"""Cells of tables that disc-cupc has memory for, whatever its launch parameters."""
CERTIFIED = 4
"""Removed edges of a problem whose sets are tested again with scipy."""

USABLE = usable("discrete", lambda method: method.canonical)


def draw_codes(rng: np.random.Generator, structure: str, categories: np.ndarray, n: int, skew: float) -> np.ndarray:
    """(n, p) codes: a variable is the weighted sum of its parents and skewed noise, modulo its categories."""
    p = len(categories)
    lower = np.tril(np.ones((p, p)), -1)
    parents = {
        "sparse": rng.random((p, p)) < 1.5 / p,
        "dense": rng.random((p, p)) < 0.5,
        "chain": np.eye(p, k=-1),
        "independent": np.zeros((p, p)),
    }[structure] * lower
    codes = np.zeros((n, p), np.int64)
    for v in range(p):
        noise = np.floor(categories[v] * rng.random(n) ** skew).astype(np.int64)
        codes[:, v] = (codes @ (parents[v] * rng.integers(1, 4, p)).astype(np.int64) + noise) % categories[v]
    return codes[:, rng.permutation(p)]


def make_problem(codes: np.ndarray, categories: dict[str, int] | None = None, **options) -> DiscreteProblem:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant variables are meant
        return DiscreteProblem.from_data(codes, categories=categories, **options)


@st.composite
def problems(draw, most_variables=12, most_samples=5000, most_categories=30, deepest=None) -> DiscreteProblem:
    """Few or many categories, empty strata, constant columns, and categories that never occur."""
    p = draw(st.integers(2, most_variables))
    n = int(10 ** draw(st.floats(1, math.log10(most_samples))))
    most = draw(st.sampled_from([k for k in (2, 3, 5, 9, 17, 30) if k <= most_categories]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    structure, skew = draw(st.sampled_from(STRUCTURES)), draw(st.sampled_from([1, 3, 8]))
    codes = draw_codes(rng, structure, rng.integers(1, most + 1, p), n, skew)
    for _ in range(draw(st.integers(0, 2))):
        constant, original, copy = rng.integers(p, size=3)
        codes[:, constant] = codes[0, constant]
        codes[:, copy] = codes[:, original]
    declared = None
    if draw(st.booleans()):
        declared = {f"V{v}": int(codes[:, v].max()) + 1 + int(rng.integers(3)) for v in range(p)}
    if deepest is None:
        deepest = max(level for level in range(p - 1) if p * (p - 1) * math.comb(p - 2, level) <= MOST_SETS)
    return make_problem(
        codes,
        declared,
        alpha=draw(st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.5, 0.9])),
        test=draw(st.sampled_from(TESTS)),
        df_rule=draw(st.sampled_from(DF_RULES)),
        max_level=deepest,
    )


def reference(problem: DiscreteProblem, **options) -> Skeleton:
    return skeleton(problem, method="discrete-serial", **options)


def largest_table(problem: DiscreteProblem, levels: int) -> int:
    """Cells of the largest table that a search of so many levels may make."""
    return math.prod(np.sort(problem.categories)[::-1][: levels + 1].tolist())


def plain_test(problem: DiscreteProblem, i: int, j: int, members: tuple[int, ...]) -> tuple[float, int]:
    """Statistic and degrees of freedom, stratum by stratum, with scipy."""
    codes = problem.codes.astype(np.int64)
    strata = np.unique(codes[list(members)], axis=1, return_inverse=True)[1] if members else np.zeros(problem.n_samples)
    statistic, df = 0.0, 0
    for stratum in np.unique(strata):
        inside = strata == stratum
        table = stats.contingency.crosstab(codes[i][inside], codes[j][inside]).count
        if min(table.shape) > 1:
            found = stats.chi2_contingency(table, correction=False, lambda_=float(problem.test == "chi-square"))
            statistic += found.statistic
            df += found.dof
    if problem.df_rule == "full":
        r_i, r_j, *others = (int(problem.categories[v]) for v in (i, j, *members))
        df = (r_i - 1) * (r_j - 1) * math.prod(others)
    return statistic, df


def plain_p(problem: DiscreteProblem, i: int, j: int, members: tuple[int, ...]) -> float:
    statistic, df = plain_test(problem, i, j, members)
    return float(stats.chi2.sf(statistic, df)) if df else 1.0


def by_the_rule(problem: DiscreteProblem, i: int, j: int, members: tuple[int, ...]) -> float:
    """The statistic in plain Python floats, added up as docs/discrete.md says: its bits are part of the contract."""
    codes = problem.codes.astype(object)  # Python's integers
    stratum, stride = codes[i] * 0, 1
    for s in members:
        stratum += codes[s] * stride
        stride *= int(problem.categories[s])
    total, chunks = 0.0, {}
    for number in sorted(set(stratum)):
        inside = stratum == number
        table = np.zeros((problem.categories[i], problem.categories[j]), np.int64)
        np.add.at(table, (problem.codes[i][inside], problem.codes[j][inside]), 1)
        rows, columns, n = table.sum(1).tolist(), table.sum(0).tolist(), int(inside.sum())
        part = 0.0
        for (a, b), count in np.ndenumerate(table):
            if rows[a] and columns[b]:
                part += term(problem.test, int(count), rows[a], columns[b], n)
        chunks[number // 64] = chunks.get(number // 64, 0.0) + part
    for number in sorted(chunks):
        total += chunks[number]
    return 2.0 * total if problem.test == "g-square" else total


def term(test: str, count: int, row: int, column: int, n: int) -> float:
    if test == "chi-square":
        expected = (float(row) * float(column)) / float(n)
        return (float(count) - expected) * (float(count) - expected) / expected
    log = [float(np.log(float(k))) if k else 0.0 for k in (count, n, row, column)]
    return float(count) * ((log[0] + log[1]) - (log[2] + log[3]))


@pytest.fixture
def compiled():
    """The references' compiled test: ``(problem, i, j, members) -> (statistic, adjusted df)``."""
    if reason := unavailable(methods()["discrete-serial"]):
        pytest.skip(reason)
    from baselines import _discrete, _discrete_counts

    def test(problem: DiscreteProblem, i: int, j: int, members: tuple[int, ...]) -> tuple[float, int]:
        data = _discrete.prepared(problem)
        space = _discrete_counts.new_space(data, len(members))
        return _discrete.test(data, space, i, j, np.array(members, np.int32))

    return test


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_statistics_are_scipys(compiled, data):
    problem = data.draw(problems(most_variables=7, most_samples=2000), label="problem")
    p = problem.n_variables
    size = data.draw(st.integers(2, min(p, 6)), label="size")
    chosen = data.draw(st.permutations(range(p)), label="variables")[:size]
    i, j = sorted(chosen[:2])
    members = tuple(sorted(chosen[2:]))
    statistic, df = compiled(problem, i, j, members)
    expected, expected_df = plain_test(dataclasses.replace(problem, df_rule="adjusted"), i, j, members)
    cells = math.prod(problem.categories[[i, j, *members]].tolist())
    event(f"table: {'small' if cells <= 256 else 'middle' if cells <= 4096 else 'large'}")
    assert df == expected_df
    # A G-square of nearly independent variables is a small difference of large sums.
    cancelled = 1e-14 * problem.n_samples * math.log(problem.n_samples) if problem.test == "g-square" else 1e-300
    assert statistic == pytest.approx(expected, rel=1e-10, abs=cancelled)
    assert statistic == by_the_rule(problem, i, j, members)


@pytest.mark.parametrize("test", TESTS)
def test_statistics_of_all_table_sizes(compiled, test):
    """Bitmaps, histogram and sorted samples count alike; here all three take part, from one sample to 20,000."""
    rng = np.random.default_rng(0)
    for n, categories in itertools.product((1, 2, 63, 64, 65, 700), ((2, 2, 2), (4, 3, 5), (20, 3, 20), (7, 40, 250))):
        codes = draw_codes(rng, "chain", np.array(categories), n, 2)
        problem = make_problem(codes, {f"V{v}": int(k) for v, k in enumerate(codes.max(axis=0) + 1)}, test=test)
        for i, j, members in ((0, 1, ()), (0, 2, ()), (0, 1, (2,)), (0, 2, (1,)), (1, 2, (0,))):
            assert compiled(problem, i, j, members)[0] == by_the_rule(problem, i, j, members)


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_method_finds_the_same(data):
    problem = data.draw(problems(), label="problem")
    problem, _ = affordable(problem, "discrete-serial", MOST_SAMPLES_READ // problem.n_samples)
    expected = reference(problem, pmax=True)
    event(f"levels: {expected.levels_run}")
    some = st.lists(st.sampled_from(sorted(USABLE)), min_size=2, max_size=2, unique=True)
    for name in USABLE if problem.n_variables <= 5 else data.draw(some, label="settings"):
        method, backend = USABLE[name]
        params = data.draw(launch_parameters(method, 70), label=name)
        policy = data.draw(st.sampled_from(["canonical", "canonical", "first-come"]), label="separating sets")
        options = {"backend": backend, "separating_sets": policy, "pmax": True, **params}
        try:
            found = skeleton(problem, method=method.name, **options)
        except DeviceMemoryError:  # it makes no plan for its memory
            assert method.name == "disc-cupc"
            assert largest_table(problem, expected.levels_run) > DISC_CUPC_CELLS
            event("disc-cupc runs out of memory")
            continue
        assert np.array_equal(found.adjacency, expected.adjacency)
        assert found.edges_per_level == expected.edges_per_level
        assert found.stopped_because == expected.stopped_because
        if policy == "canonical":
            assert found.sepsets == expected.sepsets
            np.testing.assert_allclose(found.pmax, expected.pmax, rtol=1e-9, atol=1e-300)
    removed = list(expected.sepsets)
    chosen = np.random.default_rng(0).permutation(len(removed))[:CERTIFIED]
    for i, j in (removed[k] for k in chosen):
        p_value = plain_p(problem, i, j, expected.sepsets[i, j])
        assert p_value >= problem.alpha * (1 - 1e-9)
        assert expected.pmax[i, j] == pytest.approx(p_value, rel=1e-8, abs=1e-300)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@example(problem=make_problem(np.tile([[0, 0], [0, 1], [1, 0], [1, 1]], (5, 1)), test="g-square"))  # a G-square below 0
@given(problem=problems(most_variables=5, most_samples=300, most_categories=5))
def test_search_is_the_textbooks(problem):
    """PC-stable as gpuPC's Algorithm 1 reads, with scipy's p-values: graph, sets, tests and largest p-values."""

    def test(i, j, members):
        p_value = plain_p(problem, i, j, members)
        return p_value, p_value >= problem.alpha

    graph, sets, tests, pmax = plain_pc_stable(problem, test)
    found = reference(problem, pmax=True)
    assert np.array_equal(found.adjacency, graph)
    assert dict(found.sepsets) == sets
    assert found.tests_per_level == tests
    near_one = pmax > 1 - 1e-6  # A G-square near 0 consists of rounding errors, and p falls with its root.
    np.testing.assert_allclose(found.pmax[~near_one], pmax[~near_one], rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(found.pmax[near_one], pmax[near_one], rtol=1e-6)


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(problem=problems(most_variables=7, most_samples=1000, most_categories=9), test=st.sampled_from(TESTS))
def test_causal_learn_finds_the_same(problem, test):
    if reason := unavailable(methods()["causal-learn-discrete"]):
        pytest.skip(reason)
    problem = dataclasses.replace(problem, df_rule="adjusted", test=test)
    found = skeleton(problem, method="causal-learn-discrete", pmax=True)
    expected = reference(problem, pmax=True)
    assert found == expected
    assert found.edges_per_level == expected.edges_per_level
    np.testing.assert_allclose(found.pmax, expected.pmax, rtol=1e-8, atol=1e-300)


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decisions_agree_to_the_last_bit(data):
    """With alpha a hair's breadth from a test's p-value, an edge hangs on the last bit of its statistic."""
    problem = data.draw(problems(most_variables=4, most_samples=400, most_categories=9, deepest=1), label="problem")
    size = data.draw(st.integers(0, min(problem.n_variables - 2, 1)), label="size")
    i, j, *members = data.draw(st.permutations(range(problem.n_variables)))[: 2 + size]
    statistic, df = plain_test(problem, min(i, j), max(i, j), tuple(members))
    alpha = float(special.chdtrc(df, statistic)) if df else 1.0
    if not 1e-12 < alpha < 1:
        return
    answers = set()
    for ulps in range(-6, 7):
        shifted = dataclasses.replace(problem, alpha=alpha * (1 + ulps * 2.0**-52))
        expected = reference(shifted)
        answers.add(expected.sha256)
        for method, backend in USABLE.values():
            assert skeleton(shifted, method=method.name, backend=backend) == expected
    event(f"answers differ: {len(answers) > 1}")


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_workload_is_the_same_for_all(data):
    """The paper's proxy of section 4.1: a fixed number of tests an edge, and a decay after every level."""
    problem = data.draw(problems(most_samples=500, most_categories=5, deepest=3), label="problem")
    tests_per_edge = data.draw(st.integers(1, 40), label="tests per edge")
    decay = data.draw(st.sampled_from([0.1, 0.5, 0.9]), label="decay")
    problem = dataclasses.replace(problem, tests_per_edge=tests_per_edge, decay=decay)
    expected = reference(problem)
    p, graph = problem.n_variables, ~np.eye(problem.n_variables, dtype=bool)
    for level in range(expected.levels_run):
        edges = np.argwhere(np.triu(graph))
        made = len(edges)
        if level:
            degrees = graph.sum(axis=1) - 1
            of_pairs = [math.comb(degrees[i], level) + math.comb(degrees[j], level) for i, j in edges]
            made = sum(min(tests_per_edge, sets) for sets in of_pairs)
        assert expected.tests_per_level[level] == made
        kept = problem.decayed(edges)
        for i, j in edges[~kept]:
            assert len(expected.sepsets[i, j]) == level
            graph[i, j] = graph[j, i] = False
        assert expected.edges_per_level[level] == kept.sum() == len(np.argwhere(np.triu(graph)))
    assert np.array_equal(expected.adjacency, graph)
    assert expected.tests_per_level[0] == p * (p - 1) // 2
    for method, backend in USABLE.values():
        found = skeleton(problem, method=method.name, backend=backend, **data.draw(launch_parameters(method, 70)))
        assert found == expected
        assert found.tests_per_level == expected.tests_per_level
