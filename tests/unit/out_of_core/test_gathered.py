"""Groups of rows that are gathered together."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.out_of_core.gathered import batches, groups
from gpupc_impl.out_of_core.plans import group_bytes


@given(st.integers(0, 100), st.integers(2, 60), st.floats(0, 0.5), st.floats(1, 8), st.booleans())
def test_groups_hold_every_row_once_with_all_it_needs(seed, p, density, room, pmax):
    upper = np.triu(np.random.default_rng(seed).random((p, p)) < density, 1)
    graph = RowGraph.from_matrix(upper | upper.T)
    rows = graph.order()[graph.degrees[graph.order()] >= 2]
    limit = int(room * group_bytes(graph.degrees + 1, 1, graph.degrees, pmax).max())
    found = list(batches(graph, rows, limit, pmax))
    in_batches = list(itertools.chain(*found))
    assert [i for group in in_batches for i in group.rows] == rows.tolist()
    for group in in_batches:
        assert set(group.members) == {*group.rows, *(j for i in group.rows for j in graph.row(i))}
        assert group.slots == sum(len(graph.row(i)) for i in group.rows)
    for batch in found:
        assert sum(group_bytes(len(each.members), len(each.rows), each.slots, pmax) for each in batch) <= limit
    moved = sum(len(group.members) ** 2 for group in in_batches)
    assert moved <= sum((len(graph.row(i)) + 1) ** 2 for i in rows)


def test_rows_that_share_their_neighbours_are_gathered_together():
    adjacency = np.zeros((40, 40), bool)
    for start in (0, 10, 20, 30):  # four cliques, their variables scattered
        members = np.arange(start, start + 10) * 7 % 40
        adjacency[np.ix_(members, members)] = True
    np.fill_diagonal(adjacency, False)
    graph = RowGraph.from_matrix(adjacency)
    assert [len(group.members) for group in groups(graph, graph.order(), 10**6, False)] == [10] * 4
