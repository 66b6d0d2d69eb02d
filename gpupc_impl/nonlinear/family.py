"""Nonlinear data with the CMIknn test (GPU-CMIknn)."""

from gpupc_impl.core.family import Family
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest
from gpupc_impl.nonlinear.strength import Strength

FAMILY = Family(
    name="nonlinear",
    problem=NonlinearProblem,
    retest=Retest,
    strength=Strength,
    v_structures="standard",
    # The kernels work on many permutations at a time and are faster than the references on cores, too.
    auto={"cuda": "gpucmiknn-parallel", "host": "gpucmiknn-parallel"},
    packages=("gpupc_impl.nonlinear", "baselines", "baselines.peers"),
)
