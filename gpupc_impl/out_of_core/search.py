"""The block-based search (Out-of-Core, section 4.2), which runs every level within a budget of device memory."""

from __future__ import annotations

import dataclasses
import functools
import logging

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.checkpoint import Checkpoint, SearchState, make_folder
from gpupc_impl.core.fixed import FixedPairs
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.engine.device_memory import allocated_bytes
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.engine.tier_parts import run_in_parts
from gpupc_impl.gaussian.pair_scan import PairScan
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import memory_plan
from gpupc_impl.out_of_core.gathered import Gathered
from gpupc_impl.out_of_core.in_core import InCore
from gpupc_impl.out_of_core.layout import Layout, LevelContext
from gpupc_impl.out_of_core.memory_plan import MemoryPlan
from gpupc_impl.out_of_core.panels import Panels
from gpupc_impl.out_of_core.pipelines import Pipelines, Timeline
from gpupc_impl.out_of_core.row_tests import GATHERED
from gpupc_impl.out_of_core.square_blocks import LevelZero, SquareBlocks

logger = logging.getLogger("gpupc_impl.out_of_core")


class BlockSearch(LevelSearch):
    """One search on one backend.

    Attributes:
        in_core: the part of the search that runs in core; None if no further level runs in core. While the device of
            this part is not None, the device holds the graph and the p-values, and the next two attributes are copies.
        adjacency_left: (p, p) bool: the graph, on the host.
        largest_p: (p, p) float64 largest p-values so far, or None.
        staging_bytes: pinned host memory of each pipeline.
        report: the facts that are recorded: budget, plans, transferred bytes and seconds by step.

    Raises:
        DeviceMemoryError: the budget is too small for the smallest plan; this is raised before any work.
        InvalidProblem: the checkpoint belongs to another problem or another kind of search, or the folder of the
            checkpoint or of the timeline cannot be made.
    """

    def __init__(self, problem: GaussianProblem, run: Run):
        self.problem, self.run, self.backend = problem, run, run.backend
        self.p, self.params = problem.n_variables, run.params
        self._used_before = self.backend.memory_used
        self.budget = max(0, self.backend.memory_limit - self._used_before)
        least = self._check_budget()
        self.backend.reset_peak()
        if self.params["timeline"]:
            make_folder("timeline", self.params["timeline"])
        self.outcomes: list[LevelOutcome] = []
        self.checkpoint = None
        self._replayed = 0
        if self.params["checkpoint"]:
            self.checkpoint = Checkpoint(self.params["checkpoint"], problem, run.separating_sets, run.pmax)
            self._resume()
        core = self._choose_plans()
        self.timeline = Timeline(self.backend, keep=bool(self.params["timeline"]))
        self.pipelines = Pipelines(self.backend, self.timeline, self.staging_bytes)
        self.in_core: InCore | None = None
        if core is not None:
            self.in_core = InCore(problem, run, self.pipelines, core, level_by_level=self.checkpoint is not None)
        forecast = {"level_0": self._zero, "level_1": self._one}
        self.report = {
            "budget_bytes": self.budget,
            "least_budget_bytes": least,
            "forecast": {level: plan and dataclasses.asdict(plan) for level, plan in forecast.items()},
            "levels": [],
            "resumed_at_level": self._replayed or None,
            "peak_device_bytes": 0,
        }

    def _check_budget(self) -> int:
        """The least budget that suffices for the problem; raises DeviceMemoryError if the budget is smaller."""
        problem, p = self.problem, self.p
        least = memory_plan.least_budget(p, problem.max_level, problem.degrees_of_freedom, self.run.pmax)
        if self.budget < least:
            used, limit = self.backend.memory_used, self.backend.memory_limit
            raise DeviceMemoryError(
                least,
                used,
                limit,
                f"out-of-core-block needs at least {least:,} bytes of device memory for {p:,} variables, in its "
                f"smallest blocks; {max(0, limit - used):,} of {limit:,} bytes are free: set device_memory_limit to "
                f"{least + used:,} or more",
            )
        return least

    def _choose_plans(self) -> MemoryPlan | None:
        """Plan levels 0 and 1 for the complete graph, which needs the most memory, and log the plans.

        Returns:
            the plan of a search in core, if it fits into the budget and the matrix is an array on the host; else None.
        """
        p, budget, max_level, pmax = self.p, self.budget, self.problem.max_level, self.run.pmax
        core = memory_plan.pair_scan(p, max_level, pmax)
        layout_is_free = self.params["layout"] == "auto" and not self._replayed and self.problem.tiers is None
        is_array = self.problem.correlations == "host" and isinstance(self.problem.correlation, np.ndarray)
        if not (layout_is_free and is_array and core.device_bytes <= budget):
            core = None
        self._zero = core or memory_plan.level_zero(p, budget, self.params["block_size"])
        self._one = None  # the plan of a search that ends after level 0
        self.staging_bytes = self._zero.staging_bytes
        if max_level != 0:
            self._one = core or self._plan_level_one()
        if self._one is not None:
            all_rows = min(memory_plan.cluster_bytes(p, p, p * (p - 1), pmax), memory_plan.STAGING_BYTES, budget // 2)
            self.staging_bytes = allocated_bytes(max(self.staging_bytes, self._one.staging_bytes, all_rows))
        one = "no level 1" if self._one is None else f"level 1 in {self._one}"
        logger.info("%s variables, budget %s bytes: level 0 in %s, %s", f"{p:,}", f"{budget:,}", self._zero, one)
        return core

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level < self._replayed:
            return self.outcomes[level]
        try:
            self.pipelines.begin_level(level)
            if self.in_core is None:
                self.backend.prefetch(GATHERED.ahead(max(level, 2), self.problem.max_level))
            outcome, plan = self._run(level)
            self.report["levels"].append(
                {
                    "level": level,
                    **dataclasses.asdict(plan),
                    "blocks": self.pipelines.blocks,
                    "bytes_up": self.pipelines.bytes_up,
                    "bytes_down": self.pipelines.bytes_down,
                    "seconds": self.timeline.take_busy(),
                }
            )
        finally:
            self.pipelines.abandon()
        self.outcomes.append(outcome)
        if self.checkpoint is not None:
            self._fetch()
            self.checkpoint.save(SearchState(self.adjacency_left, self.outcomes, self.largest_p))
        return outcome

    def adjacency(self) -> np.ndarray:
        if self._device is not None:
            try:
                return self._device.adjacency()
            except DeviceMemoryError:  # the device has no room to merge lists of sets
                self._leave_core()
        return self.adjacency_left

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        if self._device is not None:
            return self._device.separating_sets(adjacency)
        removed = [(outcome.pairs, outcome.sets) for outcome in self.outcomes if outcome.pairs is not None]
        return SeparatingSets.from_levels(adjacency, removed)

    def pmax(self) -> np.ndarray | None:
        return self.largest_p if self._device is None else self._device.pmax()

    @property
    def _device(self) -> PairScan | None:
        return None if self.in_core is None else self.in_core.device

    @functools.cached_property
    def adjacency_left(self) -> np.ndarray:
        return self.problem.start_graph()

    @functools.cached_property
    def largest_p(self) -> np.ndarray | None:
        return np.full((self.p, self.p), np.nan) if self.run.pmax else None

    def _fetch(self) -> None:
        """Copy the state of a search in core to the host."""
        device = self._device
        if device is None:
            return
        self.adjacency_left, self.largest_p = device.adjacency_now(), device.pmax()
        for level, outcome in enumerate(self.outcomes):
            if level and outcome.pairs is None:
                pairs, sets = device.removed_in(level)
                self.outcomes[level] = dataclasses.replace(outcome, pairs=pairs, sets=sets)

    def _leave_core(self) -> None:
        self._fetch()
        self.in_core = None

    def _resume(self) -> None:
        state = self.checkpoint.load()
        if state is not None:
            self.adjacency_left, self.outcomes, self.largest_p = state.adjacency, state.outcomes, state.pmax
            self._replayed = len(state.outcomes)
            logger.info("resuming at level %d from %s", self._replayed, self.checkpoint.path)

    def close(self) -> None:
        """Write the timeline, report the peak of device memory, and remove the checkpoint of the complete search."""
        self.report["peak_device_bytes"] = self.backend.memory_peak - self._used_before
        if self.params["timeline"]:
            self.timeline.save(self.params["timeline"])
        if self.checkpoint is not None:
            self.checkpoint.remove()

    # --- layouts -----------------------------------------------------------------------------------------------

    def _run(self, level: int) -> tuple[LevelOutcome, MemoryPlan]:
        """Run a level in core or in a layout that suits the graph at its start."""
        if self.in_core is not None:
            if self.in_core.fits(level, self.budget - (self.backend.memory_used - self._used_before)):
                return self.in_core.run_level(level), self.in_core.plan
            self._leave_core()
        if level == 0 or self.problem.tiers is None:
            layout = self._layout(self._context(level, self.problem, self.adjacency_left))
            return layout.run(), layout.plan
        plans: list[MemoryPlan] = []

        def run_part(edges: np.ndarray, fixed: FixedPairs) -> LevelOutcome:
            layout = self._layout(self._context(level, dataclasses.replace(self.problem, fixed=fixed), edges))
            outcome = layout.run()
            plans.append(layout.plan)
            return outcome

        outcome = run_in_parts(level, self.problem, self.adjacency_left, run_part)
        return outcome, max(plans, default=self._zero, key=lambda plan: plan.device_bytes)

    def _context(self, level: int, problem: GaussianProblem, adjacency: np.ndarray) -> LevelContext:
        counters = self.backend.full(COUNTER_SHAPE, 0, np.uint64)
        self.backend.synchronize()  # the pipelines' streams do not wait for the backend's stream
        state = adjacency, self.largest_p, counters
        return LevelContext(level, problem, self.run, self.pipelines, *state, self.budget, self.staging_bytes)

    def _layout(self, context: LevelContext) -> Layout:
        if context.level == 0:
            return LevelZero(context, self._zero)
        if (
            context.level == 1 and context.problem.fixed is None
        ):  # panels and blocks test all edges, required ones as well
            plan = self._plan_level_one(np.array([np.count_nonzero(row) for row in context.adjacency], np.int64))
            if plan.layout != "gather":
                return {"panels": Panels, "blocks": SquareBlocks}[plan.layout](context, plan)
        return Gathered(context)

    def _plan_level_one(self, degrees: np.ndarray | None = None) -> MemoryPlan | None:
        """The plan of level 1; gathering is considered only if the degrees of the graph are known."""
        gathered, pmax, layout = None, self.run.pmax, self.params["layout"]
        if degrees is not None:
            longest = int(degrees.max())
            arena = memory_plan.largest_arena(self.budget, 1, longest, 0, pmax)
            if layout == "gather" or memory_plan.cluster_bytes(longest + 1, 1, longest, pmax) <= arena:
                gathered = int(8 * np.square(degrees[degrees > 1] + 1).sum())
        return memory_plan.level_one(self.p, self.budget, self.params["block_size"], layout, pmax, gathered)
