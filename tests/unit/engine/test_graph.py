"""The graph of a search between levels, on the host backend."""

import math

import numpy as np
import pytest

from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.result import NO_PAIRS
from gpupc_impl.engine.graph import DeviceGraph

NONE_FIXED = FixedPairs(NO_PAIRS, NO_PAIRS)


def ring(p: int, reach: int) -> np.ndarray:
    """(p, p) bool: the graph in which each variable is next to the `reach` variables on either side."""
    distance = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    distance = np.minimum(distance, p - distance)
    return (distance > 0) & (distance <= reach)


@pytest.mark.parametrize("levels_ahead", [0, 2])
def test_binomials_suffice_for_each_level_and_row(backend, levels_ahead):
    """A table is made again when a level is too high for it or a row too long, as rows are in a part of a level."""
    p, last = 14, 0
    graph, tables = DeviceGraph(backend, p, levels_ahead=levels_ahead), []
    for level, reach in enumerate([5, 4, 4, 6, 2, 1], start=1):
        graph.restart(ring(p, reach), NONE_FIXED)
        rows = graph.compact(level)
        assert rows.max_degree == 2 * reach
        table = backend.download(rows.binomials)
        assert table.shape[1] == rows.widest + 1 > rows.max_degree
        for k in range(level + 1):
            assert table[k].tolist() == [math.comb(m, k) for m in range(rows.widest + 1)]
        if not tables or rows.binomials is not tables[-1]:
            tables.append(rows.binomials)
            last = len(table) - 1
            assert last == level + levels_ahead
        assert level <= last
    assert len(tables) == (6 if levels_ahead == 0 else 2)


def test_counts_follow_the_edges(backend):
    graph = DeviceGraph(backend, 14)
    assert (graph.edges_left, graph.max_degree) == (91, 13)
    for reach in (3, 1, 6):
        graph.restart(ring(14, reach), NONE_FIXED)
        assert (graph.edges_left, graph.max_degree) == (14 * reach, 2 * reach)
        assert backend.download(graph.degrees).tolist() == [2 * reach] * 14
