"""Distances to a true graph, against causal-learn's own CPDAGs and structural Hamming distances."""

import numpy as np
import pytest

from gpupc_impl.core.orientation import CPDAG, equivalence_class
from gpupc_impl.verification.accuracy import (
    dag_of_edges,
    skeleton_differences,
    structural_hamming_distance,
    with_arrows,
)
from tests.graphs import causallearn_cpdag, make_skeleton, random_dag

causal_learn = pytest.importorskip("causallearn")

from causallearn.graph.SHD import SHD  # noqa: E402


def cpdag(directed, undirected):
    skeleton = make_skeleton(len(directed), np.argwhere(directed | undirected))
    return CPDAG(directed, undirected, np.empty((0, 2), np.int64), skeleton)


@pytest.mark.parametrize("seed", range(40))
def test_the_cpdag_of_a_dag_is_causal_learns(seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(int(rng.integers(2, 12)), rng.uniform(0.1, 0.9), rng)
    directed, undirected = equivalence_class(dag)
    marks = causallearn_cpdag(dag).graph  # [j, i] = 1 and [i, j] = -1 for i -> j; both -1 without a direction
    assert np.array_equal(directed, (marks == -1) & (marks.T == 1))
    assert np.array_equal(undirected, (marks == -1) & (marks.T == -1))


@pytest.mark.parametrize("seed", range(40))
def test_the_distance_of_cpdags_is_causal_learns(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 10))
    truth, found = (random_dag(p, rng.uniform(0.1, 0.8), rng) for _ in range(2))
    theirs = SHD(causallearn_cpdag(truth), causallearn_cpdag(found)).get_shd()
    assert structural_hamming_distance(cpdag(*equivalence_class(found)), truth) == theirs


def test_the_truth_is_found_wholly():
    dag = dag_of_edges([(0, 2), (1, 2), (2, 3)], 4)
    assert structural_hamming_distance(cpdag(*equivalence_class(dag)), dag) == 0


def test_arrows_of_another_program():
    found = cpdag(dag_of_edges([], 3), dag_of_edges([(0, 1), (1, 0), (1, 2), (2, 1)], 3)).skeleton
    graph = with_arrows(found, [(0, 1)])
    assert graph.to_frame().values.tolist() == [["V0", "V1", "directed"], ["V1", "V2", "undirected"]]
    with pytest.raises(ValueError, match="V0 -> V2 is an arrow, and the skeleton has no such edge"):
        with_arrows(found, [(0, 2)])


def test_missing_and_extra_edges_of_a_skeleton():
    found = cpdag(dag_of_edges([], 4), dag_of_edges([(0, 1), (1, 0), (2, 3), (3, 2)], 4)).skeleton
    dag = dag_of_edges([(1, 0), (1, 2), (1, 3)], 4)
    assert skeleton_differences(found, dag) == (2, 1)


def test_no_edges():
    assert not dag_of_edges([], 3).any()
    assert structural_hamming_distance(cpdag(dag_of_edges([], 3), dag_of_edges([], 3)), dag_of_edges([(0, 1)], 3)) == 1


def test_a_network_with_a_cycle_is_compared_by_its_edges():
    cyclic = dag_of_edges([(0, 1), (1, 2), (2, 0), (2, 3)], 4)
    found = dag_of_edges([(0, 1), (1, 3)], 4)  # one edge is right, three are missing and one is extra
    assert structural_hamming_distance(cpdag(found, np.zeros_like(found)), cyclic) == 4
