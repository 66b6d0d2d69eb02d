"""Out-of-core by unified memory: cuPC-S on managed arrays (Out-of-Core, section 4.1)."""

import contextlib
import logging

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.pc_stable import LevelOutcome, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.engine import graph
from gpupc_impl.gaussian import cupc_s, pair_block
from gpupc_impl.gaussian.level_search import GaussianSearch
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import plans, square_blocks

logger = logging.getLogger("gpupc_impl.out_of_core")

THREADS = 128


@method(
    "out-of-core-um",
    family="gaussian",
    source="Out-of-Core, section 4.1",
    summary="the kernels of cupc-s on managed memory, which the driver moves between host and device",
    params={
        **cupc_s.PARAMETERS,
        "level_one": Parameter(
            "cupc-s",
            "kernel of level 1: that of cupc-s, or that of out-of-core-block, which tests each pair once (pairs)",
            choices=("cupc-s", "pairs"),
        ),
        "device_mb": Parameter(
            0, "megabytes of device memory to leave: plain allocations hold the rest; 0: all of it", minimum=0
        ),
        "allow_oversubscription": Parameter(False, "allow more memory than the device has; some machines hang then"),
    },
    tiers=True,
    kernels=cupc_s.KERNEL.kernels,
)
def out_of_core_um(problem: GaussianProblem, run: Run) -> Skeleton:
    megabytes = run.params["device_mb"]
    with run.backend.smaller_device(megabytes * 1_000_000) if megabytes else contextlib.nullcontext():
        return _search(problem, run)


def _search(problem: GaussianProblem, run: Run) -> Skeleton:
    backend = run.backend
    in_pairs = run.params["level_one"] == "pairs"
    needed = plans.managed_bytes(problem.n_variables, problem.max_level, run.pmax)
    if in_pairs and problem.max_level != 0:
        needed += plans.pair_bytes(problem.n_variables)
    limit, used = backend.memory_limit, backend.memory_used
    backend.reset_peak()
    allowed = run.params["allow_oversubscription"]
    logger.info("%s bytes of managed memory at most; %s bytes of device memory", f"{needed:,}", f"{limit - used:,}")
    if used + needed > limit and not allowed:
        raise DeviceMemoryError(
            needed,
            used,
            limit,
            f"out-of-core-um may need {needed:,} bytes of managed memory for {problem.n_variables:,} variables "
            f"{'at any level' if problem.max_level is None else f'up to level {problem.max_level}'}, and "
            f"{max(0, limit - used):,} of {limit:,} bytes of device memory are free: use out-of-core-block, set "
            "device_memory_limit higher or max_level lower, or set allow_oversubscription where the device is known to "
            "bear it",
        )
    report = {"budget_bytes": limit - used, "forecast_bytes": needed}
    with backend.managed_memory(oversubscribe=allowed):
        search = (PairSearch if in_pairs else UnifiedSearch)(problem, run, cupc_s.KERNEL)
        skeleton = pc_stable(
            problem, search.in_parts(), facts={**run.facts, "out_of_core": report}, progress=run.progress
        )
        report["peak_device_bytes"] = backend.memory_peak - used
        del search  # frees the arrays of the search before the backend leaves managed memory
    return skeleton


class UnifiedSearch(GaussianSearch):
    """The search of `cupc-s`, whose separating sets take no managed memory between levels."""

    sets_on_device = False


class PairSearch(UnifiedSearch):
    """The search of `cupc-s`, with the kernels of `out-of-core-block` at level 1 on the whole matrix as one block."""

    def _level(self, level: int) -> LevelOutcome:
        if level != 1 or self.problem.fixed is not None:  # the kernels would test required edges as well
            return super()._level(level)
        backend, p, n_words = self.backend, self.p, plans.words(self.p)
        rows = self.graph.compact(level)
        counters = backend.full(graph.COUNTER_SHAPE, 0, np.uint64)
        smallest = None if self.largest_p is None else backend.full((p, p), graph.NO_KEY, np.uint64)
        members = backend.full((p, p), pair_block.NO_MEMBER, np.uint32)
        bits = backend.empty((p, n_words), np.uint32)
        critical = self.problem.critical_r_squared(0)
        kernel, grid, threads, arguments = square_blocks.level_zero_launch(self.correlation, 0, 0, critical, bits)
        backend.kernel(*kernel)(grid, threads, arguments)
        block = pair_block.whole_matrix(
            self.correlation,
            bits,
            keys=members,
            min_r_squared=smallest,
            counters=counters,
            critical_r_squared=self.problem.critical_r_squared(level),
            residual_tolerance=self.problem.residual_tolerance,
            first_come=self.run.separating_sets == "first-come",
        )
        edges = int(backend.download(self.graph.degrees).sum(dtype=np.int64))
        dense = smallest is None and edges >= pair_block.DENSE * p * p
        kernel, grid, threads = square_blocks.level_one_launch(
            backend.name, p, p, dense, self.problem.residual_tolerance
        )
        backend.kernel(*kernel)(grid, threads, [block])
        backend.kernel(*square_blocks.RANKS)((p,), (THREADS,), [rows.argument, members, self.graph.best])
        del members, bits, block
        return self._end_level(level, rows, smallest, counters)
