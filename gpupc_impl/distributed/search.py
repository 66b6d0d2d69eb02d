"""The client's part of a search on a cluster: the plan, the tasks of each level, and the graph between levels."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import write_text
from gpupc_impl.core.pc_stable import LevelOutcome, stop_reason
from gpupc_impl.core.registry import Run
from gpupc_impl.distributed import cluster, machine, panel_plan, preparation, shards, supervision, worker
from gpupc_impl.distributed.address_space import empty_graph
from gpupc_impl.distributed.panel_plan import PanelPlan
from gpupc_impl.distributed.row_tasks import row_groups
from gpupc_impl.distributed.sharded_sets import BlockShards, check_block, check_rows
from gpupc_impl.distributed.shards import ShardFolder
from gpupc_impl.distributed.sparse_search import SparseSearch
from gpupc_impl.distributed.spec import SearchSpec
from gpupc_impl.distributed.task_runner import TaskRunner
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import round_up

logger = logging.getLogger("gpupc_impl.distributed")


class DistributedSearch(SparseSearch):
    """One search on a cluster, which is used as a context manager.

    Attributes:
        report: the facts that are recorded: the plan, the workers, and seconds and bytes by level.

    Raises:
        InvalidParameter: pmax is requested, or a parameter does not fit the machine.
        InvalidProblem: the folder is for another search, or a worker does not see it.
        BackendUnavailable: a worker cannot run kernels.
        DeviceMemoryError: the workers' memory does not hold the smallest panels.
        ClusterFailure: the scheduler died, or there was no worker for `WORKER_TIMEOUT` seconds, or several workers died
            at the same task.
    """

    def __init__(self, problem: GaussianProblem, run: Run):
        super().__init__(problem, run)
        self._stack = contextlib.ExitStack()
        self._first_outcomes: list[LevelOutcome] = []
        self._workers: list[str] = []
        self.report: dict[str, Any] = {"levels": []}

    def __enter__(self) -> DistributedSearch:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    # --- before the first level --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Connect to the cluster, plan the search, and bring the numbers to the workers."""
        started = time.perf_counter()
        self._adjacency = empty_graph(self.p)  # allocated before any work, so that a failure costs nothing
        params, problem = self.params, self.problem
        backend = self.run.backend.name if params["workers_on"] == "auto" else params["workers_on"]
        client = self._stack.enter_context(cluster.open_client(params["client"], backend, params["workers"]))
        self._stack.enter_context(supervision.turn(client))
        owner = None if params["folder"] else tempfile.TemporaryDirectory(prefix="gpupc-")
        folder = ShardFolder(Path(owner.name if owner else params["folder"]).absolute())
        limit = self.run.backend.device_memory_limit
        offers = preparation.ask_workers(client, backend, limit, params["host_memory_limit"])
        self._workers = sorted(offers)
        plan = panel_plan.choose(
            0 if problem.samples is None else problem.n_samples,
            self.p,
            device_memory=min(offer["device_memory"] for offer in offers.values()),
            host_memory=min(offer["host_memory"] for offer in offers.values()),
            workers=len(offers),
            rows=round_up(params["panel"] or folder.rows_claimed(), panel_plan.STEP),
            knowledge=problem.fixed is not None,
        )
        planned = time.perf_counter()
        preparation.write_numbers(problem, self.run.backend, folder, plan, fingerprinted=owner is None)
        written = time.perf_counter()
        self._spec = self._describe(folder, plan, backend, is_temporary=owner is not None)
        self._shards = BlockShards(folder, plan, owner)
        self._runner = TaskRunner(client, self._spec, params["folder"], self.run.progress is not None, self.run.backend)
        self._stack.callback(self._forget, client)
        write_text(folder.key, self._spec.key)
        supervision.run_on_workers(client, worker.prepare, self._spec)
        ready = time.perf_counter()
        seconds = {"plan": planned - started, "write_numbers": written - planned, "read_numbers": ready - written}
        self.report |= {
            "seconds_before_levels": seconds,
            "plan": dataclasses.asdict(plan),
            "workers": len(offers),
            "devices": [offer["describe"] for offer in offers.values()],
            "levels": self._runner.levels,
        }
        logger.info(
            "%s variables in %d panels of %d, %d blocks; %d workers, which need %s bytes of device memory each and may "
            "take %s (%d panels), and %s of host memory",
            *(f"{self.p:,}", plan.panels, plan.rows, plan.panels * (plan.panels + 1) // 2, len(offers)),
            *(f"{plan.device_bytes:,}", f"{plan.budget:,}", plan.held, f"{plan.host_bytes:,}"),
        )

    def _describe(self, folder: ShardFolder, plan: PanelPlan, backend: str, is_temporary: bool) -> SearchSpec:
        """Return the description of the search for workers."""
        problem, is_matrix = self.problem, self.problem.samples is None
        has_level_one = stop_reason(problem, 1, max(self.p - 1, 2)) is None
        key = uuid.uuid4().hex
        return SearchSpec(
            key=key,
            identity=key if is_temporary else f"{problem.fingerprint} {plan.rows}",
            code=machine.code_digest(),
            folder=str(folder.path),
            shape=(self.p if is_matrix else problem.n_samples, self.p),
            is_matrix=is_matrix,
            plan=plan,
            backend=backend,
            is_limited=self.run.backend.device_memory_limit is not None,
            critical=(problem.critical_r_squared(0), problem.critical_r_squared(1) if has_level_one else None),
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
            knowledge=problem.fixed is not None,
        )

    def _forget(self, client: Any) -> None:
        """Let the workers drop their state of the search."""
        with contextlib.suppress(Exception):  # the cluster itself may have failed
            client.run(worker.forget, self._spec.key)

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            self._begin()
            self._first_outcomes = self._first_levels()
        return self._first_outcomes[level] if level < 2 else self._later_level(level)

    # --- levels ------------------------------------------------------------------------------------------------------

    def _first_levels(self) -> list[LevelOutcome]:
        """Run levels 0 and 1, which share their tasks."""
        started, problem, plan = self.run.backend.clock(), self.problem, self._spec.plan
        blocks = list(plan.blocks())
        share = plan.shares(len(self._workers))
        preferred = [self._workers[share[block]] if len(self._workers) > 1 else None for block in blocks]
        paths = [self._spec.shards.block(*block) for block in blocks]

        def check(k: int, outcome: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
            check_block(plan, *blocks[k], outcome, arrays)

        outcomes = self._runner.run("levels 0 and 1", worker.block_task, blocks, paths, preferred, check)
        left, degrees = [], np.empty(self.p, np.int64)
        for (i, j), outcome in zip(blocks, outcomes, strict=True):
            sent = outcome.get("left")
            left.append(self._shards.left(i, j) if sent is None else sent)
            if i == j:
                sent = outcome.get("degrees")
                degrees[plan.panel(i)] = self._shards.degrees(i) if sent is None else sent
        self._keep_edges(np.concatenate(left))
        seconds = self.run.backend.clock() - started
        step_seconds: Counter = Counter()
        for facts in self._runner.levels[-1]["workers"].values():
            step_seconds.update(facts["seconds"])
        first_seconds = 0.0
        if step_seconds:
            first_seconds = seconds * (step_seconds["correlate"] + step_seconds["level_0"]) / sum(step_seconds.values())
        max_degree = problem.most_tested_degree(degrees)
        zero = LevelOutcome(int(degrees.sum()) // 2, max_degree, problem.tests_of_level_zero, seconds=first_seconds)
        tests, undefined = (sum(outcome[name] for outcome in outcomes) for name in ("tests", "undefined"))
        return [zero, LevelOutcome(*self._count(), tests, undefined=undefined, seconds=seconds - first_seconds)]

    def _later_level(self, level: int) -> LevelOutcome:
        """Run a level from 2 on."""
        edges, fixed, folder = self._edges, self.problem.fixed, self._spec.shards
        graph = RowGraph.from_pairs(edges, self.p)
        required = np.empty(0, np.int64) if fixed is None else graph.edge_slots(fixed.required)
        groups = list(row_groups(self.problem, self._spec, graph, level, required))
        paths = [folder.rows(level, group.name) for group, _ in groups]
        critical = self.problem.critical_r_squared(level)
        tasks = [(level, critical, group) for group, _ in groups]

        def check(k: int, outcome: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
            check_rows(level, groups[k][0], outcome, arrays)

        outcomes = self._runner.run(f"level {level}", worker.rows_task, tasks, paths, [None] * len(groups), check)
        keys = np.full(len(graph.neighbours), NO_KEY, np.uint64)
        totals: Counter = Counter()
        for (_, slots), path, outcome in zip(groups, paths, outcomes, strict=True):
            keys[slots] = shards.read_array(path, "keys")
            totals.update({name: outcome[name] for name in ("tests", "undefined", "pseudo_inverses")})
        keys[required] = NO_KEY
        pairs, sets = graph.separated(keys, level)
        if (sets[:, :, None] == pairs[:, None]).any():
            raise shards.MissingShard(
                f"level {level}: a shard in {folder.path} separates a pair by one of its own; name another folder"
            )
        return self._remove(pairs, sets, totals)
