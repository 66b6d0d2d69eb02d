"""PAGs of the library and of the reference (baselines/latent.py), on every backend: the same marks."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from baselines.latent import _Search, reference_pag
from gpupc_impl import GaussianProblem, IndependenceOracle, skeleton
from gpupc_impl.backends import BACKENDS, backend_class
from gpupc_impl.core.family import open_tests
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.gaussian import canonical, single_tests
from gpupc_impl.latent import rules
from gpupc_impl.latent.inference import Inference, find_pag
from gpupc_impl.latent.mixed_graph import Claims, MixedGraph
from tests.golden.test_latent_pags import PAGS, linear_gaussian, oracle
from tests.latent_graphs import NoisyOracle


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


def by_oracle(problem):
    """An oracle's tests, one at a time."""

    def dependence(i, j, members):
        pairs, sets = np.array([[i, j]]), np.array([members], np.int64).reshape(1, -1)
        return -1.0 if problem.separated(pairs, sets)[0] else math.inf

    return dependence


@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
@pytest.mark.parametrize("backend", [available(name) for name in BACKENDS])
@pytest.mark.parametrize("seed", [2, 3, 97, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
def test_samples(seed, backend, algorithm, monkeypatch):
    monkeypatch.setattr(single_tests, "FEW_TESTS", 0)  # so that kernels make all tests
    values = linear_gaussian(14 + seed % 3, hidden=4, degree=3.5, samples=(60, 200, 1000)[seed % 3], seed=seed)
    problem = fixed_order_problem(values, alpha=(0.2, 0.1, 0.01)[seed % 3])
    graph = skeleton(problem)
    expected = reference_pag(graph, by_canonical_tests(problem), algorithm)
    assert np.array_equal(find_pag(graph, problem, Inference(algorithm), backend=backend).marks, expected)
    samples = GaussianProblem.from_data(values, alpha=problem.alpha, correlations="device")
    assert np.array_equal(find_pag(graph, samples, Inference(algorithm), backend=backend).marks, expected)
    assert "correlation" not in vars(samples)


@pytest.mark.parametrize("limits", [{}, {"max_possible_d_sep": 2, "max_path_length": 3}, {"max_path_length": 4}])
@pytest.mark.parametrize("numbers", [range(1000, 1600, 200), pytest.param(range(0, 1600, 8), marks=pytest.mark.slow)])
def test_oracles(numbers, limits):
    for number in numbers:
        p, hidden, arrows, *_ = PAGS[number]
        problem = oracle(int(p), int(hidden), arrows)
        assert isinstance(problem, IndependenceOracle)
        graph = problem.skeleton()
        for algorithm in ("rfci", "fci"):
            own = {name: value for name, value in limits.items() if algorithm == "fci" or name == "max_path_length"}
            found = find_pag(graph, problem, Inference(algorithm, **own), tests=problem.tests())
            arguments = (own.get("max_possible_d_sep"), own.get("max_path_length"))
            assert np.array_equal(found.marks, reference_pag(graph, by_oracle(problem), algorithm, *arguments))


@pytest.mark.parametrize(
    "numbers", [(100, 205, 415, 500, 930), pytest.param(range(0, 1000, 5), marks=pytest.mark.slow)]
)
def test_answers_that_contradict_each_other(numbers):
    """The first graphs are some in which triples, discriminating paths and Possible-D-SEP remove edges."""
    removed = 0
    for number in numbers:
        p, hidden, arrows, *_ = PAGS[number]
        exact = oracle(int(p), int(hidden), arrows)
        problem = NoisyOracle(exact.names, exact.alpha, exact.max_level, graph=exact.graph, observed=exact.observed)
        graph = problem.skeleton()
        for algorithm in ("rfci", "fci"):
            found = find_pag(graph, problem, Inference(algorithm), tests=problem.tests())
            removed += len(found.removed)
            assert np.array_equal(found.marks, reference_pag(graph, by_oracle(problem), algorithm))
    assert removed > 4


@pytest.mark.parametrize("rule", [f"rule_{k}" for k in (1, 2, 3, 5, 6, 7, 8, 9, 10)])
def test_rules(rule):
    """One application of a rule to random marks, of which graphs of samples and oracles have too few kinds."""
    changed = 0
    for seed in range(300):
        rng, p = np.random.default_rng(seed), 8
        i, j = np.triu_indices(p, 1)
        edges = np.stack([i, j], axis=1)[rng.random(len(i)) < rng.uniform(0.3, 0.6)]
        graph = MixedGraph(p, edges, np.empty((0, 2)))
        forward = graph.source < graph.target
        for some, common in ((forward, [2, 2, 0.2]), (~forward, [2, 0.2, 2])):
            graph.marks[some] = rng.choice([1, 2, 3], some.sum(), p=rng.dirichlet(common))
        adjacency, before = np.zeros((p, p), bool), np.zeros((p, p), np.uint8)
        adjacency[graph.source, graph.target] = True
        before[graph.source, graph.target] = graph.marks
        search = _Search(SimpleNamespace(names=range(p), adjacency=adjacency), None, None)
        search.marks, search.disputed = before.copy(), np.zeros((p, p), bool)
        search.apply(getattr(search, rule))
        claims = Claims(graph)
        getattr(rules, rule)(graph, claims)
        claims.apply()
        assert np.array_equal(graph.marks, search.marks[graph.source, graph.target])
        assert np.array_equal(graph.disputed, search.disputed[graph.source, graph.target])
        changed += not np.array_equal(search.marks, before)
    assert changed > 3
