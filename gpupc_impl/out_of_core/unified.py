"""Out-of-core by unified memory: cuPC-S on managed arrays (Out-of-Core, section 4.1)."""

import logging

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.device import GaussianSearch
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import _plan

logger = logging.getLogger("gpupc_impl.out_of_core")


@method(
    "out-of-core-um",
    family="gaussian",
    source="Out-of-Core, section 4.1",
    summary="the kernels of cupc-s on managed memory, which the driver moves between host and device",
    params={
        **cupc_s.PARAMETERS,
        "allow_oversubscription": Parameter(False, "take more memory than the device has; on some machines it hangs"),
    },
)
def out_of_core_um(problem: GaussianProblem, run: Run) -> Skeleton:
    backend = run.backend
    needed = _plan.core(problem.n_variables, problem.max_level, run.pmax).device_bytes
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
        search = GaussianSearch(problem, run, cupc_s.KERNEL)
        found = pc_stable(problem, search, facts={**run.facts, "out_of_core": report}, progress=run.progress)
        report["peak_device_bytes"] = backend.memory_peak - used
    return found
