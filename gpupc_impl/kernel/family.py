"""Continuous data with kernel tests: RCIT, RCoT and KCI."""

from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import Family
from gpupc_impl.core.p_value_search import PValueRetest, PValueTests
from gpupc_impl.kernel.kernel_batched import open_tests
from gpupc_impl.kernel.plain import PlainTest
from gpupc_impl.kernel.problem import KernelProblem

AFFORDED = {"fourier": 2 * 10**7, "kci": 10**11}


def retest(problem: KernelProblem) -> PValueRetest:
    n = problem.n_samples
    affordable = AFFORDED["kci"] // n**3 if problem.test == "kci" else AFFORDED["fourier"] // n
    return PValueRetest(PlainTest(problem), problem.alpha, affordable)


FAMILY = Family(
    name="kernel",
    problem=KernelProblem,
    retest=retest,
    tests=lambda problem, backend: PValueTests(problem, open_tests(problem, open_backend(backend))),
    auto={"cuda": "kernel-batched", "host": "kernel-batched"},
    packages=("gpupc_impl.kernel", "baselines"),
)
