"""Batches of tests of an edge whose sets share all members but the last, made together (kernels/batches.cu)."""

import math

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.discrete.declarations import BATCHES, MAX_BATCH_COLUMNS, MAX_BATCH_STRATA, batches_kernel
from gpupc_impl.discrete.level import NO_TESTS, Level, LevelTests, is_worth_waiting_for
from gpupc_impl.discrete.planes import Planes
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

BATCH_CELLS, BATCH_CELLS_IN_COMMON = 512, 256  # the most cells of a table: at level 1; if sets have members in common
BATCH_WORDS, BATCH_PARTS = 3584, 1024  # counts and parts of a warp, so that a multiprocessor holds 12 warps

BATCH_SETS, BATCH_RUN = 32, 4
"""Consecutive sets that a warp tests at once; and the lower bound on those of a row of mean length that share all
members but the last, for batches to be made: with fewer, starting a batch takes longer than it saves."""

BATCH_WARPS, WARPS_A_MULTIPROCESSOR, MAX_BATCH_BLOCKS = 4, 12, 1 << 15
"""Warps of a block, whose edges share an end so that they read the same planes; warps that a multiprocessor holds; and
the upper bound on the blocks of a launch in which several blocks share an edge."""

MAX_PLANE_WORDS = 1 << 33  # upper bound on the words of all planes that the kernel can index


class BatchedTests:
    """The tests that are made in batches: tests with small tables, all of whose variables have planes. `wanted` says
    whether batches may be made: on a GPU, where no shape of blocks is requested."""

    def __init__(self, problem: DiscreteProblem, backend: Backend, planes: Planes, wanted: bool):
        self._problem, self._backend, self._planes, self._wanted = problem, backend, planes, wanted

    def level(self, level: Level) -> tuple[Filled, LevelTests]:
        """Return the tests of a level that are made in batches, as a `BATCHES`, and their launch."""
        planes = self._planes
        long = level.busy_ends - level.busy >= BATCH_RUN * level.level * level.busy
        if not (self._wanted and long) or planes.bits is None or planes.bits.size >= MAX_PLANE_WORDS:
            return _no_batches(), NO_TESTS
        splits = self._blocks_an_edge(level)
        block_an_edge = self._is_block_an_edge(level, splits)
        kernel = batches_kernel(block_an_edge)
        if not is_worth_waiting_for(kernel, self._backend, self._problem, level):
            return _no_batches(), NO_TESTS
        first, second, *_ = descending = [*self._problem.descending, 1]
        strata, stride = math.prod(descending[: level.level]), first * second + first | 1
        words = min(2 * MAX_BATCH_COLUMNS * stride, BATCH_WORDS)
        parts = min(max(MAX_BATCH_COLUMNS // 2 * (strata // first), MAX_BATCH_COLUMNS), BATCH_PARTS)
        cells = BATCH_CELLS if level.level == 1 else BATCH_CELLS_IN_COMMON
        covered = [cells]  # Larger tables with the sums of their columns may not fit into a batch.
        if strata > parts:
            covered.append(2 * parts)
        if stride * first > words:
            covered.append(2 * words // 3)
        batches = BATCHES(cells=cells, words=words, parts=parts, splits=splits)
        all_have_planes = (planes.counts > 0).all()
        return batches, self._launch(level, batches, kernel, block_an_edge, min(covered) if all_have_planes else 0)

    def _blocks_an_edge(self, level: Level) -> int:
        """Return how many blocks share an edge's sets, since an edge that stays may have hundreds and others none."""
        most = max(1, MAX_GRID_Y // level.max_degree)
        blocks = max(level.busy, 1) * ceil_div(level.max_degree, BATCH_WARPS)
        return max(1, min(MAX_BATCH_BLOCKS // blocks, ceil_div(level.most_sets, BATCH_SETS), most))

    def _is_block_an_edge(self, level: Level, splits: int) -> bool:
        """Return whether a block's warps share one edge's tests, since there are too few edges for one each."""
        warps_at_once = WARPS_A_MULTIPROCESSOR * self._backend.multiprocessors
        return level.edges_with_tests * splits * BATCH_WARPS <= warps_at_once

    def _launch(
        self, level: Level, batches: Filled, source: KernelSource, block_an_edge: bool, covered: int
    ) -> LevelTests:
        """Return the launch of batches, in which a warp or a block takes an edge."""
        backend, splits = self._backend, batches.values["splits"]
        doubles = batch_doubles(level.level, batches.values["words"], batches.values["parts"])
        edges = 1 if block_an_edge else min(BATCH_WARPS, max(1, backend.max_shared_bytes // (8 * doubles)))
        grid = max(level.busy, 1), min(ceil_div(level.max_degree, edges) * splits, MAX_GRID_Y)
        block = ((BATCH_WARPS if block_an_edge else edges) * backend.warp_threads,)
        after = [batches, level.busy_rows, np.int32(level.busy), np.int32(doubles)]
        kernel = backend.kernel(*source)

        def launch(arguments: list) -> None:
            _, *others = arguments  # Batches need no codes.
            kernel(grid, block, [self._planes.variables, *others, *after], shared_bytes=8 * edges * doubles)

        return LevelTests(covered, launch)


def batch_doubles(level: int, words: int, parts: int) -> int:
    """Return the shared memory of a batch in units of 8 bytes (batches.cu, Room)."""
    ints = 2 * MAX_BATCH_COLUMNS + level + 1 + MAX_BATCH_STRATA * (level - 1) + words
    return parts + 32 + ceil_div(ints, 2)


def _no_batches() -> Filled:
    """Return a `BATCHES` of none. It is no constant, as a struct caches its bytes and keeps its backend alive."""
    return BATCHES(cells=0, words=0, parts=0, splits=1)
