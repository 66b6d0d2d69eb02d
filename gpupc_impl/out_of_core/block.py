"""Out-of-core by blocks that the program transfers explicitly (Out-of-Core, section 4.2, Algorithm 2)."""

import dataclasses
import logging
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, KernelSource
from gpupc_impl.core.checkpoint import Checkpoint, SearchState, make_folder
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine.budget import free_bytes
from gpupc_impl.engine.tier_parts import run_in_parts
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import panels, plans, square_blocks
from gpupc_impl.out_of_core.gathered import GATHERED, Gathered, gathers
from gpupc_impl.out_of_core.level import Level, degrees_of
from gpupc_impl.out_of_core.pipelines import Pipelines, Timeline
from gpupc_impl.out_of_core.plans import Plan
from gpupc_impl.out_of_core.square_blocks import LevelZero, SquareBlocks

logger = logging.getLogger("gpupc_impl.out_of_core")


@method(
    "out-of-core-block",
    family="gaussian",
    source="Out-of-Core, section 4.2, Algorithm 2",
    summary="blocks that fit a budget of device memory, transferred while others are computed",
    tiers=True,
    params={
        "block_size": Parameter(2560, "the most variables on a side of a block (bs)", minimum=1, maximum=32768),
        "layout": Parameter(
            "auto",
            "blocks: level 1 in the paper's square blocks; auto: in panels of whole rows",
            choices=("auto", "blocks"),
        ),
        **cupc_s.PARAMETERS,
        "checkpoint": Parameter("", "file from which a killed search is resumed; none by default"),
        "timeline": Parameter("", "CSV file for the start and end of each step of each block; none by default"),
    },
)
def out_of_core_block(problem: GaussianProblem, run: Run) -> Skeleton:
    backend, p, pmax = run.backend, problem.n_variables, run.pmax
    used, budget = backend.memory_used, free_bytes(backend)
    with_level_one = problem.max_level != 0 and problem.degrees_of_freedom(1) > 0
    least = plans.least_budget(p, with_level_one, pmax)
    if budget < least:
        raise DeviceMemoryError(
            least,
            used,
            backend.memory_limit,
            f"out-of-core-block needs at least {least:,} bytes of device memory for {p:,} variables, in its smallest "
            f"blocks; {budget:,} of {backend.memory_limit:,} bytes are free: set device_memory_limit to "
            f"{least + used:,} or more",
        )
    backend.reset_peak()
    zero = plans.level_zero(p, budget, run.params["block_size"])
    one = plans.level_one(p, budget, run.params["block_size"], run.params["layout"], pmax) if with_level_one else None
    report: dict[str, Any] = {"budget_bytes": budget, "least_budget_bytes": least, "levels": []}
    run = dataclasses.replace(run, facts={**run.facts, "out_of_core": report})
    logger.info("%s variables, budget %s bytes: level 0 in %s, level 1 in %s", f"{p:,}", f"{budget:,}", zero, one)
    search = BlockSearch(problem, run, budget, zero, one)
    skeleton = pc_stable(problem, search, facts=run.facts, progress=run.progress)
    search.close()
    report["peak_device_bytes"] = backend.memory_peak - used
    return skeleton


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return the kernels of the out-of-core methods, without those that others also use."""
    of_pairs = square_blocks.ZERO, square_blocks.RANKS, square_blocks.EDGES
    return [*of_pairs, panels.TWINS, *panels.SCANS.values(), *GATHERED.up_to(max_level)]


class BlockSearch(LevelSearch):
    """A search beyond core, with a budget in bytes and plans of levels 0 and 1; its `state` is on the host."""

    def __init__(self, problem: GaussianProblem, run: Run, budget: int, zero: Plan | None, one: Plan | None):
        self.problem, self.run, self.budget, self._zero, self._one = problem, run, budget, zero, one
        p = problem.n_variables
        timeline, checkpoint = run.params["timeline"], run.params["checkpoint"]
        if timeline:
            make_folder("timeline", timeline)
        self.checkpoint = Checkpoint(checkpoint, problem, run.separating_sets, run.pmax) if checkpoint else None
        saved = self.checkpoint.load() if self.checkpoint else None
        self.state = saved or SearchState(problem.start_graph(), [], np.full((p, p), np.nan) if run.pmax else None)
        self._replayed = len(self.state.outcomes)
        if saved:
            logger.info("resuming at level %d from %s", self._replayed, checkpoint)
        self.timeline = Timeline(run.backend)
        self.pipelines = Pipelines(run.backend, self.timeline)
        self.report = run.facts["out_of_core"]
        self.report["resumed_at_level"] = self._replayed or None

    def run_level(self, level: int) -> LevelOutcome:
        if level < self._replayed:
            return self.state.outcomes[level]
        pipelines = self.pipelines
        pipelines.begin_level(level)
        try:
            self.run.backend.prefetch(GATHERED.ahead(max(level, 2), self.problem.max_level))
            outcome, plan = self._run(level)
            counts = {"blocks": pipelines.blocks, **pipelines.moved, "seconds": self.timeline.take_busy()}
            self.report["levels"].append({"level": level, **dataclasses.asdict(plan), **counts})
        finally:
            pipelines.abandon()
        self.state.outcomes.append(outcome)
        if self.checkpoint is not None:
            self.checkpoint.save(self.state)
        return outcome

    def _run(self, level: int) -> tuple[LevelOutcome, Plan]:
        """Run a level, in parts if tiers limit separating sets."""
        if level == 0 or self.problem.tiers is None:
            layout = self._layout(level, self.problem, self.state.adjacency)
            return layout.search(), layout.plan
        used: list[Plan] = []

        def run_part(edges: np.ndarray, fixed: FixedPairs) -> LevelOutcome:
            layout = self._layout(level, dataclasses.replace(self.problem, fixed=fixed), edges)
            used.append(layout.plan)
            return layout.search()

        outcome = run_in_parts(level, self.problem, self.state.adjacency, run_part)
        return outcome, max(used, default=Plan("gathered", 0), key=lambda plan: plan.device_bytes)

    def _layout(self, level: int, problem: GaussianProblem, adjacency: np.ndarray) -> Level:
        state = level, problem, self.run, self.pipelines, adjacency, self.state.pmax
        if level == 0:
            return LevelZero(*state, self._zero)
        if level == 1 and self._one.layout == "blocks":
            return SquareBlocks(*state, self._one)
        if level == 1 and not gathers(degrees_of(adjacency), self._one, self.budget, self.run.pmax):
            return panels.Panels(*state, self._one)
        return Gathered.within(self.budget, *state)

    def adjacency(self) -> np.ndarray:
        return self.state.adjacency

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        removed = [(outcome.pairs, outcome.sets) for outcome in self.state.outcomes if outcome.pairs is not None]
        return SeparatingSets.from_levels(adjacency, removed)

    def pmax(self) -> np.ndarray | None:
        return self.state.pmax

    def close(self) -> None:
        """Write the timeline, and remove the checkpoint of the complete search."""
        if self.run.params["timeline"]:
            self.timeline.save(self.run.params["timeline"])
        if self.checkpoint is not None:
            self.checkpoint.remove()
