"""Single tests decide as every search does, however their subsets are enumerated."""

import functools
import itertools

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.core import independence
from gpupc_impl.core.family import open_tests
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.subsets import Subsets, concatenated
from gpupc_impl.gaussian import canonical, single_tests
from tests.unit.gaussian.test_pair_scan import matrices

P = 8
KINDS = sorted(matrices(2))
OPTIONS = [{}, {"residual_tolerance": 0.0}, {"pseudo_inverse": "always"}]


def every_test(size):
    """All pairs of the variables with all sets of a size: (k, 2) and (k, size)."""
    tests = [(*s, *e) for s in itertools.combinations(range(P), size) for e in itertools.permutations(range(P), 2)]
    tests = np.array([test for test in tests if len(set(test)) == size + 2])
    return tests[:, size:], tests[:, :size]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_canonical(kind, options):
    problem = GaussianProblem.from_correlation(matrices(P)[kind], n_samples=40, alpha=0.3, **options)
    tests = open_tests(problem)
    for size in (1, 2, 4):
        pairs, sets = every_test(size)
        found = tests.separates(pairs, sets)
        np.testing.assert_array_equal(found, canonical.separates(problem, pairs, sets))
        np.testing.assert_array_equal(found, tests.separates(pairs[:, ::-1], sets[:, ::-1]))
    pairs, empty = every_test(0)
    direct = problem.correlation[tuple(pairs.T)] ** 2 <= problem.critical_r_squared(0)
    np.testing.assert_array_equal(tests.separates(pairs, empty), direct)


def test_a_statistic_at_its_critical_value_separates_and_the_next_larger_one_does_not():
    rng = np.random.default_rng(0)
    problem = GaussianProblem.from_data(rng.normal(size=(50, P)) @ rng.normal(size=(P, P)))
    pairs, sets = every_test(2)
    h = canonical.residuals(problem.correlation, pairs, sets, problem.pivot_tolerance)
    for k in range(0, len(pairs), 97):
        explained, possible = h.ij[k] ** 2, h.ii[k] * h.jj[k]
        at = explained / possible
        for critical in (at, np.nextafter(at, 0), np.nextafter(at, 1)):
            limited = GaussianProblem.from_correlation(problem.correlation, n_samples=50)
            object.__setattr__(limited, "critical_r_squared", lambda level, critical=critical: critical)
            (found,) = open_tests(limited).separates(pairs[k : k + 1], sets[k : k + 1])
            assert found == (explained <= critical * possible)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("most", [-1, 0, 2, 5])
@pytest.mark.parametrize("kind", ["arbitrary", "common", "determined"])
def test_subsets_are_counted_that_separate_one_by_one(kind, most, options, monkeypatch):
    """Nine samples leave degrees of freedom for five members."""
    problem = GaussianProblem.from_correlation(matrices(P)[kind], n_samples=9, alpha=0.01, **options)
    monkeypatch.setattr(single_tests, "FEW_TESTS", 0)
    monkeypatch.setattr(independence, "TESTS_AT_ONCE", 3)
    tests = open_tests(problem)
    pairs, candidates = np.array([[0, 1], [1, 0], [6, 7], [2, 5]]), [[2, 3, 4, 5, 6], [2, 3, 4, 5, 7], [0, 2, 5], []]
    separating, containing = [], []
    for pair, some in zip(pairs, candidates, strict=True):
        sets = [chosen for size in range(most + 1) for chosen in itertools.combinations(some, size)]
        found = [chosen for chosen in sets if tests.separates(pair[None], np.array([chosen], np.int64))[0]]
        separating.append(len(found))
        containing += [sum(one in chosen for chosen in found) for one in some]
    starts = np.cumsum([0, *map(len, candidates)])
    for count in (tests.count_separating, functools.partial(IndependenceTests.count_separating, tests)):
        counts = count(pairs, starts, np.concatenate(candidates).astype(np.int32), most)
        assert [each.tolist() for each in counts] == [separating, containing]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 6, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("parameters", OPTIONS, ids=str)
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
