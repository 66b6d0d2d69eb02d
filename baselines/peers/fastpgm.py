"""FastPGM's PC-stable (Fast-BNS), a shared library that the user builds from its repository (docs/peers.md)."""

import ctypes
import dataclasses
import functools
import math
import os
import time

import numpy as np

from baselines.peers._answer import deepest_level, padded, refuse_pmax, to_skeleton, unavailable, untested
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem

LIBRARY = "GPUPC_FASTPGM_LIBRARY"

MAX_CELLS = 2**31 - 1  # the upper bound on the cells of a table, which the program numbers with 32 bits


@method(
    "fastpgm",
    family="discrete",
    backends=("cpu",),
    source="FastPGM, PCStable; Jiang, Wen and Mian, Fast Parallel Bayesian Network Structure Learning, IPDPS 2022",
    summary="PC-stable of the C++ library FastPGM",
    params={"threads": Parameter(1, "number of threads, which share the edges of a level", minimum=1, maximum=1024)},
    canonical=False,
    knowledge=False,
    unavailable=unavailable(LIBRARY, lambda path: _search(path)),
)
def fastpgm(problem: DiscreteProblem, run: Run) -> Skeleton:
    """Run FastPGM's PC-stable with its own test, G-square with adjusted degrees of freedom, which the result's facts
    name.

    The search ends before a level at which a table may have more than `MAX_CELLS` cells. The program's own clock times
    the search alone; all other time, including the orientation of edges, is ``facts["translation_s"]``.

    Raises:
        InvalidParameter: largest p-values are requested.
        InvalidProblem: the problem is the workload of a fixed number of tests an edge.
    """
    refuse_pmax(run)
    if not problem.decided_by_tests:
        raise InvalidProblem("method 'fastpgm' makes the tests that its search needs, not tests_per_edge of them")
    solved = dataclasses.replace(problem, test="g-square", df_rule="adjusted")
    p, n = solved.codes.shape
    fits = (level for level in range(-1, p) if math.prod(solved.descending[: level + 3]) > MAX_CELLS)
    deepest = deepest_level(solved, next(fits, p))
    if deepest < 0:
        return to_skeleton(solved, run, *untested(solved), deepest, [])
    start = time.perf_counter()
    codes, categories = solved.codes.astype(np.int32), np.ascontiguousarray(solved.categories)
    alpha = float(np.nextafter(solved.alpha, 0.0))  # The program separates if p > alpha, our problem if p >= alpha.
    edges, sets, length = np.zeros((p, p), np.int32), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
    seconds = _search(os.environ[LIBRARY])(
        *(codes.ctypes.data, categories.ctypes.data, p, n, alpha, deepest, run.params["threads"]),
        *(edges.ctypes.data, ctypes.byref(sets), ctypes.byref(length)),
    )
    flat = np.array(sets[: length.value], np.int32)
    skeleton = to_skeleton(solved, run, edges | edges.T, padded(flat, p, first=0), deepest, [])
    facts = {**skeleton.facts, "translation_s": time.perf_counter() - start - seconds}
    return dataclasses.replace(skeleton, facts=facts)


@functools.cache
def _search(path: str):
    """Load the library at a path, and return its function ``fastpgm_skeleton`` (fastpgm.cpp)."""
    function = ctypes.CDLL(path).fastpgm_skeleton
    address, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [address, address, number, number, ctypes.c_double, number, number, address, address, address]
    function.restype = ctypes.c_double
    return function
