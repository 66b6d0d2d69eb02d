"""The authors' program of GPU-CMIknn, a shared library that the user builds from their repository (docs/peers.md).
Their host functions and kernels make the tests; the two searches here follow ``gpu_row`` and ``gpu_single`` of their
Python program, which needs a different version of Python and different packages from ours."""

import ctypes
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from baselines.peers._answer import Found, Library, call_program, peer
from gpupc_impl.backends import DeviceMemoryError, KernelLaunchError
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import Skeleton, complete_graph
from gpupc_impl.nonlinear.problem import NonlinearProblem

_A, _N, _I, _F = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float

LIBRARY = Library(
    "GPUPC_GPUCMIKNN_LIBRARY",
    {
        "gpucmiknn_free_bytes": (_N, []),
        "gpucmiknn_error": (ctypes.c_char_p, [_I]),
        "gpucmiknn_row_level_0": (_I, [_A, _N, _N, _I, _N, _I, _A, _N, _A]),
        "gpucmiknn_row_permute": (_I, [_A, _N, _N, _N, _A, _N, _N, _I, _A]),
        "gpucmiknn_row_level": (
            _I,
            [_A, _A, _N, _N, _I, _I, _N, _I, _I, _A, _N, _F, _A, _A, _N, ctypes.c_bool, _A, _A],
        ),
        "gpucmiknn_single_level_0": (_I, [_A, _N, _I, _N, _A]),
        "gpucmiknn_single_permute": (_I, [_A, _N, _N, _N, _A]),
        "gpucmiknn_single_level": (_I, [_A, _A, _N, _N, _I, _I, _N, _A]),
    },
)
"""The functions of gpucmiknn_authors.cu, most of which return a CUDA error."""

MAX_LEVEL = 10  # the upper bound on the members of a set; with more members the program's kernel writes beyond an array
MAX_K = 200  # the length of the program's array of nearest distances, which includes the sample itself
NEIGHBOURS = 15  # number of neighbours among which a permutation draws, which is a constant of the program's kernels
RESERVED_BYTES = 5_000_000_000  # device memory that the program's search leaves free, which limits the sets of a call
HOST_BYTES = 8 << 30  # the most permuted samples of a call in host memory; the program's search has no such limit
OUT_OF_MEMORY = 2  # the value of cudaErrorMemoryAllocation


def open_test(problem: NonlinearProblem, backend: Any, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return a function (i, j, S) -> p-value for `measurement.single_tests`, by the functions of the paper's Single."""
    _check(problem)
    return _Program(problem).p_value


@peer(
    "gpucmiknn-authors",
    family="nonlinear",
    backends=("cuda",),
    source="GPU-CMIknn, section 4: the authors' program",
    summary="GPU-CMIknn as published by its authors",
    params={"search": Parameter("parallel", "the paper's Parallel or Single", choices=("parallel", "single"))},
    random=True,
    unavailable=LIBRARY.unavailable,
    open_test=open_test,
)
def gpucmiknn_authors(problem: NonlinearProblem, run: Run) -> Skeleton:
    """Run the authors' search on the problem's transformed samples, in float32. Its significance level lies between two
    multiples of 1 / permutations, so that its rule p > alpha separates exactly if the problem's rule p >= alpha does.
    It draws its own random numbers, and threads race, so runs are not reproducible. InvalidProblem is raised if the
    kernels cannot solve the problem (`_check`), DeviceMemoryError or KernelLaunchError for an error of CUDA."""
    _check(problem)

    def search(deepest: int) -> Found:
        program = _Program(problem)
        test_row = {"parallel": program.parallel_row, "single": program.single_row}[run.params["search"]]
        edges = complete_graph(problem.n_variables)
        sets = np.full((*edges.shape, deepest), -1, np.int32)
        seconds = []
        for level in range(deepest + 1):
            start = time.perf_counter()
            adjacent = edges.copy()
            rows = [x for x, row in enumerate(adjacent) if np.count_nonzero(row) > level]
            if not rows:
                break
            for x in rows:
                for y, members in test_row(level, x, np.flatnonzero(adjacent[x]), np.flatnonzero(edges[x])):
                    edges[x, y] = edges[y, x] = False
                    sets[x, y, :level] = members
            seconds.append(time.perf_counter() - start)
        return Found(edges, sets, seconds)

    return call_program(problem, run, MAX_LEVEL, search)


def _check(problem: NonlinearProblem) -> None:
    """Check the numbers of neighbours."""
    if problem.k_perm != NEIGHBOURS:
        raise InvalidProblem(
            f"k_perm is {problem.k_perm}; method 'gpucmiknn-authors' permutes among {NEIGHBOURS} neighbours, whatever "
            f"it is told: set k_perm to {NEIGHBOURS}"
        )
    if problem.k_cmi > MAX_K:
        raise InvalidProblem(
            f"k_cmi is {problem.k_cmi}; method 'gpucmiknn-authors' has room for {MAX_K} neighbours: set k_cmi to at "
            f"most {MAX_K}"
        )


class _Program:
    def __init__(self, problem: NonlinearProblem):
        self._library = LIBRARY.load()
        self._values = np.ascontiguousarray(problem.values, np.float32)
        self._permutations = problem.permutations
        self._k = problem.k_cmi + 1  # The program counts a sample as its own neighbour.
        self._alpha = (problem.critical_count - 0.5) / problem.permutations
        p, n = self._values.shape
        room = self._library.gpucmiknn_free_bytes() - RESERVED_BYTES - 4 * (n * p + p * (self._permutations + 5))
        # The permuted samples are on the device twice, since the program also notes which samples are taken.
        set_bytes = 4 * n * self._permutations
        self._sets_at_once = max(1, min(room // 2, HOST_BYTES) // set_bytes)

    def parallel_row(
        self, level: int, x: int, adjacent: np.ndarray, left: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the variables that a set separates from x, each with that set, as ``gpu_test_row`` does. Sets are drawn
        from `adjacent`, the neighbours of x at the start of the level; `left` are still neighbours."""
        (p, n), others = self._values.shape, left.astype(np.int32)
        if level == 0 and others.size:
            p_values = np.zeros(len(others), np.float32)
            self._call("row_level_0", self._values, n, p, self._k, self._permutations, x, others, len(others), p_values)
            yield from ((int(y), np.empty(0, np.int32)) for y in others[p_values > np.float32(self._alpha)])
        if level == 0:
            return
        every = np.array(list(itertools.combinations(adjacent, level)), np.int32).reshape(-1, level)
        calls = math.ceil(len(every) / self._sets_at_once)
        for sets in np.array_split(every, calls):
            if not others.size:
                return
            sets = np.ascontiguousarray(sets)
            permuted = np.empty((len(sets), self._permutations, n), np.float32)
            self._call("row_permute", self._values, n, p, self._permutations, sets, level, len(sets), x, permuted)
            separating, p_values = np.full((p, level), -1, np.int32), np.zeros(p, np.float32)
            remaining = ctypes.c_size_t(len(others))
            self._call(
                *("row_level", self._values, permuted, n, p, self._k, NEIGHBOURS + 1, self._permutations, x, level),
                *(sets, len(sets), self._alpha, others, ctypes.byref(remaining), len(adjacent), calls > 1),
                *(separating, p_values),
            )
            others = others[: remaining.value].copy()
            yield from ((int(y), separating[y]) for y in np.flatnonzero(p_values > np.float32(self._alpha)))

    def single_row(
        self, level: int, x: int, adjacent: np.ndarray, left: np.ndarray
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the same as `separated_by_rows`, one test at a time, as ``gpu_single`` does."""
        for y in map(int, left):
            for members in itertools.combinations([int(each) for each in adjacent if each != y], level):
                if np.float32(self.p_value(x, y, members)) > np.float32(self._alpha):
                    yield y, members
                    break

    def p_value(self, x: int, y: int, members: tuple[int, ...]) -> float:
        """Return the p-value of one test, which permutes x."""
        (_, n), p_value = self._values.shape, ctypes.c_float()
        data = self._values[[x, y, *members]]
        if not members:
            self._call("single_level_0", data, n, self._k, self._permutations, ctypes.byref(p_value))
            return p_value.value
        order = np.empty((self._permutations, n), np.int32)
        self._call("single_permute", data[2:], n, len(members), self._permutations, order)
        self._call(
            *("single_level", data, data[0][order], n, len(data), self._k, NEIGHBOURS + 1, self._permutations),
            ctypes.byref(p_value),
        )
        return p_value.value

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; arrays, which must be contiguous, are passed by address."""
        passed = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments]
        if code := getattr(self._library, f"gpucmiknn_{name}")(*passed):
            reason = self._library.gpucmiknn_error(code).decode()
            if code == OUT_OF_MEMORY:
                needed = sum(each.nbytes for each in arguments if isinstance(each, np.ndarray))
                raise DeviceMemoryError(
                    needed, 0, 0, f"method 'gpucmiknn-authors': {name}: {reason}; give it a smaller problem"
                )
            raise KernelLaunchError(f"method 'gpucmiknn-authors': {name}: {reason}")
