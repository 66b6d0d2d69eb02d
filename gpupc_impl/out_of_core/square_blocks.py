"""Levels 0 and 1 in the paper's square blocks (Out-of-Core, section 4.2, Algorithm 2; kernels/pair_blocks.cu)."""

import functools
import itertools
from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.graph import NO_KEY, ROWS
from gpupc_impl.gaussian.pair_block import DENSE, PAIR_BLOCK, tile_launch
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import host_blocks, separations
from gpupc_impl.out_of_core.host_blocks import in_threads, length, upper_blocks
from gpupc_impl.out_of_core.level import Level
from gpupc_impl.out_of_core.pipelines import Pipeline
from gpupc_impl.out_of_core.plans import block_arrays, result_arrays, set_block_arrays, words

SOURCE = "out_of_core/kernels/pair_blocks.cu"
ZERO = KernelSource(SOURCE, "level_zero_block")
RANKS = KernelSource(SOURCE, "rank_members", (ROWS,))
EDGES = KernelSource(SOURCE, "level_one_edges", (PAIR_BLOCK,))
ZERO_THREADS = 128
EDGE_THREADS = {"cuda": (32, 8), "host": (1, 32)}  # (threads per edge, edges): on a GPU a warp reads a row


def level_zero_launch(c: Any, i0: int, j0: int, critical_r_squared: float, edges: Any) -> tuple[Any, ...]:
    """The launch that decides the pairs of a block: kernel, grid, thread block, arguments. `c`, (n_i, n_j) float64, are
    correlations of variables from `i0` and `j0` on; `edges`, (n_i, words) uint32, receives a bit for each pair."""
    numbers = map(np.int32, (*c.shape, i0, j0))
    arguments = [c, *numbers, np.float64(critical_r_squared), edges, np.int32(edges.shape[1])]
    return ZERO, (ceil_div(edges.size, ZERO_THREADS),), (ZERO_THREADS,), arguments


def level_one_launch(
    backend: str, n_i: int, n_j: int, in_tiles: bool, residual_tolerance: float
) -> tuple[KernelSource, tuple[int, ...], tuple[int, ...]]:
    """The kernel of level 1 for a block of n_i x n_j pairs, its grid and its thread block."""
    return tile_launch(n_i, n_j, residual_tolerance) if in_tiles else (EDGES, (n_i,), EDGE_THREADS[backend])


class PairResults:
    """The results of a block of pairs in a pipeline, which are merged into the level after `fetch`. `members`, (rows,
    columns) uint32 on the device, has the member of each pair's set in its `MEMBER` bits, or `NO_MEMBER`; kernels
    may use the other bits. `pairs` and `share` are the block's edges i < j, and their share of the cells."""

    def __init__(self, level: Level, pipeline: Pipeline, rows: slice, columns: slice):
        self.level, self.pipeline, self.rows, self.columns = level, pipeline, rows, columns
        arrays = result_arrays(length(rows), length(columns), level.run.pmax)
        self._areas = {name: pipeline.area(name, *array) for name, array in arrays.items()}
        for _, device in self._areas.values():
            pipeline.stream.fill_bytes(device, 0xFF)
        _, self.members = self._areas["keys"]
        _, self.smallest = self._areas.get("smallest", (None, None))  # uint64, bits of the smallest r^2
        # The columns are a part of the rows, or follow the rows.
        graph, before = level.adjacency, slice(rows.start, min(rows.stop, columns.start))
        self.pairs, cells = int(np.count_nonzero(graph[before, columns])), length(before) * length(columns)
        if columns.start < rows.stop:
            self.pairs += int(np.count_nonzero(graph[columns, columns])) // 2
            cells += length(columns) * (length(columns) - 1) // 2
        self.share = self.pairs / max(cells, 1)

    def test(self, pipeline: Pipeline, members: slice, *, in_tiles: bool, **fields: Any) -> None:
        """Queue the tests with the separation-set block of some members; `fields` are those of `PAIR_BLOCK` for the
        correlations and bits of the pairs and of that block."""
        level, n_i, n_j, tolerance = self.level, *self.members.shape, self.level.problem.residual_tolerance
        argument = PAIR_BLOCK(
            **fields,
            keys=self.members,
            min_r_squared=self.smallest,
            counters=level.counters,
            width=length(members),
            n_i=n_i,
            n_j=n_j,
            i0=self.rows.start,
            j0=self.columns.start,
            s0=members.start,
            critical_r_squared=level.critical_r_squared,
            residual_tolerance=tolerance,
            first_come=level.first_come,
        )
        pipeline.launch(*level_one_launch(level.backend.name, n_i, n_j, in_tiles, tolerance), [argument])

    def fetch(self) -> None:
        self.pipeline.download(self._merge, *self._areas.values())

    def _merge(self) -> None:
        fixed, first = self.level.problem.fixed, np.array([self.rows.start, self.columns.start])
        keys, _ = self._areas["keys"]
        if fixed is not None:  # The kernels test required edges like all others; their results are dropped.
            i, j = fixed.required[((fixed.required >= first) & (fixed.required - first < keys.shape)).all(axis=1)].T
            for results, _ in self._areas.values():
                results[i - first[0], j - first[1]] = np.iinfo(results.dtype).max
        if "smallest" in self._areas:
            smallest, _ = self._areas["smallest"]
            i, j = np.nonzero(smallest != NO_KEY)
            self.level.record_p_values(i + first[0], j + first[1], smallest[i, j])
        self.level.tested += self.pairs
        self.level.separations += separations.find(keys, self.rows, self.columns)


class LevelZero(Level):
    """Level 0 in square blocks of the upper triangle."""

    def search(self) -> LevelOutcome:
        problem, pipelines, largest_p = self.problem, self.pipelines, self.largest_p
        pipelines.allocate(block_arrays(self.plan.rows))
        for rows, columns in upper_blocks(self.p, self.plan.rows):
            pipeline = pipelines.next()
            n_i, n_j, n_words = length(rows), length(columns), words(length(columns))
            c, device_c = pipeline.area("c", (n_i, n_j), np.float64)
            edges, device_edges = pipeline.area("edges", (n_i, n_words), np.uint32)
            with pipeline.on_host("extract"):
                host_blocks.read(problem.correlation, rows, columns, c)
                if largest_p is not None:
                    largest_p[rows, columns] = problem.p_value(np.square(c), 0)
                    largest_p[columns, rows] = largest_p[rows, columns].T
            pipeline.upload((device_c, c))
            pipeline.launch(
                *level_zero_launch(device_c, rows.start, columns.start, self.critical_r_squared, device_edges)
            )
            pipeline.download(functools.partial(self._merge, rows, columns, edges), (edges, device_edges))
        pipelines.finish()
        if largest_p is not None:
            np.fill_diagonal(largest_p, np.nan)
        if problem.fixed is not None:
            problem.fixed.apply(self.adjacency)
        return LevelOutcome(*self.count(), tests=problem.tests_of_level_zero)

    def _merge(self, rows: slice, columns: slice, edges: np.ndarray) -> None:
        graph, width = self.adjacency, length(columns)
        block = graph[rows, columns]

        def unpack(part: slice) -> None:
            bits = edges[part].view(np.uint8)
            block[part] = np.unpackbits(bits, axis=1, count=width, bitorder="little").view(bool)

        in_threads(unpack, mapped_arrays.pieces(length(rows), max(1, separations.PAIRS_AT_ONCE // width)))
        separations.mirror(graph, rows, columns)


class SquareBlocks(Level):
    """Level 1, in which a block of pairs stays on the device, and separation-set blocks are uploaded in turn."""

    def search(self) -> LevelOutcome:
        side = self.plan.rows
        self.pipelines.pairs.allocate({**block_arrays(side), **result_arrays(side, side, self.run.pmax)})
        self.pipelines.allocate(set_block_arrays(side))
        for rows, columns in upper_blocks(self.p, side):
            if self.adjacency[rows, columns].any():
                self._test_block(rows, columns)
        return self.remove_separated(*separations.in_order(self.separations, self.p))

    def _test_block(self, rows: slice, columns: slice) -> None:
        """Test one block of pairs (Algorithm 2, lines 9 to 19)."""
        graph, pipelines, edge_words = self.adjacency, self.pipelines, words(length(columns))
        pair_pipeline = pipelines.begin(pipelines.pairs)
        with pair_pipeline.on_host("extract"):
            areas = self.extract(pair_pipeline, rows, columns, ("c", "edges"), edge_words)
        pair_pipeline.upload(*areas)
        results = PairResults(self, pair_pipeline, rows, columns)
        pairs = {"c_pitch": length(columns), "edge_words": edge_words, "edges_first": 0}
        pairs |= zip(("c", "edges"), (device for device, _ in areas), strict=True)
        # If so many cells are edges, testing all cells is faster than testing edge by edge.
        in_tiles = results.smallest is None and results.share >= DENSE
        ready = pair_pipeline.stream.record()
        sides = [rows] if rows == columns else [rows, columns]
        for members in mapped_arrays.pieces(self.p, self.plan.columns):
            if not any(graph[part, members].any() for part in sides):
                continue  # the paper's SepSetCombination: these pairs have no set with a member in this block
            pipeline = pipelines.next()
            near = {"pitch": length(members), "words": words(length(members))}
            with pipeline.on_host("extract"):
                areas = [
                    self.extract(pipeline, part, members, (f"c_{name}", f"bits_{name}"), near["words"])
                    for name, part in zip("ij", sides, strict=False)
                ]
            pipeline.upload(*itertools.chain(*areas))
            pipeline.stream.wait(ready)  # for the keys that the previous separation-set block has written
            devices = [device for device, _ in (*areas[0], *areas[-1])]
            near |= zip(("rows_i", "bits_i", "rows_j", "bits_j"), devices, strict=True)
            results.test(pipeline, members, in_tiles=in_tiles, **near, **pairs)
            ready = pipeline.stream.record()
        pair_pipeline.stream.wait(ready)
        results.fetch()
        pipelines.finish()
        pair_pipeline.finish()
