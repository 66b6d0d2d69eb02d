"""Method `kernel-batched`: kernel tests in batches, by cuBLAS and cuSOLVER through CuPy on a GPU and by NumPy on
cores."""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.core.batched_search import BatchedSearch, single_test
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.kernel.tests import open_tests


@method(
    "kernel-batched",
    family="kernel",
    source="this project; RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011)",
    tiers=True,
    summary="RCIT, RCoT or KCI in batches of sets that share features, factors and residuals",
)
def kernel_batched(problem: KernelProblem, run: Run) -> Skeleton:
    assert run.backend is not None
    search = BatchedSearch(problem, run, open_tests(problem, run.backend))
    return pc_stable(problem, search, facts=dict(run.facts), progress=run.progress)


def open_test(problem: KernelProblem, backend: Backend, params: Mapping[str, Any]) -> Callable[..., float]:
    """The function (i, j, S) -> p-value that makes single tests (`measurement.single_tests`)."""
    return lambda i, j, members: ci_test(problem, i, j, members, backend)[0]


def ci_test(problem: KernelProblem, i: int, j: int, members: Any, backend: Backend) -> tuple[float, float]:
    """The p-value and the statistic of one test of variables i and j given the members."""
    return single_test(open_tests(problem, backend), i, j, members)
