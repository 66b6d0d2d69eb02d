"""The authors' program of cuPC-S, a shared library that the user builds from their repository (docs/peers.md)."""

import ctypes
import functools

import numpy as np

from baselines.peers._answer import Found, Library, call_program, peer
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem

# void Skeleton(double *C, int *P, int *G, double *Th, int *l, int *maxlevel, double *pMax, int *SepSet)
LIBRARY = Library("GPUPC_CUPC_LIBRARY", {"Skeleton": (None, [ctypes.c_void_p] * 8)})
MAX_LEVEL = 14  # the deepest level for which the program has a kernel, and the length of a separating set
MAX_VARIABLES = 12_288  # a row of the graph, 4 bytes per variable, lies in the default 48 KB of a block's shared memory
THRESHOLDS = 50


@peer(
    "cupc-authors",
    family="gaussian",
    backends=("cuda",),
    source="cuPC, sections 3.4 and 5.1: the authors' program cuPC-S",
    summary="cuPC-S as published by its authors",
    unavailable=LIBRARY.unavailable,
)
def cupc_authors(problem: GaussianProblem, run: Run) -> Skeleton:
    """Call the authors' ``Skeleton`` with the thresholds of the problem's own test. The authors' R wrapper passes the
    thresholds shifted by one level (docs/errata.md); here level l has `GaussianProblem.threshold` of l under either
    `df_convention`. A separating set is the first one that any thread found. If CUDA reports an error, the program ends
    the process. InvalidProblem is raised if there are more than `MAX_VARIABLES` variables."""
    p = problem.n_variables

    def search(deepest: int) -> Found:
        if p > MAX_VARIABLES:
            raise InvalidProblem(
                f"method 'cupc-authors' holds a row of the graph in shared memory, so that it takes up to "
                f"{MAX_VARIABLES:,} variables; the problem has {p:,}"
            )
        thresholds = np.zeros(THRESHOLDS)
        thresholds[: deepest + 1] = [problem.threshold(level) for level in range(deepest + 1)]
        graph, largest, sets = _outputs(p)
        LIBRARY.load().Skeleton(
            problem.correlation.ctypes.data,
            ctypes.byref(ctypes.c_int(p)),
            graph.ctypes.data,
            thresholds.ctypes.data,
            ctypes.byref(ctypes.c_int()),
            ctypes.byref(ctypes.c_int(deepest)),
            largest.ctypes.data,
            sets.ctypes.data,
        )
        return Found(graph, sets)

    return call_program(problem, run, MAX_LEVEL, search)


@functools.lru_cache(maxsize=1)
def _outputs(p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays that the program writes (graph, |z|, sets), kept so that later calls cause no page faults."""
    return np.zeros((p, p), np.int32), np.zeros((p, p)), np.zeros((p, p, MAX_LEVEL), np.int32)
