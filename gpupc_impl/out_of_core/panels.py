"""Level 1 in panels of whole rows: a panel stays on the device, and the rows of later variables are uploaded in
turn."""

from __future__ import annotations

import itertools

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.gaussian import pair_block
from gpupc_impl.out_of_core import host_blocks, separations
from gpupc_impl.out_of_core.host_blocks import length, pieces
from gpupc_impl.out_of_core.layout import Layout
from gpupc_impl.out_of_core.pairs import PairResults, result_areas
from gpupc_impl.out_of_core.panel_scan import DeviceRows, scan_launch, twins_launch
from gpupc_impl.out_of_core.pipelines import Pipeline


class Panels(Layout):
    """Level 1 in panels."""

    def run(self) -> LevelOutcome:
        p, plan, graph, pipelines = self.context.p, self.plan, self.context.adjacency, self.context.pipelines
        n_words = row_words(p)
        arrays = self.context.run.backend.empty_all(
            c=((plan.rows, p), np.float64), near=((plan.rows, n_words), np.uint32), has_twin=(plan.rows, np.uint8)
        )
        pipelines.allocate(
            result_areas(self, plan.rows * plan.columns)
            | {"c": 8 * p * plan.columns, "near": 4 * n_words * plan.columns, "has_twin": plan.columns},
            host_only=("c", "near", "has_twin") if plan.rows == p else (),
        )
        for rows in mapped.pieces(p, plan.rows):
            if not graph[rows, rows.start :].any():
                continue
            panel = DeviceRows(rows.start, **arrays).part(rows)
            for part in pieces(rows, plan.columns):
                self._upload(pipelines.next(), part, panel.part(part))
            uploaded = [pipeline.stream.record() for pipeline in pipelines.both]
            for pipeline, event in itertools.product(pipelines.both, uploaded):
                pipeline.stream.wait(event)
            for columns in itertools.chain(pieces(rows, plan.columns), pieces(slice(rows.stop, p), plan.columns)):
                if not graph[rows, columns].any():
                    continue
                pipeline = pipelines.next()
                in_panel = columns.start < rows.stop
                partners = panel.part(columns) if in_panel else self._upload(pipeline, columns)
                self._test(pipeline, panel, partners)
            pipelines.finish()
        return self.remove_separated(*separations.in_order(self.separations, p))

    def _upload(self, pipeline: Pipeline, rows: slice, target: DeviceRows | None = None) -> DeviceRows:
        """Upload whole rows of the matrix and of the graph, by default to the pipeline's own device memory."""
        context, p = self.context, self.context.p
        everything, count = slice(0, p), length(rows)
        c, device_c = pipeline.area("c", (count, p), np.float64)
        near, device_near = pipeline.area("near", (count, row_words(p)), np.uint32)
        _, device_twins = pipeline.area("has_twin", (count,), np.uint8)
        with pipeline.extracting():
            host_blocks.read(context.problem.correlation, rows, everything, c)
            host_blocks.read_bits(context.adjacency, rows, everything, near)
        target = target or DeviceRows(rows.start, device_c, device_near, device_twins)
        pipeline.upload((target.c, c), (target.near, near))
        pipeline.launch(*twins_launch(context.run.backend, target, context.problem.residual_tolerance))
        return target

    def _test(self, pipeline: Pipeline, panel: DeviceRows, partners: DeviceRows) -> None:
        """Queue the tests of the panel's pairs with other rows, and the transfer of their results."""
        context, p, first = self.context, self.context.p, partners.first
        results = PairResults(self, pipeline, panel.variables, partners.variables)
        if self._in_tiles(results):
            results.test(
                pipeline,
                slice(0, p),
                in_tiles=True,
                rows_i=panel.c,
                rows_j=partners.c,
                bits_i=panel.near,
                bits_j=partners.near,
                words=row_words(p),
                pitch=p,
                c=panel.c.reshape(-1)[first:],
                c_pitch=p,
                edges=panel.near,
                edge_words=row_words(p),
                edges_first=first,
            )
        else:
            launch = scan_launch(
                context.run.backend,
                panel,
                partners,
                members=results.members,
                min_r_squared=results.smallest,
                counters=context.counters,
                critical_r_squared=context.critical_r_squared,
                residual_tolerance=context.problem.residual_tolerance,
            )
            pipeline.launch(*launch)
        results.fetch()

    def _in_tiles(self, results: PairResults) -> bool:
        """Whether testing whole tiles is expected to be faster than scanning pair by pair.

        The scan of a pair reads all neighbours unless a set separates the pair. The share of pairs that no set
        separates is estimated from the blocks that have been merged.
        """
        if self.context.run.backend.name not in pair_block.TILED or not self.tested or results.smallest is not None:
            return False
        separated = sum(len(block.others) for block in self.separations)
        return (1 - separated / self.tested) * results.share * pair_block.GAIN >= 1
