"""Mixed data with the CMIknn test of Mesner and Shalizi."""

from gpupc_impl.core.family import Family
from gpupc_impl.mixed.gpucmiknn_mixed import MixedTests
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.mixed.retest import MixedRetest

FAMILY = Family(
    name="mixed",
    problem=MixedProblem,
    retest=MixedRetest,
    tests=MixedTests,
    v_structures="standard",
    auto={"cuda": "gpucmiknn-mixed", "host": "gpucmiknn-mixed"},
    packages=("gpupc_impl.mixed", "baselines"),
    data="both",
)
