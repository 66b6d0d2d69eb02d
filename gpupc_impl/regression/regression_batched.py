"""Method `regression-batched`: regression tests in batches, by CuPy's linear algebra on a GPU and NumPy's on cores."""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.core.batched_search import BatchedSearch, single_test
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.regression.batched import RegressionTests
from gpupc_impl.regression.problem import RegressionProblem


@method(
    "regression-batched",
    family="regression",
    tiers=True,
    source="this project; likelihood ratio tests of regressions, as in micd (Witte, Foraita and Didelez 2022)",
    summary="likelihood ratio tests of linear and logistic regressions in batches",
)
def regression_batched(problem: RegressionProblem, run: Run) -> Skeleton:
    assert run.backend is not None
    search = BatchedSearch(problem, run, RegressionTests(problem, run.backend))
    return pc_stable(problem, search, facts=dict(run.facts), progress=run.progress)


def open_test(problem: RegressionProblem, backend: Backend, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value that makes single tests (`measurement.single_tests`)."""
    tests = RegressionTests(problem, backend)
    return lambda i, j, members: single_test(tests, i, j, members)[0]
