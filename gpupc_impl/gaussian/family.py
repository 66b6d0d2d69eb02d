"""Gaussian data with Fisher's z test (cuPC)."""

from gpupc_impl.core.family import Family
from gpupc_impl.gaussian.large import prepare_large
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest

FAMILY = Family(
    name="gaussian",
    problem=GaussianProblem,
    retest=Retest,
    # On cores the compiled reference makes the same tests in less time than kernels do (docs/timing.md), on large data
    # at least; of the kernels, baseline-1 reads memory in the order that suits a CPU best.
    auto={"cuda": "cupc-s", "host": "baseline-1", "cpu": "stable-parallel"},
    packages=("gpupc_impl.gaussian", "gpupc_impl.out_of_core", "baselines", "baselines.peers"),
    default=True,
    prepare_large=prepare_large,
)
