"""Rows of a graph on the host, and the sets that keys name."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.engine.graph import NO_KEY, binomial_table
from gpupc_impl.engine.row_graph import SECOND_SIDE, RowGraph, unrank
from tests.unit.engine.test_bit_graph import random_graph


@given(st.integers(0, 100), st.integers(1, 80), st.floats(0, 1))
def test_rows_of_a_graph(seed, p, density):
    adjacency = random_graph(p, density, seed)
    graph = RowGraph.from_matrix(adjacency, rows_at_once=7)
    assert graph.degrees.tolist() == adjacency.sum(axis=1).tolist()
    owner = np.repeat(np.arange(p), graph.degrees)
    assert np.array_equal(np.stack([owner, graph.neighbours], axis=1), np.argwhere(adjacency))
    assert np.array_equal(owner[graph.reverse], graph.neighbours)
    assert np.array_equal(graph.neighbours[graph.reverse], owner)
    assert sorted(graph.order().tolist()) == list(range(p))
    of_pairs = RowGraph.from_pairs(np.argwhere(np.triu(adjacency)), p)
    for name in ("starts", "neighbours", "reverse"):
        assert np.array_equal(getattr(of_pairs, name), getattr(graph, name))
    rows = np.random.default_rng(seed).permutation(p)
    slots = [slot for i in rows for slot in range(graph.starts[i], graph.starts[i + 1])]
    assert graph.row_slots(rows).tolist() == slots
    pairs = np.argwhere(np.triu(adjacency))
    first, second = np.split(graph.edge_slots(pairs), 2)
    assert np.array_equal(np.stack([owner[first], graph.neighbours[first]], axis=1), pairs)
    assert np.array_equal(second, graph.reverse[first])


def test_a_key_names_the_set_of_its_side():
    """Of the keys that both rows of an edge have found, the smaller one counts."""
    graph = RowGraph.from_pairs(np.array([[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]), 4)
    keys = np.full(10, NO_KEY, np.uint64)
    slot = {(i, int(j)): graph.starts[i] + k for i in range(4) for k, j in enumerate(graph.row(i))}
    keys[slot[0, 3]], keys[slot[3, 0]] = 1, SECOND_SIDE
    keys[slot[3, 1]] = SECOND_SIDE | np.uint64(2)
    pairs, sets = graph.separated(keys, 1)
    assert pairs.tolist() == [[0, 3], [1, 3]]
    assert sets.tolist() == [[2], [2]]  # the second neighbour of 0, and the third of 3
    assert pairs.dtype == sets.dtype == np.int32


@given(st.lists(st.integers(5, 14), min_size=1, max_size=5), st.integers(1, 5))
def test_ranks_are_unranked_as_the_kernels_do(sizes, level):
    for n in sizes:
        every = list(itertools.combinations(range(n), level))
        ranks = np.arange(len(every), dtype=np.uint64)
        assert unrank(ranks, np.full(len(every), n), level).tolist() == [list(members) for members in every]
    last = np.array([math.comb(n, level) - 1 for n in sizes], np.uint64)
    expected = [list(range(n - level, n)) for n in sizes]
    assert unrank(last, np.array(sizes), level).tolist() == expected


def test_ranks_near_the_largest():
    n = 100_000
    last = math.comb(n, 3) - 1
    assert int(binomial_table(n, 3)[3, n]) == last + 1
    assert unrank(np.array([0, last], np.uint64), np.array([n, n]), 3).tolist() == [[0, 1, 2], [n - 3, n - 2, n - 1]]
