"""Indexes beyond 2^31: more than 46,340 variables have more pairs than 32 bits can number.

The real kernels run on arrays of full size of which only a few pages are ever touched, so this takes little memory.
"""

import math

import numpy as np
import pytest

from gpupc_impl import DeviceMemoryError, GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.engine import graph
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY, binomial_table
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.level_search import SEARCH
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.square_blocks import EDGES
from tests.graphs import linear_samples

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))

P = 46_400
VARIABLES = np.array([0, 1, 46_340, 46_341, 46_342, 46_397, 46_398, 46_399])
"""The variables that have edges; products of most of them exceed 2^31."""


@pytest.fixture(scope="module")
def small() -> GaussianProblem:
    """A problem of these variables alone."""
    data = linear_samples(len(VARIABLES), 300, density=0.6, seed=2)
    data[:, 6] = data[:, 2]
    return GaussianProblem.from_data(data, alpha=0.05, max_level=3)


class Sparse:
    """Device arrays of which only the cells between the variables are written and read."""

    def __init__(self):
        self.backend = open_backend("host", 2**60)

    def matrix(self, dtype, cells: np.ndarray | int):
        try:
            array = self.backend.empty((P, P), dtype)
        except DeviceMemoryError as error:
            pytest.skip(f"the system grants no address space for {P} x {P}: {error}")
        array[np.ix_(VARIABLES, VARIABLES)] = cells
        return array

    def launch(self, kernel: str, arguments: list) -> None:
        """Launch a kernel of the graph on all rows."""
        self.backend.kernel(*graph.KERNELS[kernel])((P,), (graph.ROW_THREADS,), arguments)

    def cells(self, array) -> np.ndarray:
        return np.array(array[np.ix_(VARIABLES, VARIABLES)])


@pytest.mark.parametrize(
    ("source", "name", "grid", "block", "whole_row"),
    [
        ("gaussian/kernels/cupc_s.cu", "cupc_s", (P, 1), (4, 1), True),
        pytest.param("gaussian/kernels/cupc_e.cu", "cupc_e", (P, 1), (2, 2), False, marks=pytest.mark.slow),
        pytest.param("gaussian/kernels/cupc_e.cu", "baseline_2", (P, 1), (32, 1), False, marks=pytest.mark.slow),
    ],
)
def test_kernels_of_the_levels(small, source, name, grid, block, whole_row):
    """The kernel of each level, removal and listing work on the small graph embedded in a large one."""
    sparse, k = Sparse(), len(VARIABLES)
    backend, launch = sparse.backend, sparse.launch
    expected = solve(small, get_method("cupc-s"), open_backend("host"))
    correlation = sparse.matrix(np.float64, small.correlation)
    best = sparse.matrix(np.uint64, NO_KEY)
    assert expected.levels_run == 4
    for level in (1, 2, 3):
        here = expected.adjacency_at(level)
        edges = sparse.matrix(np.uint8, here)
        best[np.ix_(VARIABLES, VARIABLES)] = NO_KEY
        degrees = backend.full(P, 0, np.int32)
        degrees[VARIABLES] = here.sum(axis=1)
        stride = P - 1  # as for a graph with a variable next to all others
        try:
            rows = backend.empty((P, stride), np.int32)
        except DeviceMemoryError as error:
            pytest.skip(str(error))
        for i, near in zip(VARIABLES, here, strict=True):
            rows[i, : near.sum()] = VARIABLES[near]
        binomials = backend.upload(binomial_table(k, level))
        counters = backend.full(COUNTER_SHAPE, 0, np.uint64)
        rows_argument = graph.ROWS(
            neighbours=rows, degrees=degrees, binomial=graph.BINOMIALS(table=binomials, max_n=k), p=P, stride=stride
        )
        limits = {"critical_r_squared": small.critical_r_squared(level), "pivot_tolerance": small.pivot_tolerance}
        limits |= {"residual_tolerance": small.residual_tolerance, "min_r_squared": None, "level": level}
        keys = graph.BEST_KEYS(keys=best, p=P, first_come=False)
        search = SEARCH(C=correlation, best=keys, counters=counters, **limits)
        kernel = backend.kernel(source, f"{name}<Exactly<{level}>>", [graph.ROWS, SEARCH])
        kernel(grid, block, [rows_argument, search, np.bool_(True)], shared_bytes=4 * k)
        removed = backend.full(P, 0, np.int32)
        left, totals = backend.full(P, 0, np.int32), backend.full(2, 0, np.uint64)
        launch("remove_separated", [rows_argument, best, edges, removed, left, totals])
        after = expected.adjacency_at(level + 1)
        assert np.array_equal(sparse.cells(edges), after)
        assert np.array_equal(left[VARIABLES], after.sum(axis=1))
        assert totals.tolist() == [after.sum(), after.sum(axis=1).max()]
        count = int(removed.sum())
        assert count == (here.sum() - after.sum()) // 2
        pairs, sets = backend.empty((count, 2), np.int32), backend.empty((count, level), np.int32)
        numbers = [np.int32(level), np.bool_(whole_row)]
        launch("list_separated", [rows_argument, *numbers, best, removed, pairs, sets])
        of_level = expected.sepsets.sizes() == level
        assert np.array_equal(pairs, VARIABLES[expected.sepsets.pairs[of_level]])
        members = expected.sepsets.members[np.repeat(of_level, expected.sepsets.sizes())]
        assert np.array_equal(sets.ravel(), VARIABLES[members])


def test_degrees_and_compaction_of_the_last_rows(small):
    """Compaction and counting work on the small graph embedded in a large one."""
    sparse, p = Sparse(), np.int32(P)
    backend, launch = sparse.backend, sparse.launch
    adjacency = solve(small, get_method("cupc-s"), open_backend("host")).adjacency
    edges = sparse.matrix(np.uint8, adjacency)
    degrees, totals = backend.full(P, 0, np.int32), backend.full(2, 0, np.uint64)
    launch("count_degrees", [edges, p, degrees, totals])
    assert np.array_equal(degrees[VARIABLES], adjacency.sum(axis=1))
    assert totals.tolist() == [adjacency.sum(), adjacency.sum(axis=1).max()]
    stride = P - 1
    rows = backend.empty((P, stride), np.int32)
    launch("compact", [edges, p, rows, np.int32(stride)])
    for i, near in zip(VARIABLES, adjacency, strict=True):
        assert np.array_equal(rows[i, : near.sum()], VARIABLES[near])


@pytest.mark.parametrize("kernel", [EDGES, pair_block.TILES["true"]], ids=lambda kernel: kernel.expression)
def test_panels_longer_than_two_to_the_31(kernel):
    """Level 1 works on the last rows of a panel of all rows, which begin beyond 2^31 entries."""
    backend = open_backend("host", 2**60)
    n_words, first = ceil_div(P, 32), P - 3
    try:
        panel, bits = backend.empty(P * P, np.float64), backend.empty(P * n_words, np.uint32)
    except DeviceMemoryError as error:
        pytest.skip(str(error))
    assert first * P > 2**31
    rows = np.zeros((3, P))
    rows[:, P - 3 :] = [[1, 0.6, 0.36], [0.6, 1, 0.6], [0.36, 0.6, 1]]  # P - 2 separates its neighbours
    graph = np.zeros((3, P), bool)
    graph[:, P - 3 :] = ~np.eye(3, dtype=bool)
    panel[first * P :] = rows.ravel()
    packed = np.zeros((3, 4 * n_words), np.uint8)
    packed[:, : ceil_div(P, 8)] = np.packbits(graph, axis=1, bitorder="little")
    bits[first * n_words :] = packed.view(np.uint32).ravel()
    keys, counters = backend.full((P, 3), 2**32 - 1, np.uint32), backend.full(COUNTER_SHAPE, 0, np.uint64)
    for i in range(first):  # no edges elsewhere: the words that hold the three columns
        bits[i * n_words + first // 32 : (i + 1) * n_words] = 0
    grid, block = ((P,), (1, 4)) if kernel == EDGES else ((1, math.ceil(P / 64)), (16, 16))
    rows = {"rows_i": panel, "rows_j": panel[first * P :], "c": panel[first:], "keys": keys, "counters": counters}
    rows |= {"bits_i": bits, "bits_j": bits[first * n_words :], "edges": bits, "min_r_squared": None}
    rows |= {"words": n_words, "edge_words": n_words} | dict.fromkeys(("pitch", "c_pitch", "width", "n_i"), P)
    rows |= {"n_j": 3, "i0": 0, "j0": first, "s0": 0, "edges_first": first, "first_come": False}
    block_of_pairs = pair_block.PAIR_BLOCK(**rows, critical_r_squared=0.01, residual_tolerance=1e-10)
    backend.kernel(*kernel)(grid, block, [block_of_pairs])
    assert keys[P - 3, 2] == P - 2
    assert (keys[:first] == 2**32 - 1).all()
    assert counters.sum(axis=0)[0] == 3
