"""Numbers and categories with likelihood ratio tests of regressions."""

from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import Family
from gpupc_impl.core.p_value_search import PValueRetest, PValueTests
from gpupc_impl.regression.plain import PlainTest
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.regression.regression_batched import RegressionTests

AFFORDED = 10**7

FAMILY = Family(
    name="regression",
    problem=RegressionProblem,
    retest=lambda problem: PValueRetest(PlainTest(problem), problem.alpha, AFFORDED // problem.n_samples),
    tests=lambda problem, backend: PValueTests(problem, RegressionTests(problem, open_backend(backend))),
    auto={"cuda": "regression-batched", "host": "regression-batched"},
    packages=("gpupc_impl.regression", "baselines"),
    data="both",
)
