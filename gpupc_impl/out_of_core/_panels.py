"""Level 1 in panels of whole rows: a panel stays on the device while the rows of all later variables go through it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.out_of_core import _plan
from gpupc_impl.out_of_core._layout import Layout, length, pieces
from gpupc_impl.out_of_core._pairs import PairBlock, result_bytes
from gpupc_impl.out_of_core._pipelines import Pipeline


class Panels(Layout):
    """Level 1 in panels."""

    def run(self) -> LevelOutcome:
        p, plan, n_words = self.p, self.plan, _plan.words(self.p)
        panel = self.backend.empty((plan.rows * p,), np.float64)
        panel_bits = self.backend.empty((plan.rows * n_words,), np.uint32)
        self.pipelines.allocate(
            result_bytes(self, plan.rows * plan.columns)
            | {"c": 8 * p * plan.columns, "bits": 4 * n_words * plan.columns},
            host_only=("c", "bits") if plan.rows == p else (),
        )
        for rows in mapped.pieces(p, plan.rows):
            later = slice(rows.start, p)
            if not self.adjacency[rows, later].any():
                continue

            def of_panel(part: slice, first: int = rows.start) -> tuple[Any, Any]:
                start, stop = part.start - first, part.stop - first
                return panel[start * p : stop * p], panel_bits[start * n_words : stop * n_words]

            for part in pieces(rows, plan.columns):
                self._upload(self.pipelines.next(), part, of_panel(part))
            uploaded = [pipeline.stream.record() for pipeline in self.pipelines.both]
            for pipeline, event in itertools.product(self.pipelines.both, uploaded):
                pipeline.stream.wait(event)
            for columns in itertools.chain(pieces(rows, plan.columns), pieces(slice(rows.stop, p), plan.columns)):
                if not self.adjacency[rows, columns].any():
                    continue
                pipeline = self.pipelines.next()
                c_j, bits_j = of_panel(columns) if columns.start < rows.stop else self._upload(pipeline, columns)
                block = PairBlock(self, pipeline, rows, columns)
                near = {"rows_i": panel, "rows_j": c_j, "bits_i": panel_bits, "bits_j": bits_j}
                pairs = {"c": panel[columns.start :], "c_pitch": p, "edges": panel_bits, "edges_first": columns.start}
                block.test(pipeline, slice(0, p), pitch=p, words=n_words, edge_words=n_words, **near, **pairs)
                block.fetch()
            self.pipelines.finish()
        return self.remove_separated()

    def _upload(self, pipeline: Pipeline, rows: slice, target: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Whole rows of the matrix and of the graph, to the pipeline's own device memory unless a target is given."""
        everything = slice(0, self.p)
        c, device_c = pipeline.area("c", (length(rows), self.p), np.float64)
        bits, device_bits = pipeline.area("bits", (length(rows), _plan.words(self.p)), np.uint32)
        with pipeline.extracting():
            self.read(rows, everything, c)
            self.read_bits(rows, everything, bits)
        target = target or (device_c, device_bits)
        pipeline.upload((target[0], c), (target[1], bits))
        return target
