"""The yardstick finds what all methods of a family have in common, since it shares nothing with them."""

import ast
import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special

from gpupc_impl import DiscreteProblem, GaussianProblem, skeleton
from gpupc_impl.core.family import families
from gpupc_impl.gaussian import problem as gaussian
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.verification import yardstick as module
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.verify import certificates, verify
from gpupc_impl.verification.yardstick import yardstick
from tests.unit.verification.test_verify import record_of


def chain(n=300, p=20, seed=0):
    data = np.random.default_rng(seed).normal(size=(n, p))
    for k in range(1, p):
        data[:, k] += 0.3 * data[:, k - 1]
    return data


def codes(n=500, p=40, seed=0):
    draw = np.random.default_rng(seed)
    data = draw.integers(0, 3, (n, p))
    for k in range(1, p):
        data[:, k] = np.where(draw.random(n) < 0.15, data[:, draw.integers(0, k)], data[:, k])
    return data


def mixed():
    data = chain()
    data[:, 3], data[:, 7] = data[:, 3] > 0, np.digitize(data[:, 7], [-0.5, 0.5])
    return data


DATA = {
    "gaussian": lambda: (GaussianProblem.from_data(chain(), alpha=0.1), chain()),
    "correlations": lambda: (GaussianProblem.from_data(chain(), alpha=0.1, df_convention="cupc"), None),
    "full": lambda: (DiscreteProblem.from_data(codes(), alpha=0.1), None),
    "regression": lambda: (RegressionProblem.from_data(mixed(), categories=["V3", "V7"], alpha=0.1), None),
    "adjusted": lambda: (DiscreteProblem.from_data(codes(), alpha=0.1, test="g-square", df_rule="adjusted"), None),
}


@pytest.fixture(params=DATA)
def case(request):
    problem, samples = DATA[request.param]()
    methods = {"gaussian": "stable-serial", "discrete": "discrete-serial", "regression": "regression-batched"}
    return problem, samples, methods[problem.family]


def test_right_answers_pass(case):
    problem, samples, method = case
    made, faults = yardstick(problem, skeleton(problem, method=method), samples)
    assert made > 30
    assert faults == []


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_answers_by_another_threshold_are_found(case, factor):
    """Twice alpha is the one-sided threshold of a two-sided test."""
    problem, samples, method = case
    found = skeleton(dataclasses.replace(problem, alpha=factor * problem.alpha), method=method)
    _, faults = yardstick(problem, found, samples)
    assert faults
    says = "separates" if factor > 1 else "does not separate"
    assert all(f": it {says}, since the statistic is " in fault for fault in faults)


def test_a_threshold_that_all_methods_and_the_retest_share_is_found(monkeypatch):
    problem = GaussianProblem.from_data(chain(), alpha=0.1)
    monkeypatch.setattr(gaussian, "_quantile", lambda alpha: -float(scipy.special.ndtri(alpha)))
    found = skeleton(problem, method="stable-serial")
    assert certificates(Answer(problem, record_of(problem, found), found))[1] == []
    (row,) = verify(problem, [(record_of(problem, found), found)], samples=chain())
    assert (row["status"], row["certificates_failed"] > 0) == ("unexplained", True)
    assert "by a test from the samples: V" in row["detail"]


def test_correlations_of_other_samples_are_found():
    problem = GaussianProblem.from_data(chain(), alpha=0.1)
    assert yardstick(problem, skeleton(problem, method="stable-serial"), chain(seed=1))[1]


def test_tests_that_rounding_may_decide_are_left_out():
    data = chain(p=4)
    data[:, 3] = data[:, 2]  # a copy
    problem = GaussianProblem.from_data(data)
    assert module._gaussian(problem, data, 0, 3, (2,)) is None
    assert module._gaussian(problem, data, 2, 3, ()) is None
    assert math.isfinite(module._gaussian(problem, data, 0, 1, (2,)))


def test_it_imports_nothing_of_a_family():
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported for family in families() if family in name.split(".")]
