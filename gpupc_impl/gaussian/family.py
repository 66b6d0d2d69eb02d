"""Gaussian data with Fisher's z test (cuPC)."""

from gpupc_impl.core.family import Family
from gpupc_impl.gaussian import imputed, pairwise
from gpupc_impl.gaussian.large import prepare_large
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.gaussian.single_tests import open_gaussian_tests

FAMILY = Family(
    name="gaussian",
    problem=GaussianProblem,
    retest=Retest,
    tests=open_gaussian_tests,
    # pair-scan is the fastest method on a GPU and on CPU cores (docs/design/gaussian.md). The reference
    # stable-parallel needs no C++ compiler.
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
