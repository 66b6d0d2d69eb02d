"""Categorical data with Pearson's chi-square or the G-square test (gpuPC)."""

from gpupc_impl.core.family import Family
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.retest import Retest
from gpupc_impl.discrete.single_tests import DiscreteTests

FAMILY = Family(
    name="discrete",
    problem=DiscreteProblem,
    retest=Retest,
    tests=DiscreteTests,
    # gpupc is the fastest on cores, too; discrete-parallel needs no C++ compiler.
    auto={"cuda": "gpupc", "host": "gpupc", "cpu": "discrete-parallel"},
    packages=("gpupc_impl.discrete", "baselines", "baselines.peers"),
    data="labels",
    default=True,
)
