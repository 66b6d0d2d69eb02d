"""The kernel tests of a problem, by their name."""

from gpupc_impl.backends import Backend
from gpupc_impl.kernel.fourier import FourierTest
from gpupc_impl.kernel.kci import KciTest
from gpupc_impl.kernel.problem import KernelProblem


def open_tests(problem: KernelProblem, backend: Backend) -> FourierTest | KciTest:
    """The tests of a problem on a backend; raises DeviceMemoryError if one test does not fit into its memory."""
    return (KciTest if problem.test == "kci" else FourierTest)(problem, backend)
