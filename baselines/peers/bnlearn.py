"""The R package bnlearn, whose ``pc.stable`` is the CPU program of the gpuPC paper (docs/peers.md)."""

import dataclasses

import numpy as np

from baselines.peers._answer import deepest_level, refuse_pmax, to_skeleton, untested
from baselines.peers._r import needs_r, r_skeleton
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem

# The public function pc.stable calls this internal one, and drops the separating sets that it returns.
SCRIPT = r"""
suppressPackageStartupMessages(library(bnlearn))
numbers <- reals("numbers")
categories <- integers("categories")
codes <- matrix(integers("codes"), ncol = length(categories))
columns <- lapply(seq_along(categories), function(v) factor(codes[, v], levels = seq_len(categories[v]) - 1))
data <- as.data.frame(setNames(columns, paste0("V", seq_along(categories))))
found <- timed(bnlearn:::pc.stable.backend(bnlearn:::check.data(data, allow.missing = TRUE), whitelist = NULL,
                                           blacklist = NULL, test = TEST, alpha = numbers[1], B = NULL,
                                           max.sx = numbers[2]))
edges <- matrix(0L, length(categories), length(categories))
sets <- list()
for (pair in attr(found, "dsep.set")) {
    ends <- match(pair$arc, names(data))
    if (pair$p.value < numbers[1]) edges[ends[1], ends[2]] <- edges[ends[2], ends[1]] <- 1L
    else sets[[length(sets) + 1]] <- c(ends, length(pair$dsep.set), match(pair$dsep.set, names(data)))
}
store("edges", edges, "integer")
store("sets", unlist(sets), "integer")
"""

TESTS = {"x2": ("chi-square", "full"), "mi-adf": ("g-square", "adjusted")}
"""For each of bnlearn's tests, the test and the rule for degrees of freedom as our problems name them."""


@method(
    "bnlearn",
    family="discrete",
    backends=("cpu",),
    source="R package bnlearn, pc.stable; gpuPC, section 4.3",
    summary="PC-stable of the R package bnlearn on one core",
    params={"criterion": Parameter("x2", "bnlearn's name of the test", choices=tuple(TESTS))},
    canonical=False,
    knowledge=False,
    unavailable=needs_r("bnlearn"),
)
def bnlearn(problem: DiscreteProblem, run: Run) -> Skeleton:
    """Run bnlearn's PC-stable with its own test, which the facts of the result name.

    ``x2`` is the chi-square test with full degrees of freedom. ``mi-adf`` is G-square with adjusted degrees of freedom,
    and calls a pair independent if there are fewer than five samples for each cell.

    Raises:
        InvalidParameter: largest p-values are requested.
        InvalidProblem: the problem is the workload of a fixed number of tests an edge, or a variable has one category.
    """
    refuse_pmax(run)
    if not problem.decided_by_tests:
        raise InvalidProblem("method 'bnlearn' makes the tests that its search needs, not tests_per_edge of them")
    if lone := [name for name, count in zip(problem.names, problem.categories, strict=True) if count < 2]:
        raise InvalidProblem(f"bnlearn needs two categories a variable; {lone[0]!r} has one: leave it out")
    test, df_rule = TESTS[run.params["criterion"]]
    solved = dataclasses.replace(problem, test=test, df_rule=df_rule)
    deepest = deepest_level(solved, solved.n_variables)
    if deepest < 0:
        return to_skeleton(solved, run, *untested(solved), deepest, [])
    inputs = {"numbers": np.array([solved.alpha, deepest]), "codes": solved.codes.astype(np.int32)}
    inputs |= {"categories": solved.categories.astype(np.int32)}
    return r_skeleton(solved, run, SCRIPT.replace("TEST", f'"{run.params["criterion"]}"'), inputs, deepest)
