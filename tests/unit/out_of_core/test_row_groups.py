"""Groups of rows that are gathered together, and blocks of a row that is split."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.out_of_core import memory_plan, row_groups
from gpupc_impl.out_of_core.split_rows import compositions


def random_graph(seed: int, p: int, density: float) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).random((p, p)) < density, 1)
    return upper | upper.T


@given(st.integers(0, 100), st.integers(2, 60), st.floats(0, 0.5), st.floats(1, 8), st.booleans())
def test_groups_hold_every_row_once_with_all_it_needs(seed, p, density, room, pmax):
    graph = RowGraph.from_matrix(random_graph(seed, p, density))
    rows = graph.order()[graph.degrees[graph.order()] >= 2]
    single = [memory_plan.cluster_bytes(len(graph.row(i)) + 1, 1, len(graph.row(i)), pmax) for i in rows]
    limit = int(room * max(single, default=1))
    batches = list(row_groups.batches(row_groups.clusters(graph, rows, limit, pmax), limit, pmax))
    groups = list(itertools.chain(*batches))
    assert [i for group in groups for i in group.rows] == rows.tolist()
    for group in groups:
        assert set(group.members) == {*group.rows, *(j for i in group.rows for j in graph.row(i))}
        assert group.slots == sum(len(graph.row(i)) for i in group.rows)
    for batch in batches:
        assert sum(group.nbytes(pmax) for group in batch) <= limit
    moved = sum(len(group.members) ** 2 for group in groups)
    assert moved <= sum((len(graph.row(i)) + 1) ** 2 for i in rows)


def test_rows_that_share_their_neighbours_are_gathered_together():
    adjacency = np.zeros((40, 40), bool)
    for start in (0, 10, 20, 30):  # four cliques, their variables scattered
        members = np.arange(start, start + 10) * 7 % 40
        adjacency[np.ix_(members, members)] = True
    np.fill_diagonal(adjacency, False)
    graph = RowGraph.from_matrix(adjacency)
    groups = list(row_groups.clusters(graph, graph.order(), 10**6, False))
    assert [len(group.members) for group in groups] == [10] * 4


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 12))
def test_compositions_cover_all_sets_once(n, level, piece):
    lengths = [min(piece, n - start) for start in range(0, n, piece)]
    chosen_counts = list(compositions(lengths, level))
    assert len({tuple(sorted(chosen.items())) for chosen in chosen_counts}) == len(chosen_counts)
    sets = sum(math.prod(math.comb(lengths[b], count) for b, count in chosen.items()) for chosen in chosen_counts)
    assert sets == math.comb(n, level)
