"""Level 1 in panels of whole rows: a panel stays on the device while the rows of all later variables go through it."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.gaussian import pair_block
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import _removed
from gpupc_impl.out_of_core._layout import Layout, length, pieces
from gpupc_impl.out_of_core._pairs import PairResults, result_bytes
from gpupc_impl.out_of_core._pipelines import Pipeline

SOURCE = "out_of_core/kernels/panels.cu"
PANEL_ROWS = Struct(
    "PanelRows",
    c=Pointer(np.float64),
    near=Pointer(np.uint32),
    has_twin=Pointer(np.uint8),
    first=np.int32,
    count=np.int32,
)
PANEL = Struct(
    "Panel",
    **dict.fromkeys("ij", PANEL_ROWS),
    p=np.int32,
    words=np.int32,
    members=Pointer(np.uint32),
    min_r_squared=Pointer(np.uint64),
    counters=Pointer(np.uint64),
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
)
TWINS = KernelSource(SOURCE, "mark_twins", ())
SCANS = {flag: KernelSource(SOURCE, f"scan_panel<{flag}>", (PANEL,)) for flag in ("true", "false")}

WARPS = 4
MOST_SPLITS = 8
"""Blocks of a row, which share its partners out among themselves."""


@dataclasses.dataclass(frozen=True)
class DeviceRows:
    """Whole rows on the device.

    Attributes:
        first: the variable of the first of them.
        c: (rows, p) float64 correlations.
        near: (rows, words) uint32: their rows of the graph.
        has_twin: (rows,) uint8: whether the variable has no variance left given another one.
    """

    first: int
    c: Any
    near: Any
    has_twin: Any

    @property
    def struct(self) -> Filled:
        first, count = self.first, len(self.has_twin)
        return PANEL_ROWS(c=self.c, near=self.near, has_twin=self.has_twin, first=first, count=count)

    def part(self, rows: slice) -> DeviceRows:
        """Of some of the variables."""
        own = slice(rows.start - self.first, rows.stop - self.first)
        return DeviceRows(rows.start, self.c[own], self.near[own], self.has_twin[own])


class Panels(Layout):
    """Level 1 in panels."""

    def run(self) -> LevelOutcome:
        p, plan, n_words = self.p, self.plan, row_words(self.p)
        arrays = self.backend.empty_all(
            c=((plan.rows, p), np.float64), near=((plan.rows, n_words), np.uint32), has_twin=(plan.rows, np.uint8)
        )
        self.pipelines.allocate(
            result_bytes(self, plan.rows * plan.columns)
            | {"c": 8 * p * plan.columns, "near": 4 * n_words * plan.columns, "has_twin": plan.columns},
            host_only=("c", "near", "has_twin") if plan.rows == p else (),
        )
        for rows in mapped.pieces(p, plan.rows):
            if not self.adjacency[rows, rows.start :].any():
                continue
            panel = DeviceRows(rows.start, **arrays).part(rows)
            for part in pieces(rows, plan.columns):
                self._upload(self.pipelines.next(), part, panel.part(part))
            uploaded = [pipeline.stream.record() for pipeline in self.pipelines.both]
            for pipeline, event in itertools.product(self.pipelines.both, uploaded):
                pipeline.stream.wait(event)
            for columns in itertools.chain(pieces(rows, plan.columns), pieces(slice(rows.stop, p), plan.columns)):
                if not self.adjacency[rows, columns].any():
                    continue
                pipeline = self.pipelines.next()
                own = columns.start < rows.stop
                others = panel.part(columns) if own else self._upload(pipeline, columns)
                self._scan(pipeline, panel, others)
            self.pipelines.finish()
        return self.remove_separated(*_removed.in_order(self.found, p))

    def _upload(self, pipeline: Pipeline, rows: slice, target: DeviceRows | None = None) -> DeviceRows:
        """Whole rows of the matrix and of the graph, to the pipeline's own device memory unless a target is given."""
        everything, count, n_words = slice(0, self.p), length(rows), row_words(self.p)
        c, device_c = pipeline.area("c", (count, self.p), np.float64)
        near, device_near = pipeline.area("near", (count, n_words), np.uint32)
        _, device_twins = pipeline.area("has_twin", (count,), np.uint8)
        with pipeline.extracting():
            self.read(rows, everything, c)
            self.read_bits(rows, everything, near)
        target = target or DeviceRows(rows.start, device_c, device_near, device_twins)
        pipeline.upload((target.c, c), (target.near, near))
        tolerance, numbers = np.float64(self.problem.residual_tolerance), (count, rows.start, self.p)
        pipeline.launch(
            self.backend.kernel(*TWINS),
            (ceil_div(count, WARPS),),
            (WARPS * self.backend.warp_threads,),
            [target.c, *map(np.int32, numbers), tolerance, target.has_twin],
        )
        return target

    def _scan(self, pipeline: Pipeline, panel: DeviceRows, others: DeviceRows) -> None:
        """Queue the tests of the panel's pairs with other rows, and the transfer of their results."""
        n_j = len(others.has_twin)
        rows = slice(panel.first, panel.first + len(panel.has_twin))
        columns = slice(others.first, others.first + n_j)
        results = PairResults(self, pipeline, rows, columns)
        if self._in_tiles(results):
            p, n_words = self.p, row_words(self.p)
            results.test(
                pipeline,
                slice(0, p),
                in_tiles=True,
                rows_i=panel.c,
                rows_j=others.c,
                bits_i=panel.near,
                bits_j=others.near,
                words=n_words,
                pitch=p,
                c=panel.c.reshape(-1)[columns.start :],
                c_pitch=p,
                edges=panel.near,
                edge_words=n_words,
                edges_first=columns.start,
            )
        else:
            self._scan_pairs(results, panel, others)
        results.fetch()

    def _in_tiles(self, results: PairResults) -> bool:
        """Whether scans would take longer: each goes to the end where pairs last as those merged so far did."""
        if self.backend.name not in pair_block.TILED or not self.tested or results.smallest is not None:
            return False
        gone = sum(len(found.others) for found in self.found)
        return (1 - gone / self.tested) * results.share * pair_block.GAIN >= 1

    def _scan_pairs(self, results: PairResults, panel: DeviceRows, others: DeviceRows) -> None:
        """Queue the tests pair by pair."""
        n_i, n_j = len(panel.has_twin), len(others.has_twin)
        argument = PANEL(
            i=panel.struct,
            j=others.struct,
            p=self.p,
            words=row_words(self.p),
            members=results.members,
            min_r_squared=results.smallest,
            counters=self.counters,
            critical_r_squared=self.critical,
            residual_tolerance=self.problem.residual_tolerance,
        )
        kernel = self.backend.kernel(*SCANS["false" if results.smallest is None else "true"])
        splits = min(ceil_div(n_j, 32 * WARPS), MOST_SPLITS)
        results.pipeline.launch(kernel, (n_i, splits), (WARPS * self.backend.warp_threads,), [argument])
