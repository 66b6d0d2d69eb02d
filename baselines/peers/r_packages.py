"""The R packages pcalg and bnlearn, each call in an Rscript of its own and timed by R's clock (docs/peers.md)."""

import dataclasses
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from baselines.peers._answer import Found, call_program, padded, peer
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.problem import GaussianProblem

_FUNCTIONS = r"""
folder <- commandArgs(TRUE)[1]
# R keeps files of 8-byte numbers and of 4-byte integers as plain vectors.
reals <- function(name) readBin(file.path(folder, name), "double", file.size(file.path(folder, name)) / 8)
integers <- function(name) readBin(file.path(folder, name), "integer", file.size(file.path(folder, name)) / 4)
store <- function(name, values, type) writeBin(as.vector(values, type), file.path(folder, name))
clocks <- function() c(as.numeric(Sys.time()), sum(proc.time()[1:2]))
timed <- function(search) {  # R evaluates an argument where it is first used, so between the two clocks.
    start <- clocks()
    found <- search
    store("seconds", clocks() - start, "double")
    found
}
"""


def needs_r(package: str) -> Callable[[], str | None]:
    """Return an ``unavailable`` function for a method that calls an R package."""

    @functools.cache
    def unavailable() -> str | None:
        if shutil.which("Rscript") is None:
            return f"Rscript is not on the PATH; install R and its package {package} (docs/peers.md)"
        command = ["Rscript", "--vanilla", "-e", f'cat(requireNamespace("{package}", quietly = TRUE))']
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.stdout == "TRUE":
            return None
        return f"R has no package {package} that can be loaded; docs/peers.md explains how to install it"

    return unavailable


def run_script(script: str, inputs: Mapping[str, np.ndarray], p: int) -> Found:
    """Return the answer of an R script on p variables, with ``facts["cpu_s"]``, its CPU time. RuntimeError has the end
    of what R printed if it failed. The script reads `inputs`, float64 and int32 arrays, by ``reals(name)`` and
    ``integers(name)``, and stores ``edges``, (p * p) integers, nonzero for edges; ``sets``, integers ``i, j, size,
    members`` counted from 1 for each removed pair with a set; and calls ``timed`` with the search."""
    with tempfile.TemporaryDirectory(prefix="gpupc-r-") as folder:
        for name, values in inputs.items():
            np.ascontiguousarray(values).tofile(Path(folder, name))
        source = Path(folder, "script.R")
        source.write_text(_FUNCTIONS + script, encoding="utf-8")
        command = ["Rscript", "--vanilla", str(source), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Rscript ended with {done.returncode}: {done.stderr[-1000:].strip()}")
        edges, sets = (np.fromfile(Path(folder, name), np.int32) for name in ("edges", "sets"))
        seconds, cpu_seconds = np.fromfile(Path(folder, "seconds"), np.float64).tolist()
    return Found(edges.reshape(p, p), padded(sets, p, first=1), seconds=seconds, facts={"cpu_s": cpu_seconds})


PCALG = r"""
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


@peer(
    "pcalg",
    family="gaussian",
    source="R package pcalg, skeleton(method='stable.fast' or 'stable'); cuPC, section 5.2",
    summary="PC-stable of the R package pcalg on one core",
    params={"search": Parameter("stable.fast", "C++ or R", choices=("stable.fast", "stable"))},
    unavailable=needs_r("pcalg"),
)
def pcalg(problem: GaussianProblem, run: Run) -> Skeleton:
    """Run pcalg's ``skeleton``, which is cuPC's Stable and Stable.fast, with its ``gaussCItest`` on one core. pcalg's
    test has n - |S| - 3 degrees of freedom; with ``df_convention="cupc"`` it is given one sample less. It cuts
    correlations off at 0.9999999 and has no residual tolerance, so near-singular sets may be decided differently."""
    samples, p = problem.n_samples - (problem.df_convention == "cupc"), problem.n_variables

    def search(deepest: int) -> Found:
        numbers = np.array([samples, problem.alpha, deepest, p], np.float64)
        script = PCALG.replace("METHOD", f'"{run.params["search"]}"')
        return run_script(script, {"numbers": numbers, "correlation": problem.correlation}, p)

    return call_program(problem, run, p, search)


BNLEARN = r"""
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

TESTS = {"x2": ("chi-square", "full"), "mi-adf": ("g-square", "adjusted")}  # our names of bnlearn's tests


@peer(
    "bnlearn",
    family="discrete",
    source="R package bnlearn, pc.stable; gpuPC, section 4.3",
    summary="PC-stable of the R package bnlearn on one core",
    params={"criterion": Parameter("x2", "bnlearn's name of the test", choices=tuple(TESTS))},
    unavailable=needs_r("bnlearn"),
)
def bnlearn(problem: DiscreteProblem, run: Run) -> Skeleton:
    """Run bnlearn's PC-stable with its own test, which the facts of the result name. ``x2`` is the chi-square test with
    full degrees of freedom. ``mi-adf`` is G-square with adjusted degrees of freedom, and calls a pair independent if
    there are fewer than five samples for each cell. InvalidProblem is raised if a variable has one category."""
    if lone := [name for name, count in zip(problem.names, problem.categories, strict=True) if count < 2]:
        raise InvalidProblem(f"bnlearn needs two categories a variable; {lone[0]!r} has one: leave it out")
    criterion = run.params["criterion"]
    test, df_rule = TESTS[criterion]
    solved = dataclasses.replace(problem, test=test, df_rule=df_rule)

    def search(deepest: int) -> Found:
        inputs = {"numbers": np.array([solved.alpha, deepest]), "codes": solved.codes.astype(np.int32)}
        inputs |= {"categories": solved.categories.astype(np.int32)}
        return run_script(BNLEARN.replace("TEST", f'"{criterion}"'), inputs, solved.n_variables)

    return call_program(solved, run, solved.n_variables, search)
