"""Tests of numbered subsets by kernels: the bits of the canonical evaluation in NumPy."""

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.subsets import Subsets, concatenated
from gpupc_impl.gaussian import single_tests


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 6, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"residual_tolerance": 0.0}, {"pseudo_inverse": "always"}],
    ids=["default", "without tolerance", "pseudo-inverse"],
)
def test_kernels_and_numpy_have_the_same_bits(size, parameters, monkeypatch):
    monkeypatch.setattr(single_tests, "FEW_TESTS", 0)
    monkeypatch.setattr(single_tests, "TESTS_OF_LAUNCH", 300)
    rng = np.random.default_rng(size)
    values = rng.normal(size=(80, 14))
    values[:, 1:5] += values[:, :4]
    values[:, 7] = values[:, 5] + values[:, 6]  # so that some sets are near singular
    problem = GaussianProblem.from_data(values, alpha=0.1, **parameters)
    pairs = np.array([[0, 1], [9, 2], [8, 7], [0, 2], [12, 13]], np.int32)
    lists = [np.setdiff1d(np.sort(rng.choice(14, 10, replace=False)), pair) for pair in pairs]
    subsets = Subsets(pairs, *concatenated(lists), size)
    tests = single_tests.GaussianTests(problem, "host")
    found = tests.dependences(subsets, 0, subsets.total)
    assert np.array_equal(found, IndependenceTests.dependences(tests, subsets, 0, subsets.total))
    assert 0 < np.count_nonzero(np.isfinite(found)) < len(found)
    middle = subsets.total // 2
    assert np.array_equal(tests.dependences(subsets, middle, subsets.total), found[middle:])
