"""Nonlinear data with the CMIknn test (GPU-CMIknn)."""

from gpupc_impl.core.family import Family
from gpupc_impl.nonlinear.cmi_estimator import CmiknnTests
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest

FAMILY = Family(
    name="nonlinear",
    problem=NonlinearProblem,
    retest=Retest,
    tests=CmiknnTests,
    v_structures="standard",
    # The kernels process many permutations at a time, so they are faster than the references on CPU cores as well.
    auto={"cuda": "gpucmiknn-parallel", "host": "gpucmiknn-parallel"},
    packages=("gpupc_impl.nonlinear", "baselines", "baselines.peers"),
)
