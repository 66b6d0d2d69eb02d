"""Level 1 in panels of whole rows (kernels/panels.cu): a panel stays on the device while later rows pass by."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.gaussian import pair_block
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import separations
from gpupc_impl.out_of_core.host_blocks import length, pieces
from gpupc_impl.out_of_core.level import Level
from gpupc_impl.out_of_core.pipelines import Pipeline
from gpupc_impl.out_of_core.plans import result_arrays, row_arrays
from gpupc_impl.out_of_core.square_blocks import PairResults

PANEL_ROWS = Struct(
    "PanelRows",
    **{"c": Pointer(np.float64), "near": Pointer(np.uint32), "has_twin": Pointer(np.uint8)},
    **dict.fromkeys(("first", "count"), np.int32),
)
PANEL = Struct(
    "Panel",
    **dict.fromkeys("ij", PANEL_ROWS),
    **dict.fromkeys(("p", "words"), np.int32),
    members=Pointer(np.uint32),
    **dict.fromkeys(("min_r_squared", "counters"), Pointer(np.uint64)),
    **dict.fromkeys(("critical_r_squared", "residual_tolerance"), np.float64),
)
SOURCE = "out_of_core/kernels/panels.cu"
TWINS = KernelSource(SOURCE, "mark_twins")
SCANS = {pmax: KernelSource(SOURCE, f"scan_panel<{str(pmax).lower()}>", (PANEL,)) for pmax in (False, True)}
WARPS = 4  # of a thread block
MOST_SPLITS = 8  # upper bound on the thread blocks that divide the partners of a row among themselves


@dataclasses.dataclass(frozen=True)
class DeviceRows:
    first: int  # the variable of the first row
    c: Any  # (rows, p) float64 correlations
    near: Any  # (rows, words) uint32: the same rows of the graph
    has_twin: Any  # (rows,) uint8: whether another variable leaves this variable no variance

    @property
    def variables(self) -> slice:
        return slice(self.first, self.first + len(self.has_twin))

    @property
    def argument(self) -> Filled:
        return PANEL_ROWS(**vars(self), count=len(self.has_twin))

    def part(self, variables: slice) -> DeviceRows:
        own = slice(variables.start - self.first, variables.stop - self.first)
        return DeviceRows(variables.start, self.c[own], self.near[own], self.has_twin[own])


class Panels(Level):
    def search(self) -> LevelOutcome:
        p, plan, graph, pipelines = self.p, self.plan, self.adjacency, self.pipelines
        arrays = self.backend.empty_all(**row_arrays(p, plan.rows))
        pipelines.allocate({**row_arrays(p, plan.columns), **result_arrays(plan.rows, plan.columns, self.run.pmax)})
        for rows in mapped_arrays.pieces(p, plan.rows):
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
        p, count = self.p, length(rows)
        with pipeline.on_host("extract"):
            areas = self.extract(pipeline, rows, slice(0, p), ("c", "near"), row_words(p))
        (device_c, c), (device_near, near) = areas
        _, device_twins = pipeline.area("has_twin", (count,), np.uint8)
        target = target or DeviceRows(rows.start, device_c, device_near, device_twins)
        pipeline.upload((target.c, c), (target.near, near))
        tolerance = np.float64(self.problem.residual_tolerance)
        arguments = [target.c, *map(np.int32, (count, rows.start, p)), tolerance, target.has_twin]
        pipeline.launch(TWINS, (ceil_div(count, WARPS),), (WARPS * self.backend.warp_threads,), arguments)
        return target

    def _test(self, pipeline: Pipeline, panel: DeviceRows, partners: DeviceRows) -> None:
        """Queue the tests of the panel's pairs with other rows, and the transfer of their results."""
        p, words, first = self.p, row_words(self.p), partners.first
        results = PairResults(self, pipeline, panel.variables, partners.variables)
        if self._in_tiles(results):
            near = {"rows_i": panel.c, "rows_j": partners.c, "bits_i": panel.near, "bits_j": partners.near}
            pairs = {"c": panel.c.reshape(-1)[first:], "edges": panel.near, "edges_first": first}
            sizes = {"pitch": p, "c_pitch": p, "words": words, "edge_words": words}
            results.test(pipeline, slice(0, p), in_tiles=True, **near, **pairs, **sizes)
        else:
            argument = PANEL(
                i=panel.argument,
                j=partners.argument,
                p=p,
                words=words,
                members=results.members,
                min_r_squared=results.smallest,
                counters=self.counters,
                critical_r_squared=self.critical_r_squared,
                residual_tolerance=self.problem.residual_tolerance,
            )
            grid = len(panel.has_twin), min(ceil_div(len(partners.has_twin), 32 * WARPS), MOST_SPLITS)
            pipeline.launch(SCANS[self.run.pmax], grid, (WARPS * self.backend.warp_threads,), [argument])
        results.fetch()

    def _in_tiles(self, results: PairResults) -> bool:
        """Whether testing whole tiles is probably faster than scanning pairs. The scan of a pair reads all neighbours
        unless a set separates it. The share of pairs that no set separates is estimated from merged blocks."""
        if self.backend.name not in pair_block.TILED or not self.tested or self.run.pmax:
            return False
        separated = sum(len(block.others) for block in self.separations)
        return (1 - separated / self.tested) * results.share * pair_block.GAIN >= 1
