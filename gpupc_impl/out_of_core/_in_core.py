"""Levels in core: the search of `pair-scan`, whose matrix, graph and separating sets stay on the device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.gaussian import pair_scan
from gpupc_impl.gaussian.pair_scan import PairScan
from gpupc_impl.out_of_core._plan import Plan

if TYPE_CHECKING:
    from gpupc_impl.out_of_core._search import BlockSearch


class InCore:
    """A level in core; the first of a search takes the matrix there.

    Attributes:
        plan: see `Layout`.
    """

    def __init__(self, search: BlockSearch, level: int, plan: Plan):
        self.search, self.level, self.plan = search, level, plan

    def run(self) -> LevelOutcome:
        search, pipeline, timeline = self.search, self.search.pipelines.both[0], self.search.pipelines.timeline
        step = self.level, search.pipelines.take_number()
        if search.device is None:
            with timeline.step(*step, "transfer", pipeline.number):
                search.device = begin(search)
            mapped.release(search.problem.correlation)  # which is not read again
            pipeline.bytes_up += self.plan.bytes_up
        with timeline.step(*step, "kernel", pipeline.number):
            return search.device.run_level(self.level)


def begin(search: BlockSearch) -> PairScan:
    """A search in core, with the parameters that `pair-scan` has by default.

    A search whose levels are kept in a checkpoint runs them one by one.
    """
    params = {name: parameter.default for name, parameter in pair_scan.PARAMETERS.items()}
    if search.checkpoint is not None:
        params["fused_levels"] = "never"
    return PairScan(search.problem, dataclasses.replace(search.run, params=params), may_queue=False)
