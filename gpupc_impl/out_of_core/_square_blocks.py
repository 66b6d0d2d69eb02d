"""Levels 0 and 1 in the paper's square blocks (Out-of-Core, section 4.2, Algorithm 2)."""

from __future__ import annotations

import functools

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import _plan, _removed
from gpupc_impl.out_of_core._layout import Layout, length, upper_blocks
from gpupc_impl.out_of_core._pairs import ZERO, PairResults, result_bytes
from gpupc_impl.out_of_core._pipelines import Pipeline

ZERO_THREADS = 128


class LevelZero(Layout):
    """Level 0: square blocks of the upper triangle."""

    def run(self) -> LevelOutcome:
        side = self.plan.rows
        kernel = self.backend.kernel(*ZERO)
        self.pipelines.allocate({"c": 8 * side * side, "edges": 4 * side * _plan.words(side)})
        for rows, columns in upper_blocks(self.p, side):
            pipeline = self.pipelines.next()
            n_i, n_j, n_words = length(rows), length(columns), _plan.words(length(columns))
            c, device_c = pipeline.area("c", (n_i, n_j), np.float64)
            edges, device_edges = pipeline.area("edges", (n_i, n_words), np.uint32)
            with pipeline.extracting():
                self.read(rows, columns, c)
                if self.largest_p is not None:
                    self.largest_p[rows, columns] = self.problem.p_value(np.square(c), 0)
                    self.largest_p[columns, rows] = self.largest_p[rows, columns].T
            pipeline.upload((device_c, c))
            numbers = map(np.int32, (n_i, n_j, rows.start, columns.start))
            pipeline.launch(
                kernel,
                (ceil_div(n_i * n_words, ZERO_THREADS),),
                (ZERO_THREADS,),
                [device_c, *numbers, np.float64(self.critical), device_edges, np.int32(n_words)],
            )
            pipeline.download((edges, device_edges))
            pipeline.merge_with(functools.partial(self._merge, rows, columns, edges))
        self.pipelines.finish()
        if self.largest_p is not None:
            np.fill_diagonal(self.largest_p, np.nan)
        if self.problem.fixed is not None:
            self.problem.fixed.apply(self.adjacency)
        return LevelOutcome(*self.count(), tests=self.problem.tests_of_level_zero)

    def _merge(self, rows: slice, columns: slice, edges: np.ndarray) -> None:
        block, width = self.adjacency[rows, columns], length(columns)

        def unpack(part: slice) -> None:
            bits = edges[part].view(np.uint8)
            block[part] = np.unpackbits(bits, axis=1, count=width, bitorder="little").view(bool)

        _removed.in_threads(unpack, mapped.pieces(length(rows), max(1, _removed.AT_ONCE // width)))
        _removed.mirror(self.adjacency, rows, columns)


class SquareBlocks(Layout):
    """Level 1: a block of pairs stays on the device, in a pipeline of its own, while separation-set blocks pass by."""

    def run(self) -> LevelOutcome:
        side = self.plan.rows
        c, bits = 8 * side * side, 4 * side * _plan.words(side)
        pair_pipeline = Pipeline(self.backend, 2, self.pipelines.timeline)
        pair_pipeline.allocate({"c": c, "edges": bits} | result_bytes(self, side * side))
        self.pipelines.allocate({"c_i": c, "c_j": c, "bits_i": bits, "bits_j": bits})
        try:
            for rows, columns in upper_blocks(self.p, side):
                if self.adjacency[rows, columns].any():
                    self._test_block(pair_pipeline, rows, columns)
        finally:
            pair_pipeline.stream.synchronize()
        self.pipelines.both[0].bytes_up += pair_pipeline.bytes_up
        self.pipelines.both[0].bytes_down += pair_pipeline.bytes_down
        return self.remove_separated(*_removed.in_order(self.found, self.p))

    def _test_block(self, pair_pipeline: Pipeline, rows: slice, columns: slice) -> None:
        """One block of pairs: Algorithm 2, lines 9 to 19."""
        n_i, n_j, edge_words = length(rows), length(columns), _plan.words(length(columns))
        pair_pipeline.begin(1, self.pipelines.take_number())
        c, device_c = pair_pipeline.area("c", (n_i, n_j), np.float64)
        edge_bits, device_edges = pair_pipeline.area("edges", (n_i, edge_words), np.uint32)
        with pair_pipeline.extracting():
            self.read(rows, columns, c)
            self.read_bits(rows, columns, edge_bits)
        pair_pipeline.upload((device_c, c), (device_edges, edge_bits))
        block = PairResults(self, pair_pipeline, rows, columns)
        pairs = {"c": device_c, "c_pitch": n_j, "edges": device_edges, "edge_words": edge_words, "edges_first": 0}
        ready = pair_pipeline.stream.record()
        sides = [rows] if rows == columns else [rows, columns]
        for members in mapped.pieces(self.p, self.plan.width):
            if not any(self.adjacency[part, members].any() for part in sides):
                continue  # SepSetCombination: no set for these pairs has a member in this block
            pipeline = self.pipelines.next()
            width, n_words = length(members), _plan.words(length(members))
            copies, arrays = [], []
            with pipeline.extracting():
                for name, part in zip("ij", sides, strict=False):
                    set_block, device_block = pipeline.area(f"c_{name}", (length(part), width), np.float64)
                    bits, device_bits = pipeline.area(f"bits_{name}", (length(part), n_words), np.uint32)
                    self.read(part, members, set_block)
                    self.read_bits(part, members, bits)
                    copies += [(device_block, set_block), (device_bits, bits)]
                    arrays.append((device_block, device_bits))
            pipeline.upload(*copies)
            pipeline.stream.wait(ready)  # the keys of the separation-set block before
            near = {"pitch": width, "words": n_words}
            near |= zip(("rows_i", "bits_i", "rows_j", "bits_j"), (*arrays[0], *arrays[-1]), strict=True)
            block.test(pipeline, members, in_tiles=block.dense, **near, **pairs)
            ready = pipeline.stream.record()
        pair_pipeline.stream.wait(ready)
        block.fetch()
        self.pipelines.finish()
        pair_pipeline.finish()
