"""causal-learn's skeleton search on coded data, an independent implementation that serves as an oracle."""

import dataclasses

from baselines._causal_learn import WATCHED, watched, watched_search
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton

TESTS = {"chi-square": "chisq", "g-square": "gsq"}


@method(
    "causal-learn-discrete",
    family="discrete",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with chisq or gsq",
    summary="skeleton search of the package causal-learn (Python, slow)",
    canonical=False,
    **WATCHED,
)
def causal_learn_discrete(problem: Problem, run: Run) -> Skeleton:
    """Run causal-learn's own search and test (see `watched_search`).

    causal-learn implements the adjusted rule for degrees of freedom. For a problem with the full rule, causal-learn
    still applies the adjusted rule, and the result's facts state this.

    Raises:
        InvalidProblem: the problem is the workload of a fixed number of tests per edge, which is not a search.
    """
    from causallearn.utils.cit import Chisq_or_Gsq

    if not problem.decided_by_tests:
        raise InvalidProblem(
            "method 'causal-learn-discrete' makes the tests that its search needs, not tests_per_edge = "
            f"{problem.tests_per_edge} of them; leave it out of this workload"
        )
    solved = dataclasses.replace(problem, df_rule="adjusted")
    test = watched(Chisq_or_Gsq)(problem.codes.T, TESTS[problem.test])
    return watched_search(solved, run, test, {**run.facts, "problem": solved.facts()})
