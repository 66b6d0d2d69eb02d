"""PAGs of the library and of the reference (baselines/latent.py), on every backend: the same marks."""

import math

import numpy as np
import pytest

from baselines.latent import reference_pag
from gpupc_impl import GaussianProblem, IndependenceOracle, skeleton
from gpupc_impl.backends import BACKENDS, backend_class
from gpupc_impl.core.family import open_tests
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.gaussian import canonical, single_tests
from gpupc_impl.latent.inference import Limits, find_pag
from tests.golden.test_latent_pags import PAGS, linear_gaussian, oracle


def available(name):
    reason = backend_class(name).unavailable()
    return pytest.param(name, marks=[pytest.mark.skipif(reason is not None, reason=str(reason))])


def by_canonical_tests(problem):
    """The tests of a Gaussian problem by the canonical evaluation in NumPy, one at a time."""
    tests = open_tests(problem)

    def dependence(i, j, members):
        pairs, sets = np.array([[i, j]]), np.array([members], np.int64).reshape(1, -1)
        if problem.obstacle(len(members)) is not None or not canonical.separates(problem, pairs, sets)[0]:
            return math.inf
        return float(tests.dependence(pairs, sets)[0])

    return dependence


@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
@pytest.mark.parametrize("backend", [available(name) for name in BACKENDS])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))])
def test_samples(seed, backend, algorithm, monkeypatch):
    monkeypatch.setattr(single_tests, "FEW_TESTS", 0)  # so that kernels make all tests
    values = linear_gaussian(14 + seed % 3, hidden=4, degree=3.5, samples=(60, 200, 1000)[seed % 3])
    problem = fixed_order_problem(values, alpha=(0.2, 0.1, 0.01)[seed % 3])
    graph = skeleton(problem)
    expected = reference_pag(graph, by_canonical_tests(problem), algorithm)
    assert np.array_equal(find_pag(graph, problem, algorithm, backend=backend).marks, expected)
    samples = GaussianProblem.from_data(values, alpha=problem.alpha, correlations="device")
    assert np.array_equal(find_pag(graph, samples, algorithm, backend=backend).marks, expected)
    assert "correlation" not in vars(samples)


@pytest.mark.parametrize("limits", [{}, {"max_possible_d_sep": 2, "max_path_length": 3}, {"max_path_length": 4}])
@pytest.mark.parametrize("numbers", [range(1000, 1600, 200), pytest.param(range(0, 1600, 8), marks=pytest.mark.slow)])
def test_oracles(numbers, limits):
    for number in numbers:
        p, hidden, arrows, *_ = PAGS[number]
        problem = oracle(int(p), int(hidden), arrows)
        assert isinstance(problem, IndependenceOracle)
        graph = problem.skeleton()

        def dependence(i, j, members, problem=problem):
            pairs, sets = np.array([[i, j]]), np.array([members], np.int64).reshape(1, -1)
            return -1.0 if problem.separated(pairs, sets)[0] else math.inf

        for algorithm in ("rfci", "fci"):
            own = {name: value for name, value in limits.items() if algorithm == "fci" or name == "max_path_length"}
            found = find_pag(graph, problem, algorithm, limits=Limits(**own), tests=problem.tests())
            arguments = (own.get("max_possible_d_sep"), own.get("max_path_length"))
            assert np.array_equal(found.marks, reference_pag(graph, dependence, algorithm, *arguments))
