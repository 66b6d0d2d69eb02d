"""PC-stable with RCIT, RCoT or KCI in plain NumPy, one test at a time: the reference of the kernel family."""

from collections.abc import Callable, Mapping
from typing import Any

from baselines._serial import SerialSearch
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.kernel.plain import PlainTest
from gpupc_impl.kernel.problem import KernelProblem


@method(
    "kernel-serial",
    family="kernel",
    backends=("cpu",),
    source="RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011) in PC-stable",
    summary="PC-stable with RCIT, RCoT or KCI, test by test in plain NumPy",
    reference=True,
    tiers=True,
)
def kernel_serial(problem: KernelProblem, run: Run) -> Skeleton:
    search = SerialSearch(problem, run.pmax, PlainTest(problem))
    return pc_stable(problem, search, facts=run.facts, progress=run.progress)


def open_test(problem: KernelProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    test = PlainTest(problem)
    return lambda i, j, members: test(i, j, members)[0]
