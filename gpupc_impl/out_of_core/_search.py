"""The block-based search (Out-of-Core, section 4.2), at every level, in a budget of device memory."""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.checkpoint import Checkpoint, SearchState, make_folder
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.gaussian.pair_scan import PairScan
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import _plan
from gpupc_impl.out_of_core._gathered import Gathered
from gpupc_impl.out_of_core._in_core import InCore
from gpupc_impl.out_of_core._layout import Layout
from gpupc_impl.out_of_core._panels import Panels
from gpupc_impl.out_of_core._pipelines import Pipelines, Timeline
from gpupc_impl.out_of_core._square_blocks import LevelZero, SquareBlocks

logger = logging.getLogger("gpupc_impl.out_of_core")


class BlockSearch(LevelSearch):
    """One search on one backend; a `LevelSearch` (see core/pc_stable.py).

    Attributes:
        device: the search in core, while levels run there; it has then what the next two do not.
        adjacency_left: (p, p) bool: the graph, on the host.
        largest_p: (p, p) float64 largest p-values so far, or None.
        staging_bytes: pinned host memory of each pipeline.
        report: what is recorded of the search: budget, plans, bytes moved and seconds by step.

    Raises:
        DeviceMemoryError: the budget does not hold the smallest plan; nothing has been computed then.
        InvalidProblem: the checkpoint belongs to another problem or another kind of search, or the folder of a file
            to write cannot be made.
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
        self.device: PairScan | None = None
        self.outcomes: list[LevelOutcome] = []
        self.checkpoint = None
        self._replayed = 0
        if self.params["checkpoint"]:
            self.checkpoint = Checkpoint(self.params["checkpoint"], problem.fingerprint, run.separating_sets, run.pmax)
            self._resume()
        self._choose_plans()
        self.timeline = Timeline(self.backend, keep=bool(self.params["timeline"]))
        self.pipelines = Pipelines(self.backend, self.timeline, self.staging_bytes)
        self.counters: Any = None
        self.report = {
            "budget_bytes": self.budget,
            "least_budget_bytes": least,
            "forecast": {"level_0": self._zero.facts(), "level_1": self._one.facts() if self._one else None},
            "levels": [],
            "resumed_at_level": self._replayed or None,
            "peak_device_bytes": 0,
        }

    def _check_budget(self) -> int:
        """The least budget; raises for a smaller one."""
        problem, p = self.problem, self.p
        least = _plan.least_budget(p, problem.max_level, problem.degrees_of_freedom, self.run.pmax)
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

    def _choose_plans(self) -> None:
        """Plans of levels 0 and 1 for the complete graph, which is the most that they can need; logged.

        The search is in core, if the budget holds that and the matrix is there as a whole.
        """
        p, budget, max_level, pmax = self.p, self.budget, self.problem.max_level, self.run.pmax
        core = _plan.pair_scan(p, max_level, pmax)
        free = self.params["layout"] == "auto" and not self._replayed
        whole = self.problem.correlations == "host" and isinstance(self.problem.correlation, np.ndarray)
        self._core = core if free and whole and core.device_bytes <= budget else None
        self._zero = self._core or _plan.level_zero(p, budget, self.params["block_size"])
        self._one = None  # where level 1 is not run
        self.staging_bytes = self._zero.staging_bytes
        if max_level != 0:
            self._one = self._core or self._plan_level_one()
        if self._one is not None:
            of_all = min(_plan.cluster_bytes(p, p, p * (p - 1), pmax), _plan.STAGING_BYTES, budget // 2)
            self.staging_bytes = _plan.rounded(max(self.staging_bytes, self._one.staging_bytes, of_all))
        one = "no level 1" if self._one is None else f"level 1 in {self._one}"
        logger.info("%s variables, budget %s bytes: level 0 in %s, %s", f"{p:,}", f"{budget:,}", self._zero, one)

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level < self._replayed:
            return self.outcomes[level]
        try:
            self.pipelines.begin_level(level)
            layout = self._layout(level)
            outcome = layout.run()
            self.report["levels"].append(
                {
                    "level": level,
                    **layout.plan.facts(),
                    "blocks": self.pipelines.blocks,
                    "bytes_up": self.pipelines.bytes_up,
                    "bytes_down": self.pipelines.bytes_down,
                    "seconds": self.timeline.take_busy(),
                }
            )
        finally:
            self.pipelines.abandon()
            self.counters = None
        self.outcomes.append(outcome)
        if self.checkpoint is not None:
            self._fetch()
            self.checkpoint.save(SearchState(self.adjacency_left, self.outcomes, self.largest_p))
        return outcome

    def adjacency(self) -> np.ndarray:
        if self.device is not None:
            try:
                return self.device.adjacency()
            except DeviceMemoryError:  # no room for lists of sets to be merged on the device
                self._leave_core()
        return self.adjacency_left

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        if self.device is not None:
            return self.device.separating_sets(adjacency)
        removed = [(outcome.pairs, outcome.sets) for outcome in self.outcomes]
        return SeparatingSets.from_levels(adjacency, [found for found in removed if found[0] is not None])

    def pmax(self) -> np.ndarray | None:
        return self.largest_p if self.device is None else self.device.pmax()

    @functools.cached_property
    def adjacency_left(self) -> np.ndarray:
        return self.problem.start_graph()

    @functools.cached_property
    def largest_p(self) -> np.ndarray | None:
        return np.full((self.p, self.p), np.nan) if self.run.pmax else None

    def _fetch(self) -> None:
        """Bring to the host what is known of the levels in core."""
        device = self.device
        if device is None:
            return
        self.adjacency_left, self.largest_p = device.adjacency_now(), device.pmax()
        for level, outcome in enumerate(self.outcomes):
            if level and outcome.pairs is None:
                pairs, sets = device.removed_in(level)
                self.outcomes[level] = dataclasses.replace(outcome, pairs=pairs, sets=sets)

    def _leave_core(self) -> None:
        self._fetch()
        self.device = self._core = None

    def _resume(self) -> None:
        state = self.checkpoint.load()
        if state is not None:
            self.adjacency_left, self.outcomes, self.largest_p = state.adjacency, state.outcomes, state.pmax
            self._replayed = len(state.outcomes)
            logger.info("resuming at level %d from %s", self._replayed, self.checkpoint.path)

    def close(self) -> None:
        """Write the timeline and what the device held at most; the checkpoint has served its end."""
        self.report["peak_device_bytes"] = self.backend.memory_peak - self._used_before
        if self.params["timeline"]:
            self.timeline.save(self.params["timeline"])
        if self.checkpoint is not None:
            self.checkpoint.remove()

    # --- layouts -----------------------------------------------------------------------------------------------

    def _layout(self, level: int) -> InCore | Layout:
        """The layout of a level, given the graph at its start."""
        if self._core is not None:
            if self._fits_in_core(level):
                return InCore(self, level, self._core)
            self._leave_core()
        self.counters = self.backend.full(COUNTER_SHAPE, 0, np.uint64)
        self.backend.synchronize()  # the pipelines' streams do not wait for the backend's own
        if level == 0:
            return LevelZero(self, level, self._zero)
        if level == 1 and self.problem.fixed is None:  # panels and blocks know of no edge that is not to be tested
            plan = self._plan_level_one(np.array([np.count_nonzero(row) for row in self.adjacency_left], np.int64))
            if plan.layout != "gather":
                return {"panels": Panels, "blocks": SquareBlocks}[plan.layout](self, level, plan)
        return Gathered(self, level)

    def _fits_in_core(self, level: int) -> bool:
        """Whether a level in core keeps the budget, given those before it."""
        left = self.budget - (self.backend.memory_used - self._used_before)
        return self.device is None or self.device.level_bytes(level) <= left

    def _plan_level_one(self, degrees: np.ndarray | None = None) -> _plan.Plan | None:
        """The plan of level 1; without the degrees of the graph gathering is not among the choices."""
        gathered, pmax, layout = None, self.run.pmax, self.params["layout"]
        if degrees is not None:
            longest = int(degrees.max())
            arena = _plan.largest_arena(self.budget, 1, longest, 0, pmax)
            if layout == "gather" or _plan.cluster_bytes(longest + 1, 1, longest, pmax) <= arena:
                gathered = int(8 * np.square(degrees[degrees > 1] + 1).sum())
        return _plan.level_one(self.p, self.budget, self.params["block_size"], layout, pmax, gathered)
