"""Regression tests against statsmodels' models, and bad input."""

import functools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpupc_impl import InvalidProblem, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.p_value_search import single_test
from gpupc_impl.regression.plain import PlainTest
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.regression.regression_batched import RegressionTests

RNG = np.random.default_rng(0)
AGE = RNG.normal(size=300)
SITE = np.array(["north", "south", "west"])[np.digitize(AGE + RNG.normal(size=300), [-0.6, 0.6])]
ILL = AGE - (SITE == "west") + RNG.logistic(size=300) > 0
DOSE = 0.5 * AGE + (SITE == "south") + RNG.normal(size=300)
TABLE = pd.DataFrame({"age": AGE, "site": SITE, "ill": ILL, "dose": DOSE})
PROBLEM = RegressionProblem.from_data(TABLE)
HOST = open_backend("host")
OPEN = {"plain": PlainTest, "batched": lambda problem: functools.partial(single_test, RegressionTests(problem, HOST))}
FORMULAS = [
    ("dose ~ 1", "age", (3, 0, ())),
    ("age ~ 1", "C(site)", (1, 0, ())),
    ("dose ~ C(site) + C(ill)", "age", (0, 3, (2, 1))),
    ("dose ~ age + C(ill)", "C(site)", (1, 3, (0, 2))),
    ("ill ~ 1", "C(site)", (1, 2, ())),
    ("ill ~ age + dose", "C(site)", (2, 1, (0, 3))),
]


@pytest.mark.parametrize("by", OPEN)
@pytest.mark.parametrize(("formula", "added", "test"), FORMULAS, ids=[f"{a} + {b}" for a, b, _ in FORMULAS])
def test_p_values_are_those_of_statsmodels(by, formula, added, test):
    formulas = pytest.importorskip("statsmodels.formula.api")
    table = TABLE.assign(ill=TABLE.ill.astype(int))
    logistic = formula.startswith("ill")
    fit = (lambda f: formulas.logit(f, table).fit(disp=0)) if logistic else lambda f: formulas.ols(f, table).fit()
    smaller, larger = fit(formula), fit(f"{formula} + {added}")
    p_value, statistic = OPEN[by](PROBLEM)(*test)
    if logistic:
        assert statistic == pytest.approx(2 * (larger.llf - smaller.llf), abs=2e-3)
    else:
        expected, expected_p, _ = larger.compare_f_test(smaller)
        assert (statistic, p_value) == pytest.approx((expected, expected_p), rel=1e-6)


@pytest.mark.parametrize("by", OPEN)
def test_a_multinomial_response(by):
    """`site` has three categories and the new column four, so that `site` is the response."""
    statsmodels = pytest.importorskip("statsmodels.api")
    grade = np.digitize(DOSE, [-1, 0, 1])
    problem = RegressionProblem.from_data(TABLE.assign(dose=grade.astype(str)))
    codes = problem.values[1].astype(int)
    dummies = pd.get_dummies(grade, drop_first=True, dtype=float)
    smaller = statsmodels.MNLogit(codes, statsmodels.add_constant(AGE)).fit(disp=0)
    larger = statsmodels.MNLogit(codes, statsmodels.add_constant(np.column_stack([AGE, dummies]))).fit(disp=0)
    p_value, statistic = OPEN[by](problem)(3, 1, (0,))
    assert statistic == pytest.approx(2 * (larger.llf - smaller.llf), abs=5e-3)
    assert p_value == pytest.approx(stats.chi2.sf(statistic, 6), rel=1e-6)


@pytest.mark.parametrize("by", OPEN)
def test_classes_that_a_variable_separates(by):
    """The likelihood has no maximum at finite coefficients; the penalty keeps the test defined."""
    flag = np.repeat(["no", "yes"], 30)
    problem = RegressionProblem.from_data(pd.DataFrame({"a": flag, "b": flag, "c": RNG.normal(size=60)}))
    test = OPEN[by](problem)
    p_value, statistic = test(0, 1, (2,))
    assert p_value < 1e-10
    assert 60 < statistic < 2 * 60 * np.log(2)
    assert test(0, 2, (1,))[0] > 0.01


def test_a_search_names_its_columns():
    found = skeleton(TABLE.assign(dose=0.5 * AGE + RNG.normal(size=300)), 0.001, family="regression", backend="host")
    assert found.names == ("age", "site", "ill", "dose")
    assert found.adjacency[0, [1, 3]].all()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (TABLE[:3], {}, "at least 4"),
        (TABLE.assign(site=[f"s{k % 65}" for k in range(300)]), {}, "'site' has 65 categories; the most are 64"),
        (TABLE.assign(age=np.nan), {}, "missing value"),
        (TABLE.assign(age=np.r_[np.inf, AGE[1:]]), {}, "infinite.*the first in row 0, column 'age'"),
        (TABLE, {"categories": "age, sex"}, "'sex', which is no variable"),
    ],
)
def test_bad_input(data, options, message):
    with pytest.raises(InvalidProblem, match=message):
        RegressionProblem.from_data(data, **options)
