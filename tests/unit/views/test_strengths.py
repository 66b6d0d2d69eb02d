"""Edge strength, against the kernels' own largest p-values and against tests of causal-learn, scipy and the retest."""

import itertools

import numpy as np
import pandas as pd
import pytest
from causallearn.utils.cit import CIT
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association

import gpupc_impl
from gpupc_impl import BackgroundKnowledge, Skeleton, examples, pc, skeleton
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.nonlinear import retest
from gpupc_impl.views import strengths as views_strengths


@pytest.fixture(scope="module")
def numbers():
    """20 variables that depend on some of those before them."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(300, 20))
    for k in range(1, 20):
        values[:, k] += values[:, rng.choice(k, min(k, 2), replace=False)].sum(axis=1) * 0.6
    return pd.DataFrame(values, columns=[f"g{k}" for k in range(20)])


def rows_of(frame, names):
    """Each row's pair and set by number."""
    number = {name: k for k, name in enumerate(names)}
    for row in frame.itertuples():
        yield number[row.source], number[row.target], [number[name] for name in row.given], row


def assert_largest(result, at_most=1e-9):
    """The p-values are those that the kernels recorded (Skeleton.pmax)."""
    found = result.skeleton
    table = result.strengths("all", backend="host")
    assert len(table) == len(found.names) * (len(found.names) - 1) // 2
    for i, j, given, row in rows_of(table, found.names):
        assert abs(found.pmax[i, j] - row.p_value) <= at_most
        assert (row.kind == "removed") == (row.p_value >= found.problem.alpha) == (not found.adjacency[i, j])
        if row.kind == "removed":
            assert tuple(given) == found.sepsets[i, j]
    assert set(table.kind) - {"removed"} <= set(result.to_frame().kind)
    return table


@pytest.mark.parametrize("options", [{}, {"df_convention": "cupc"}, {"max_level": 1}, {"pseudo_inverse": "always"}])
def test_gaussian(numbers, options, monkeypatch):
    monkeypatch.setattr(views_strengths, "TESTS_AT_ONCE", 7)
    result = pc(numbers, 0.01, method="cupc-s", backend="host", pmax=True, **options)
    table = assert_largest(result)
    assert result.skeleton.levels_run > 1
    assert table.partial_correlation.abs().max() <= 1


def test_gaussian_as_causal_learn(numbers):
    result = pc(numbers, 0.01, backend="host")
    test = CIT(numbers.to_numpy(), "fisherz")
    table = result.strengths("all")
    for i, j, given, row in rows_of(table, result.names):
        assert row.p_value == pytest.approx(test(i, j, given), abs=1e-9)
        inverse = np.linalg.inv(numbers.iloc[:, [i, j, *given]].corr())
        assert row.partial_correlation == pytest.approx(-inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]))
    kept = table[table.kind != "removed"].drop(columns=["p_value", "given", "partial_correlation"])
    assert kept.equals(result.to_frame())


def test_no_other_set_has_a_larger_p_value(numbers):
    """Every set that the search had for an edge, by the definition of PC-stable."""
    result = skeleton(numbers, 0.01, backend="host")
    test = CIT(numbers.to_numpy(), "fisherz")
    for i, j, given, row in rows_of(result.strengths(), result.names):
        found = {}
        for level in range(result.levels_run):
            graph = result.adjacency_at(level)
            for one, other in ((i, j), (j, i)):
                near = [v for v in np.flatnonzero(graph[one]).tolist() if v != other]
                found |= {chosen: test(i, j, chosen) for chosen in itertools.combinations(near, level)}
        assert row.p_value == pytest.approx(max(found.values()), abs=1e-9)
        assert found[tuple(given)] == pytest.approx(row.p_value, abs=1e-9)


@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_discrete(numbers, test):
    labels = pd.DataFrame({name: pd.qcut(numbers[name], 3, labels=False) for name in list(numbers)[:10]})
    options = {"family": "discrete", "backend": "host", "test": test, "df_rule": "adjusted", "pmax": True}
    result = pc(labels, 0.01, **options)
    table = assert_largest(result)
    other = CIT(labels.to_numpy(), "chisq" if test == "chi-square" else "gsq")
    for i, j, given, row in rows_of(table, result.names):
        assert row.p_value == pytest.approx(other(i, j, given), abs=1e-9)
        if not given:
            counts = pd.crosstab(labels.iloc[:, i], labels.iloc[:, j]).to_numpy()
            if test == "chi-square":
                assert row.cramers_v == pytest.approx(association(counts, method="cramer"))
            else:
                g = chi2_contingency(counts, correction=False, lambda_="log-likelihood").statistic
                assert row.mutual_information == pytest.approx(g / (2 * len(labels)))


def test_nonlinear(numbers):
    options = {"family": "nonlinear", "backend": "host", "pmax": True, "permutations": 40}
    result = pc(numbers.iloc[:60, :5], 0.05, **options)
    table = assert_largest(result, at_most=0)
    again = retest.Retest(result.skeleton.problem)
    for i, j, given, row in rows_of(table, result.names):
        if row.kind == "removed":
            counts = [again.count(*pair, given) for pair in ((i, j), (j, i))]
            assert row.p_value in [count / 40 for count in counts]
            assert row.cmi == pytest.approx(result.skeleton.problem.cmi(again.partials(i, j, given)[0]))


def test_mixed(numbers):
    data = numbers.iloc[:60, :5].assign(g1=lambda frame: (frame.g1 > 0).astype(str))
    options = {"family": "mixed", "backend": "host", "pmax": True, "permutations": 40}
    assert_largest(pc(data, 0.05, **options), at_most=0)


def test_missing_values_pairwise(numbers):
    holes = numbers.mask(np.random.default_rng(4).random(numbers.shape) < 0.1)
    assert_largest(pc(holes, 0.01, missing="pairwise", pmax=True))


@pytest.mark.parametrize("family", ["gaussian", "nonlinear"])
def test_what_knowledge_fixes_is_not_tested(numbers, family):
    known = BackgroundKnowledge(required_edges=[("g0", "g1"), ("g4", "g2")], forbidden_edges=[("g0", "g3")])
    data = numbers.iloc[:60, :5]
    result = pc(data, 0.05, knowledge=known, family=family, backend="host", pmax=True)
    found, untested = result.skeleton, []
    for i, j, given, row in rows_of(result.strengths("all"), result.names):
        if np.isnan(row.p_value):
            untested.append(({i, j}, row.kind == "forbidden", tuple(given)))
        else:
            assert row.p_value == pytest.approx(found.pmax[i, j], abs=1e-9)
    assert sorted(untested, key=str) == [({0, 1}, False, ()), ({0, 3}, True, ()), ({2, 4}, False, ())]


def test_a_test_that_is_not_defined_is_passed_over():
    """Given its copy, nothing is left of a variable."""
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 200))
    data = pd.DataFrame({"a": a, "copy": a, "b": a + b, "c": a + b + c})
    result = skeleton(data, backend="host", pmax=True)
    assert result.undefined_tests
    for i, j, _, row in rows_of(result.strengths("all"), result.names):
        assert row.p_value == pytest.approx(result.pmax[i, j], abs=1e-12)


def test_pairs(numbers):
    result = skeleton(numbers, 0.01, backend="host")
    edges, removed, both = (result.strengths(pairs) for pairs in ("edges", "removed", "all"))
    assert len(edges) == result.n_edges
    assert pd.concat([edges, removed], ignore_index=True).equals(both)
    with pytest.raises(ValueError, match="pairs is 'each'; choose one of: edges, removed, all"):
        result.strengths("each")


def test_a_result_without_its_data(numbers, tmp_path):
    result = skeleton(numbers, backend="host")
    assert isinstance(result.problem, GaussianProblem)
    result.save(tmp_path / "found.npz")
    with pytest.raises(ValueError, match="does not hold its data"):
        Skeleton.load(tmp_path / "found.npz").strengths()


def test_no_edges():
    result = gpupc_impl.skeleton(np.random.default_rng(0).normal(size=(50, 3)), 1e-6, backend="host")
    assert list(result.strengths()) == ["source", "target", "kind", "p_value", "given", "partial_correlation"]
    assert len(result.strengths()) == 0


def test_every_column_is_printed():
    names = [f"a variable with a long name, number {k}" for k in range(8)]
    frame = pc(examples.health().set_axis(names, axis=1), 0.01, backend="host").strengths()
    with pd.option_context("display.width", 40, "display.max_columns", 2):
        head = repr(frame).splitlines()[0]
    assert head.split() == ["source", "target", "kind", "p_value", "given", "partial_correlation"]
    assert type(frame[["source", "p_value"]]) is pd.DataFrame
