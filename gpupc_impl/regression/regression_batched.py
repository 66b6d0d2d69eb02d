"""Method `regression-batched`: regression tests in batches, by CuPy's linear algebra on a GPU and NumPy's on cores."""

from gpupc_impl.core.p_value_search import search_by_p_values, single_test
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.regression.batched import RegressionTests
from gpupc_impl.regression.problem import RegressionProblem


@method(
    "regression-batched",
    family="regression",
    tiers=True,
    open_test=lambda problem, backend, params: (
        lambda i, j, members: single_test(RegressionTests(problem, backend), i, j, members)[0]
    ),
    source="this project; likelihood ratio tests of regressions, as in micd (Witte, Foraita and Didelez 2022)",
    summary="likelihood ratio tests of linear and logistic regressions in batches",
)
def regression_batched(problem: RegressionProblem, run: Run) -> Skeleton:
    assert run.backend is not None
    return search_by_p_values(problem, run, RegressionTests(problem, run.backend))
