"""Levels in core, by the search of `pair-scan`, whose matrix, graph and separating sets stay on the device."""

from __future__ import annotations

import dataclasses

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.gaussian import pair_scan
from gpupc_impl.gaussian.pair_scan import PairScan
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core.memory_plan import MemoryPlan
from gpupc_impl.out_of_core.pipelines import Pipelines


class InCore:
    """The levels of a search that run in core.

    Attributes:
        plan: see `Layout`.
        device: the search of `pair-scan`; None before its first level, which copies the matrix to the device.

    Args:
        level_by_level: whether each level runs by itself, as a search with checkpoints needs.
    """

    def __init__(
        self, problem: GaussianProblem, run: Run, pipelines: Pipelines, plan: MemoryPlan, level_by_level: bool
    ):
        self.problem, self.pipelines, self.plan = problem, pipelines, plan
        self.device: PairScan | None = None
        params = {name: parameter.default for name, parameter in pair_scan.PARAMETERS.items()}
        if level_by_level:
            params["fused_levels"] = "never"
        self._run = dataclasses.replace(run, params=params)

    def run_level(self, level: int) -> LevelOutcome:
        pipeline, timeline = self.pipelines.both[0], self.pipelines.timeline
        step = level, self.pipelines.take_number()
        if self.device is None:
            with timeline.step(*step, "transfer", pipeline.number):
                self.device = PairScan(self.problem, self._run, may_queue=False)
            mapped.release(self.problem.correlation)  # nothing reads the matrix again
            pipeline.bytes_up += self.plan.bytes_up
        with timeline.step(*step, "kernel", pipeline.number):
            return self.device.run_level(level)

    def fits(self, level: int, free_bytes: int) -> bool:
        """Whether the level takes at most this many bytes in addition to the search's present memory."""
        return self.device is None or self.device.level_bytes(level) <= free_bytes
