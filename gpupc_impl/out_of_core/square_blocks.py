"""Levels 0 and 1 in the paper's square blocks (Out-of-Core, section 4.2, Algorithm 2)."""

from __future__ import annotations

import functools

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.out_of_core import host_blocks, separations
from gpupc_impl.out_of_core.host_blocks import in_threads, length, upper_blocks
from gpupc_impl.out_of_core.layout import Layout
from gpupc_impl.out_of_core.memory_plan import words
from gpupc_impl.out_of_core.pairs import PairResults, level_zero_launch, result_areas
from gpupc_impl.out_of_core.pipelines import Pipeline


class LevelZero(Layout):
    """Level 0 in square blocks of the upper triangle."""

    def run(self) -> LevelOutcome:
        problem, pipelines, largest_p = self.context.problem, self.context.pipelines, self.context.largest_p
        side, critical = self.plan.rows, self.context.critical_r_squared
        pipelines.allocate({"c": 8 * side * side, "edges": 4 * side * words(side)})
        for rows, columns in upper_blocks(self.context.p, side):
            pipeline = pipelines.next()
            n_i, n_j, n_words = length(rows), length(columns), words(length(columns))
            c, device_c = pipeline.area("c", (n_i, n_j), np.float64)
            edges, device_edges = pipeline.area("edges", (n_i, n_words), np.uint32)
            with pipeline.extracting():
                host_blocks.read(problem.correlation, rows, columns, c)
                if largest_p is not None:
                    largest_p[rows, columns] = problem.p_value(np.square(c), 0)
                    largest_p[columns, rows] = largest_p[rows, columns].T
            pipeline.upload((device_c, c))
            pipeline.launch(*level_zero_launch(device_c, rows.start, columns.start, critical, device_edges))
            pipeline.download((edges, device_edges))
            pipeline.merge_with(functools.partial(self._merge, rows, columns, edges))
        pipelines.finish()
        if largest_p is not None:
            np.fill_diagonal(largest_p, np.nan)
        if problem.fixed is not None:
            problem.fixed.apply(self.context.adjacency)
        return LevelOutcome(*self.count(), tests=problem.tests_of_level_zero)

    def _merge(self, rows: slice, columns: slice, edges: np.ndarray) -> None:
        graph, width = self.context.adjacency, length(columns)
        block = graph[rows, columns]

        def unpack(part: slice) -> None:
            bits = edges[part].view(np.uint8)
            block[part] = np.unpackbits(bits, axis=1, count=width, bitorder="little").view(bool)

        in_threads(unpack, mapped.pieces(length(rows), max(1, separations.PAIRS_AT_ONCE // width)))
        separations.mirror(graph, rows, columns)


class SquareBlocks(Layout):
    """Level 1, in which a block of pairs stays on the device, in a third pipeline, and separation-set blocks are
    uploaded in turn."""

    def run(self) -> LevelOutcome:
        context, side = self.context, self.plan.rows
        pipelines, graph = context.pipelines, context.adjacency
        c, bits = 8 * side * side, 4 * side * words(side)
        pair_pipeline = Pipeline(context.run.backend, 2, pipelines.timeline)
        pair_pipeline.allocate({"c": c, "edges": bits} | result_areas(self, side * side))
        pipelines.allocate({"c_i": c, "c_j": c, "bits_i": bits, "bits_j": bits})
        try:
            for rows, columns in upper_blocks(context.p, side):
                if graph[rows, columns].any():
                    self._test_block(pair_pipeline, rows, columns)
        finally:
            pair_pipeline.stream.synchronize()
        pipelines.both[0].bytes_up += pair_pipeline.bytes_up
        pipelines.both[0].bytes_down += pair_pipeline.bytes_down
        return self.remove_separated(*separations.in_order(self.separations, context.p))

    def _test_block(self, pair_pipeline: Pipeline, rows: slice, columns: slice) -> None:
        """Test one block of pairs (Algorithm 2, lines 9 to 19)."""
        matrix, graph, pipelines = self.context.problem.correlation, self.context.adjacency, self.context.pipelines
        n_i, n_j, edge_words = length(rows), length(columns), words(length(columns))
        pair_pipeline.begin(1, pipelines.take_number())
        c, device_c = pair_pipeline.area("c", (n_i, n_j), np.float64)
        edge_bits, device_edges = pair_pipeline.area("edges", (n_i, edge_words), np.uint32)
        with pair_pipeline.extracting():
            host_blocks.read(matrix, rows, columns, c)
            host_blocks.read_bits(graph, rows, columns, edge_bits)
        pair_pipeline.upload((device_c, c), (device_edges, edge_bits))
        results = PairResults(self, pair_pipeline, rows, columns)
        pairs = {"c": device_c, "c_pitch": n_j, "edges": device_edges, "edge_words": edge_words, "edges_first": 0}
        ready = pair_pipeline.stream.record()
        sides = [rows] if rows == columns else [rows, columns]
        for members in mapped.pieces(self.context.p, self.plan.width):
            if not any(graph[part, members].any() for part in sides):
                continue  # the paper's SepSetCombination: these pairs have no set with a member in this block
            pipeline = pipelines.next()
            width, n_words = length(members), words(length(members))
            copies, arrays = [], []
            with pipeline.extracting():
                for name, part in zip("ij", sides, strict=False):
                    set_block, device_block = pipeline.area(f"c_{name}", (length(part), width), np.float64)
                    bits, device_bits = pipeline.area(f"bits_{name}", (length(part), n_words), np.uint32)
                    host_blocks.read(matrix, part, members, set_block)
                    host_blocks.read_bits(graph, part, members, bits)
                    copies += [(device_block, set_block), (device_bits, bits)]
                    arrays.append((device_block, device_bits))
            pipeline.upload(*copies)
            pipeline.stream.wait(ready)  # for the keys that the previous separation-set block has written
            near = {"pitch": width, "words": n_words}
            near |= zip(("rows_i", "bits_i", "rows_j", "bits_j"), (*arrays[0], *arrays[-1]), strict=True)
            results.test(pipeline, members, in_tiles=results.dense, **near, **pairs)
            ready = pipeline.stream.record()
        pair_pipeline.stream.wait(ready)
        results.fetch()
        pipelines.finish()
        pair_pipeline.finish()
