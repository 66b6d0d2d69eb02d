"""Method `kernel-batched`: kernel tests in batches, by CuPy (cuBLAS, cuSOLVER) on a GPU and NumPy on cores."""

from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.core.p_value_search import search_by_p_values, single_test
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.kernel.fourier import FourierTest
from gpupc_impl.kernel.kci import KciTest
from gpupc_impl.kernel.problem import KernelProblem


@method(
    "kernel-batched",
    family="kernel",
    source="this project; RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011)",
    tiers=True,
    open_test=lambda problem, backend, params: lambda i, j, members: ci_test(problem, i, j, members, backend)[0],
    summary="RCIT, RCoT or KCI in batches of sets that share features, factors and residuals",
)
def kernel_batched(problem: KernelProblem, run: Run) -> Skeleton:
    assert run.backend is not None
    return search_by_p_values(problem, run, open_tests(problem, run.backend))


def ci_test(problem: KernelProblem, i: int, j: int, members: Any, backend: Backend) -> tuple[float, float]:
    """The p-value and the statistic of one test of variables i and j given the members."""
    return single_test(open_tests(problem, backend), i, j, members)


def open_tests(problem: KernelProblem, backend: Backend) -> FourierTest | KciTest:
    """The tests of a problem on a backend; raises DeviceMemoryError if one test does not fit into its memory."""
    return (KciTest if problem.test == "kci" else FourierTest)(problem, backend)
