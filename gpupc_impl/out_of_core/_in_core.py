"""Levels in core: the kernels of `cupc-s`, with the matrix and the graph on the device from level to level."""

from __future__ import annotations

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.device import GaussianSearch
from gpupc_impl.out_of_core._layout import Layout


class InCore(Layout):
    """A level in core."""

    def run(self) -> LevelOutcome:
        search, pipeline, timeline, level = self.search, self.pipelines.both[0], self.pipelines.timeline, self.level
        step = level, self.pipelines.take_number()
        if search.device is None:
            with timeline.step(*step, "transfer", pipeline.number):
                search.device = DeviceSearch(self)
            mapped.release(self.problem.correlation)
            pipeline.bytes_up += self.plan.bytes_up + (self.adjacency.nbytes if level else 0)
        with timeline.step(*step, "kernel", pipeline.number):
            outcome = search.device.run_level(level)
        if level:
            i, j = outcome.pairs.T
            self.adjacency[i, j] = self.adjacency[j, i] = False
        else:
            self.adjacency[...] = search.device.adjacency()
        if self.largest_p is not None:
            self.largest_p[...] = search.device.pmax()
        return outcome


class DeviceSearch(GaussianSearch):
    """The search in core of a graph that may have come to this level in another layout, or in another process."""

    def __init__(self, layout: Layout):
        super().__init__(layout.problem, layout.search.run, cupc_s.KERNEL)
        if layout.level:
            self.graph.edges = self.backend.upload(layout.adjacency.view(np.uint8))
            self.graph.begun = True
            self.graph.count()
            self._pmax = layout.largest_p
