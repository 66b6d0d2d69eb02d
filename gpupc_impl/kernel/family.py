"""Continuous data with kernel tests: RCIT, RCoT and KCI."""

from gpupc_impl.core.family import Family
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.kernel.retest import Retest
from gpupc_impl.kernel.strength import Strength

FAMILY = Family(
    name="kernel",
    problem=KernelProblem,
    retest=Retest,
    strength=Strength,
    auto={"cuda": "kernel-batched", "host": "kernel-batched"},
    packages=("gpupc_impl.kernel", "baselines"),
)
