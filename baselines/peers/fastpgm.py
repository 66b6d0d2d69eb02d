"""FastPGM's PC-stable (Fast-BNS), a shared library that the user builds from its repository (docs/peers.md)."""

import dataclasses
import math
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_size_t, c_void_p

import numpy as np

from baselines.peers._answer import Found, Library, call_program, padded, peer
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem

ARGUMENTS = [c_void_p, c_void_p, c_int, c_int, c_double, c_int, c_int, c_void_p, c_void_p, c_void_p]  # see fastpgm.cpp
LIBRARY = Library("GPUPC_FASTPGM_LIBRARY", {"fastpgm_skeleton": (c_double, ARGUMENTS)})
MAX_CELLS = 2**31 - 1  # the upper bound on the cells of a table, which the program numbers with 32 bits


@peer(
    "fastpgm",
    family="discrete",
    source="FastPGM, PCStable; Jiang, Wen and Mian, Fast Parallel Bayesian Network Structure Learning, IPDPS 2022",
    summary="PC-stable of the C++ library FastPGM",
    params={"threads": Parameter(1, "number of threads, which share the edges of a level", minimum=1, maximum=1024)},
    unavailable=LIBRARY.unavailable,
)
def fastpgm(problem: DiscreteProblem, run: Run) -> Skeleton:
    """Run FastPGM's PC-stable with its own test, G-square with adjusted degrees of freedom, which the result's facts
    name. The search ends before a level at which a table may have more than `MAX_CELLS` cells. The program's own clock
    times the search alone; all other time, including the orientation of edges, is ``facts["translation_s"]``."""
    solved = dataclasses.replace(problem, test="g-square", df_rule="adjusted")
    p, n = solved.codes.shape

    def search(deepest: int) -> Found:
        codes, categories = solved.codes.astype(np.int32), np.ascontiguousarray(solved.categories)
        alpha = float(np.nextafter(solved.alpha, 0.0))  # The program separates if p > alpha, our problem if p >= alpha.
        edges, sets, length = np.zeros((p, p), np.int32), POINTER(c_int32)(), c_size_t()
        seconds = LIBRARY.load().fastpgm_skeleton(
            *(codes.ctypes.data, categories.ctypes.data, p, n, alpha, deepest, run.params["threads"]),
            *(edges.ctypes.data, byref(sets), byref(length)),
        )
        found = padded(np.array(sets[: length.value], np.int32), p, first=0)
        return Found(edges | edges.T, found, seconds=seconds)

    fits = (level for level in range(-1, p) if math.prod(solved.descending[: level + 3]) > MAX_CELLS)
    return call_program(solved, run, next(fits, p), search)
