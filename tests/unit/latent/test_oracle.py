"""The oracle of d-separation, against networkx."""

import itertools

import networkx
import numpy as np
import pytest

from gpupc_impl import IndependenceOracle, InvalidProblem, fci
from tests.graphs import random_dag


@pytest.mark.parametrize("seed", range(5))
def test_every_separation_of_a_graph_is_that_of_networkx(seed):
    rng = np.random.default_rng(seed)
    graph = random_dag(8, 3 / 7, rng)
    hidden = rng.choice(8, 2, replace=False).tolist()
    oracle, beside = IndependenceOracle.from_graph(graph, hidden=hidden), networkx.DiGraph(np.argwhere(graph).tolist())
    beside.add_nodes_from(range(8))
    answers = set()
    for size in range(5):
        for i, j in itertools.combinations(range(6), 2):
            sets = np.array(list(itertools.combinations([k for k in range(6) if k not in (i, j)], size)), np.int64)
            found = oracle.separated(np.tile([[i, j]], (len(sets), 1)), sets.reshape(len(sets), size))
            seen = oracle.observed
            given = [set(seen[list(members)]) for members in sets]
            expected = [networkx.is_d_separator(beside, {seen[i]}, {seen[j]}, each) for each in given]
            assert found.tolist() == expected
            answers.update(expected)
    assert answers == {True, False}


def test_ancestors():
    graph = np.zeros((4, 4), bool)
    graph[0, 1] = graph[1, 2] = True
    oracle = IndependenceOracle.from_graph(graph, hidden=[1], names=["a", "c", "d"])
    assert oracle.ancestral().tolist() == [[True, True, False], [False, True, False], [False, False, True]]
    assert oracle.names == ("a", "c", "d")


@pytest.mark.parametrize(
    ("graph", "hidden", "said"),
    [
        (np.zeros((2, 3)), [], r"shape \(2, 3\); it must be a square matrix"),
        (np.array([[0, 1], [1, 0]]), [], "has a directed cycle"),
        (np.eye(3), [], "has a directed cycle"),
        (np.zeros((3, 3)), [3], "hidden has 3; the graph's variables are 0 to 2"),
        (np.zeros((3, 3)), [1.5], r"hidden has 1\.5; the graph's variables are 0 to 2"),
        (np.zeros((3, 3)), ["b"], "hidden has 'b'; the graph's variables are 0 to 2"),
        (np.zeros((3, 3)), [False, True, False], "hidden has False; the graph's variables are 0 to 2"),
    ],
)
def test_bad_graphs_are_named(graph, hidden, said):
    with pytest.raises(InvalidProblem, match=said):
        IndependenceOracle.from_graph(graph, hidden=hidden)


def test_hidden_variables_may_come_one_by_one_and_limits_are_checked():
    assert IndependenceOracle.from_graph(np.zeros((3, 3)), hidden=iter([1])).observed.tolist() == [0, 2]
    with pytest.raises(InvalidProblem, match="max_level is -1; it must be a whole number of at least 0, or None"):
        IndependenceOracle.from_graph(np.zeros((3, 3)), max_level=-1)


def test_an_oracle_takes_no_options():
    with pytest.raises(InvalidProblem, match="leave max_level out"):
        fci(IndependenceOracle.from_graph(np.zeros((3, 3))), max_level=1)
