"""Labels to codes, what is refused, and the numbers that decide a discrete test."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpupc_impl.core.family import load_problem, open_tests
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.discrete import single_tests
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.retest import Retest
from gpupc_impl.discrete.statistic import statistic


def coded(column, name="x", **options):
    problem = DiscreteProblem.from_data(pd.DataFrame({name: column}), **options)
    return problem.codes[0].tolist(), problem.labels[0], bool(problem.declared[0])


@pytest.mark.parametrize(
    ("column", "codes", "labels"),
    [
        (["b", "a", "b"], [1, 0, 1], ("a", "b")),
        ([True, False, True], [1, 0, 1], ("False", "True")),
        ([-3, 10**12, 5], [0, 2, 1], ("-3", "5", "1000000000000")),
        (np.array([2**64 - 1, 0, 1], np.uint64), [2, 0, 1], ("0", "1", "18446744073709551615")),
        ([2.0, 1.0, -0.0], [2, 1, 0], ("0", "1", "2")),
        (pd.array(["v", "u", "v"], dtype="string"), [1, 0, 1], ("u", "v")),
        (np.array([1, "q", 1], dtype=object), [0, 1, 0], ("1", "q")),
        (np.array([10**30, 5], dtype=object), [1, 0], ("5", str(10**30))),
    ],
)
def test_observed_labels(column, codes, labels):
    assert coded(column) == (codes, labels, False)


def test_categorical_columns_declare_their_categories():
    column = pd.Categorical(["u", "v", "u"], categories=["w", "u", "v"])
    assert coded(column) == ([1, 2, 1], ("w", "u", "v"), True)
    assert coded(pd.Categorical([3, 1], categories=[1, 2, 3])) == ([2, 0], ("1", "2", "3"), True)
    wider = coded(column, categories={"x": ["u", "v", "w", "z"]})
    assert wider == ([0, 1, 0], ("u", "v", "w", "z"), True)


@pytest.mark.parametrize(
    ("column", "categories", "codes", "labels"),
    [
        (["no", "yes"], ["yes", "no", "perhaps"], [1, 0], ("yes", "no", "perhaps")),
        ([0, 2, 1], 4, [0, 2, 1], ("0", "1", "2", "3")),
        ([0, 2, 1], ["low", "mid", "high"], [0, 2, 1], ("low", "mid", "high")),
        ([7, 5], [5, 6, 7], [2, 0], ("5", "6", "7")),
    ],
)
def test_declared_categories(column, categories, codes, labels):
    assert coded(column, categories={"x": categories}) == (codes, labels, True)


def test_arrays_of_codes():
    codes = np.array([[0, 3], [1, 0], [1, 1]], np.uint8)
    problem = DiscreteProblem.from_data(codes, categories={"V0": ["a", "b"], "V1": 5})
    assert problem.names == ("V0", "V1")
    assert np.array_equal(problem.codes, codes.T)
    assert problem.codes.flags.c_contiguous
    assert problem.categories.tolist() == [2, 5]
    assert problem.declared.tolist() == [True, True]
    assert problem.n_samples == 3
    lists = DiscreteProblem.from_data([["a", 1], ["b", 2]], names=["s", "t"])
    assert lists.labels == (("a", "b"), ("1", "2"))


@pytest.mark.parametrize(("count", "dtype"), [(256, np.uint8), (257, np.uint16), (65535, np.uint16)])
def test_codes_are_as_narrow_as_they_can_be(count, dtype):
    problem = DiscreteProblem.from_data(np.column_stack([np.arange(count), np.arange(count) % 2]))
    assert problem.codes.dtype == dtype
    assert problem.categories.tolist() == [count, 2]
    assert np.array_equal(problem.codes[0], np.arange(count))


@given(st.lists(st.lists(st.integers(-5, 300), min_size=2, max_size=2), min_size=1, max_size=60))
def test_codes_stand_for_their_labels(rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)
        problem = DiscreteProblem.from_data(np.array(rows))
    read = [[int(problem.labels[k][code]) for code in problem.codes[k]] for k in range(2)]
    assert np.array_equal(read, np.array(rows).T)
    assert all(list(map(int, labels)) == sorted({row[k] for row in rows}) for k, labels in enumerate(problem.labels))


DATES, WORDS = np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), pd.array(["a", None], dtype="string")


@pytest.mark.parametrize("column", [["a", None], [1.0, math.nan], pd.Categorical(["u", None]), WORDS, DATES])
def test_missing_values_name_column_and_row(column):
    with pytest.raises(InvalidProblem, match=r"column 'x' has 1 missing value.*row 1"):
        coded(column)


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ([1.0, 1.5], {}, "holds 1.5 in row 1, which is no label.*qcut"),
        (range(65_536), {}, "65536 categories"),
        (np.array([1, "1"], dtype=object), {}, "two categories that read '1'"),
        ([0, 3], {"categories": {"x": 3}}, "the code 3 in row 1; its 3 declared"),
        (["a", "z"], {"categories": {"x": ["a", "b"]}}, "holds 'z' in row 1, which is not among.*a, b"),
        (["a", "z"], {"categories": {"x": 2}}, "must be listed"),
        ([0], {"categories": {"y": 2}}, "'y', which is no variable"),
        ([0], {"categories": 3}, "categories is 3; give a mapping from variable name to labels or to a count"),
        ([], {}, "0 samples"),
        ([0], {"test": "fisher"}, "test is 'fisher'; choose one of: chi-square, g-square"),
        ([0], {"tests_per_edge": 3}, "give both"),
    ],
)
def test_what_cannot_be_used_is_said(column, options, said):
    with pytest.raises(InvalidProblem, match=said):
        coded(column, **options)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.zeros(3, int), "1 dimension"),
        ([[1, 2], [3]], "1 dimension"),
        (np.broadcast_to(np.uint8(0), (2**31 - 2**18 + 1, 1)), "2,147,221,505 samples.*at most 2,147,221,504"),
    ],
)
def test_shapes_that_are_no_table(data, said):
    with pytest.raises(InvalidProblem, match=said):
        DiscreteProblem.from_data(data)


def test_constant_variables_are_named():
    with pytest.warns(UserWarning, match=r"1 constant variable.*\(b\)"):
        problem = DiscreteProblem.from_data(pd.DataFrame({"a": [0, 1], "b": ["x", "x"]}))
    assert problem.constant == ("b",)
    assert problem.facts()["constant_variables"] == 1


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    data = np.column_stack([rng.integers(0, count, 500) for count in (2, 3, 4, 300)])
    return DiscreteProblem.from_data(data, categories={"V0": 2, "V1": 3, "V2": 5, "V3": 300}, alpha=0.01)


def test_degrees_of_freedom(problem):
    assert problem.degrees_of_freedom(0, 1) == 2
    assert problem.degrees_of_freedom(3, 1, (0, 2)) == 299 * 2 * 10


def test_tables_beyond_64_bits_are_refused(problem):
    huge = dataclasses.replace(problem, categories=np.array([2**16, 2**16, 2**16, 2**14], np.int32))
    assert huge.obstacle(2) is None
    more = dataclasses.replace(huge, categories=np.array([2**16, 2**16, 2**16, 2**15], np.int32))
    assert "more than the 2^62 that 64-bit indexes number; set max_level to 1 or merge" in more.obstacle(2)
    assert more.obstacle(1) is None
    wide = DiscreteProblem.from_data(np.zeros((2, 1100), int) + np.arange(2)[:, None], alpha=0.05)
    assert "make up to 1.36e+331 cells at level 1098" in wide.obstacle(1098)  # more than a float holds


@pytest.mark.parametrize("alpha", [1e-50, 0.01, 0.5, 0.999])
def test_critical_values(problem, alpha):
    """They are SciPy's up to 4,096 degrees of freedom, and have its precision beyond."""
    problem = dataclasses.replace(problem, alpha=alpha)
    df = np.arange(4097)
    assert problem.critical_values(df).tolist() == [0.0, *stats.chi2.isf(alpha, df[1:])]
    df = np.append(4097 * 1.01 ** np.arange(3400), 2.0**62).astype(np.int64)
    np.testing.assert_allclose(problem.critical_values(df), stats.chi2.isf(alpha, df), rtol=1e-15)
    assert problem.critical_values(2) == stats.chi2.isf(alpha, 2)
    assert problem.p_value(3.0, 0) == 1.0
    assert problem.p_value(3.0, 2) == pytest.approx(stats.chi2.sf(3.0, 2), rel=1e-14)


@pytest.mark.parametrize("rule", ["full", "adjusted"])
@pytest.mark.parametrize("S", [(), (0,), (0, 2), (2, 3)])
@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_retest_is_scipys(problem, S, test, rule):
    """Statistic and degrees of freedom added up over strata, each by SciPy without its empty rows and columns."""
    if 3 in S:
        i, j = 0, 1
    else:
        i, j = 1, 3
    chosen = dataclasses.replace(problem, test=test, df_rule=rule)
    total, df = 0.0, 0
    for stratum in np.unique(problem.codes[list(S)], axis=1).T if S else [()]:
        rows = np.all(problem.codes[list(S)] == np.reshape(stratum, (-1, 1)), axis=0)
        table = stats.contingency.crosstab(problem.codes[i, rows], problem.codes[j, rows]).count
        lambda_ = "pearson" if test == "chi-square" else "log-likelihood"
        found = stats.chi2_contingency(table, correction=False, lambda_=lambda_)
        total, df = total + found.statistic, df + found.dof
    if rule == "full":
        df = problem.degrees_of_freedom(i, j, S)
    measured = statistic(chosen, i, j, np.array(S, int))
    assert measured == (pytest.approx(total, rel=1e-10), df)
    ratios, tolerances = Retest(chosen).ratios(np.array([[i, j]]), np.array([S], int).reshape(1, -1))
    assert ratios == pytest.approx([total / stats.chi2.isf(0.01, df)], rel=1e-10)
    assert (tolerances < 1e-6).all()


def test_retest_takes_no_memory_for_what_never_occurs():
    """Three columns of 2,000 categories: strata times categories are 4 million."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 2000, (1000, 3))
    data[:, 2] = np.where(rng.random(1000) < 0.5, 7, data[:, 2])
    expected, adjusted = 0.0, 0
    strata, rows = np.unique(data[:, 2], return_counts=True)
    for stratum in strata[rows > 1]:  # one row alone adds nothing
        table = pd.crosstab(*data[data[:, 2] == stratum, :2].T)
        found = stats.chi2_contingency(table, correction=False)
        expected, adjusted = expected + found.statistic, adjusted + found.dof
    for rule, df in (("full", 1999 * 1999 * 2000), ("adjusted", adjusted)):
        problem = DiscreteProblem.from_data(data, categories={f"V{k}": 2000 for k in range(3)}, df_rule=rule)
        tracemalloc.start()
        measured = statistic(problem, 0, 1, np.array([2]))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert measured == (pytest.approx(expected, rel=1e-10), df)
        assert peak < 1_000_000


def test_retest_without_degrees_of_freedom():
    with pytest.warns(UserWarning, match="V1"):
        problem = DiscreteProblem.from_data(np.array([[0, 0], [1, 0]]))
    assert Retest(problem).ratios(np.array([[0, 1]]), np.empty((1, 0), int))[0].tolist() == [0.0]


@pytest.mark.parametrize("decay", [0.1, 0.5, 0.75, 0.9, 0.99])
def test_decay_removes_its_share_evenly(problem, decay):
    workload = dataclasses.replace(problem, tests_per_edge=2, decay=decay)
    for m in (0, 1, 7, 1000):
        kept = workload.decayed(np.zeros((m, 2), int))
        assert kept.shape == (m,)
        assert abs(kept.sum() - (1 - decay) * m) < 1 + 1e-9 * m
        gaps = np.diff(np.flatnonzero(kept))
        assert gaps.size == 0 or gaps.max() - gaps.min() <= 1


def test_saved_and_loaded(problem, tmp_path):
    named = dataclasses.replace(problem, names=("a", "b", "ü", "d"), tests_per_edge=4, decay=0.9, max_level=2)
    named.save(tmp_path / "problem.npz")
    found = load_problem(tmp_path / "problem.npz")
    assert type(found) is DiscreteProblem
    for field in dataclasses.fields(DiscreteProblem):
        stored, expected = getattr(found, field.name), getattr(named, field.name)
        assert np.array_equal(stored, expected) if isinstance(expected, np.ndarray) else stored == expected
    assert found.fingerprint == named.fingerprint
    assert not found.codes.flags.writeable


@pytest.mark.parametrize(
    ("test", "df_rule"), [("chi-square", "full"), ("chi-square", "adjusted"), ("g-square", "full")]
)
@pytest.mark.parametrize(("samples", "cells"), [(20, 1 << 16), (300, 1 << 16), (300, 50)])
def test_subsets_are_counted_that_separate_one_by_one(test, df_rule, samples, cells, monkeypatch):
    """Some pairs have more than 50 cells with their candidates."""
    monkeypatch.setattr(single_tests, "MOST_CELLS", cells)
    rng = np.random.default_rng(samples)
    codes = rng.integers(0, [2, 3, 2, 3, 2, 3, 2], (samples, 7))
    codes[:, 1:] = np.where(rng.random((samples, 6)) < 0.6, codes[:, :-1] % 2, codes[:, 1:])
    tests = open_tests(DiscreteProblem.from_data(codes, alpha=0.1, test=test, df_rule=df_rule))
    pairs, candidates = np.array([[4, 0], [0, 6], [4, 1], [4, 2]]), [[1, 2, 3, 5], [1, 2, 3, 4, 5], [2], []]
    for most in (-1, 1, 4):
        arguments = pairs, np.cumsum([0, *map(len, candidates)]), np.concatenate(candidates).astype(np.int32), most
        found, expected = tests.count_separating(*arguments), IndependenceTests.count_separating(tests, *arguments)
        for counts, others in zip(found, expected, strict=True):
            np.testing.assert_array_equal(counts, others)
        assert (found[0].sum() > 0) == (most >= 0)
