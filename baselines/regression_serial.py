"""PC-stable with likelihood ratio tests of regressions, one test at a time: the reference of the regression family."""

from collections.abc import Callable, Mapping
from typing import Any

from baselines._serial import SerialSearch
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.regression.plain import PlainTest
from gpupc_impl.regression.problem import RegressionProblem


@method(
    "regression-serial",
    family="regression",
    backends=("cpu",),
    source="likelihood ratio tests of regressions, as in micd (Witte, Foraita and Didelez 2022), in PC-stable",
    summary="PC-stable with regressions, test by test in NumPy and SciPy",
    reference=True,
    tiers=True,
)
def regression_serial(problem: RegressionProblem, run: Run) -> Skeleton:
    search = SerialSearch(problem, run.pmax, PlainTest(problem))
    return pc_stable(problem, search, facts=run.facts, progress=run.progress)


def open_test(problem: RegressionProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    test = PlainTest(problem)
    return lambda i, j, members: test(i, j, members)[0]
