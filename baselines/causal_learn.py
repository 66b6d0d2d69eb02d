"""causal-learn's skeleton search: another group's implementation of PC-stable, as an independent oracle."""

import numpy as np

from baselines._causal_learn import WATCHED, watched, watched_search
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "causal-learn",
    family="gaussian",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with FisherZ",
    summary="skeleton search of the package causal-learn (Python, slow)",
    canonical=False,
    **WATCHED,
)
def causal_learn(problem: GaussianProblem, run: Run) -> Skeleton:
    """Run causal-learn's own search and test (see `watched_search`).

    - Its test inverts the correlation matrix of (i, j, S). If that is exactly singular, the test raises an error; if it
      is nearly singular, as with duplicated columns, the answer depends on rounding. The test has neither undefined
      results nor a pseudo-inverse, and ignores `residual_tolerance`.
    - ``df_convention="cupc"`` has one degree of freedom less, so the sample size that its test receives is smaller by
      one.
    """
    from causallearn.utils.cit import FisherZ

    p = problem.n_variables
    # causal-learn reads only the width of the data, so the values are placeholders.
    test = watched(FisherZ)(np.arange(2.0 * p).reshape(2, p))
    test.correlation_matrix = problem.correlation
    test.sample_size = problem.degrees_of_freedom(0) + 3
    return watched_search(problem, run, test, run.facts)
