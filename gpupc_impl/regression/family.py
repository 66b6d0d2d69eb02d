"""Numbers and categories with likelihood ratio tests of regressions."""

from gpupc_impl.core.family import Family
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.regression.retest import Retest
from gpupc_impl.regression.strength import Strength

FAMILY = Family(
    name="regression",
    problem=RegressionProblem,
    retest=Retest,
    strength=Strength,
    auto={"cuda": "regression-batched", "host": "regression-batched"},
    packages=("gpupc_impl.regression", "baselines"),
    data="both",
)
