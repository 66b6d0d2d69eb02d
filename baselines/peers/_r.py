"""Calls functions of R packages, each in an Rscript of its own, and times them by R's clock."""

import dataclasses
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from baselines.peers._answer import padded, to_skeleton
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton

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
    return functools.cache(functools.partial(_lacking, package))


def _lacking(package: str) -> str | None:
    if shutil.which("Rscript") is None:
        return f"Rscript is not on the PATH; install R and its package {package} (docs/peers.md)"
    command = ["Rscript", "--vanilla", "-e", f'cat(requireNamespace("{package}", quietly = TRUE))']
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.stdout == "TRUE":
        return None
    return f"R has no package {package} that can be loaded; docs/peers.md explains how to install it"


def r_skeleton(problem: Problem, run: Run, script: str, inputs: Mapping[str, np.ndarray], deepest: int) -> Skeleton:
    """Return the answer of an R script, which alone is timed: ``facts["translation_s"]`` is all other time, and
    ``facts["cpu_s"]`` the CPU time of the search.

    Args:
        script: reads `inputs` by ``reals(name)`` and ``integers(name)``, and stores ``edges``, (p * p) integers that
            are nonzero for edges; ``sets``, integers ``i, j, size, members`` counted from 1 for each removed pair that
            has a set; and calls ``timed`` with the search.
        inputs: float64 and int32 arrays by name.
        deepest: the largest level that the script was allowed.

    Raises:
        RuntimeError: R failed; the message is the end of what it printed.
    """
    start = time.perf_counter()
    p = problem.n_variables
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
    skeleton = to_skeleton(problem, run, edges.reshape(p, p), padded(sets, p, first=1), deepest, [])
    timed = {"translation_s": time.perf_counter() - start - seconds, "cpu_s": cpu_seconds}
    return dataclasses.replace(skeleton, facts={**skeleton.facts, **timed})
