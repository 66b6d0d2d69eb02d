"""The R package pcalg, whose function ``skeleton`` is cuPC's Stable and Stable.fast (docs/peers.md)."""

import numpy as np

from baselines.peers._answer import deepest_level, refuse_pmax, to_skeleton, untested
from baselines.peers._r import needs_r, r_skeleton
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem

SCRIPT = r"""
suppressPackageStartupMessages(library(pcalg))
numbers <- reals("numbers")
correlation <- matrix(reals("correlation"), numbers[4])
found <- timed(skeleton(list(C = correlation, n = numbers[1]), gaussCItest, alpha = numbers[2], p = numbers[4],
                        method = METHOD, m.max = numbers[3], numCores = 1))
store("edges", as(found@graph, "matrix") != 0, "integer")
sets <- lapply(seq_along(found@sepset), function(i) {
    row <- found@sepset[[i]]
    lapply(which(lengths(row) > 0), function(j) c(i, j, length(row[[j]]), row[[j]]))
})
store("sets", unlist(sets), "integer")
"""


@method(
    "pcalg",
    family="gaussian",
    backends=("cpu",),
    source="R package pcalg, skeleton(method='stable.fast' or 'stable'); cuPC, section 5.2",
    summary="PC-stable of the R package pcalg on one core",
    params={"search": Parameter("stable.fast", "C++ or R", choices=("stable.fast", "stable"))},
    canonical=False,
    knowledge=False,
    unavailable=needs_r("pcalg"),
)
def pcalg(problem: GaussianProblem, run: Run) -> Skeleton:
    """Run pcalg's ``skeleton`` with its ``gaussCItest`` on one core.

    pcalg's test has n - |S| - 3 degrees of freedom; with ``df_convention="cupc"`` it is given one sample less. It cuts
    correlations off at 0.9999999 and has no residual tolerance, so near-singular sets may be decided differently.

    Raises:
        InvalidParameter: largest p-values are requested.
    """
    refuse_pmax(run)
    deepest = deepest_level(problem, problem.n_variables)
    if deepest < 0:
        return to_skeleton(problem, run, *untested(problem), deepest, [])
    samples = problem.n_samples - (problem.df_convention == "cupc")
    numbers = np.array([samples, problem.alpha, deepest, problem.n_variables], np.float64)
    script = SCRIPT.replace("METHOD", f'"{run.params["search"]}"')
    return r_skeleton(problem, run, script, {"numbers": numbers, "correlation": problem.correlation}, deepest)
