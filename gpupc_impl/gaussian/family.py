"""Gaussian data with Fisher's z test (cuPC)."""

from gpupc_impl.backends import BackendUnavailable, open_backend
from gpupc_impl.core.family import Family
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.gaussian import imputed, pairwise
from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.gaussian.large import prepare_large
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.gaussian.single_tests import ArrayTests, GaussianTests, SampleTests


def _open_tests(problem: GaussianProblem, backend: str) -> IndependenceTests:
    if isinstance(problem, ArrayProblem):
        return ArrayTests(problem)
    if problem.samples is not None:
        try:
            return SampleTests(problem, open_backend(backend))
        except BackendUnavailable:
            if backend != "auto":
                raise
    return GaussianTests(problem, backend)


FAMILY = Family(
    name="gaussian",
    problem=GaussianProblem,
    retest=Retest,
    tests=_open_tests,
    # pair-scan is the fastest on GPUs and CPU cores (docs/design/gaussian.md); stable-parallel needs no C++ compiler.
    auto={"cuda": "pair-scan", "host": "pair-scan", "cpu": "stable-parallel"},
    packages=(
        "gpupc_impl.gaussian",
        "gpupc_impl.out_of_core",
        "gpupc_impl.distributed",
        "baselines",
        "baselines.peers",
    ),
    default=True,
    treatments={
        "pairwise": (pairwise.PairwiseProblem, pairwise.METHOD),
        "imputed": (imputed.ImputedProblem, imputed.METHOD),
    },
    prepare_large=prepare_large,
)
