"""Fisher's z test for pairs and sets that a caller chooses, with the decisions of every search.

Kernels test numbered subsets, and count those that separate pairs. NumPy makes all other tests. Nearly all of these are
decided by float64 elimination, whose error `_error` bounds. The canonical evaluation
(canonical.py), which is a hundred times slower, decides those whose statistic, variance or pivot lies within that error
of its limit.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import (
    Backend,
    BackendUnavailable,
    DeviceMemoryError,
    Filled,
    KernelSource,
    Pointer,
    Struct,
    open_backend,
)
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.subsets import Subsets
from gpupc_impl.engine import graph
from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.gaussian.level_kernels import LevelKernels
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

FEW_TESTS = 1 << 11
"""With fewer tests than this, all tests of subsets are made in NumPy instead of waiting for kernels."""

TESTS_OF_LAUNCH = 1 << 22
"""The upper bound on the tests of a launch."""

THREADS = 128
"""The number of threads in a block."""

MOST_MEMBERS = 24
"""The upper bound on the subsets whose votes are counted by a kernel; that many candidates have `colliders.MAX_TESTS`
subsets."""

# kernels/subset_tests.cu declares these structs.
CANDIDATES = Struct(
    "Candidates",
    pairs=Pointer(np.int32),
    starts=Pointer(np.int64),
    candidates=Pointer(np.int32),
    n_pairs=np.int64,
)
MATRICES = Struct(
    "Matrices",
    C=Pointer(np.float64),
    places=Pointer(np.int64),
    widths=Pointer(np.int32),
    p=np.int32,
)
TEST = Struct(
    "Test",
    critical_r_squared=Pointer(np.float64),
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
)


def _kernel(expression: str, *more: Struct) -> KernelSource:
    constants = {"MOST_SETS": graph.CONSTANTS["MOST_SETS"]}
    return KernelSource("gaussian/kernels/subset_tests.cu", expression, (CANDIDATES, MATRICES, TEST, *more), constants)


KERNELS = LevelKernels(lambda size: _kernel(f"subset_tests<{size}>", graph.BINOMIALS))
VOTES = (_kernel(f"votes<{MOST_MEMBERS}>"),)


def _arguments(
    backend: Backend, problem: GaussianProblem, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, last: int
) -> tuple[Filled, Filled]:
    """Return the candidates of pairs, and the tests of the levels to `last`, as kernels take them."""
    lists = {"pairs": pairs.astype(np.int32), "starts": starts, "candidates": candidates}
    test = TEST(
        critical_r_squared=backend.upload([problem.critical_r_squared(level) for level in range(last + 1)]),
        residual_tolerance=problem.residual_tolerance,
        pivot_tolerance=problem.pivot_tolerance,
    )
    return CANDIDATES(**{name: backend.upload(each) for name, each in lists.items()}, n_pairs=len(pairs)), test


def whole_matrix(correlation: Any) -> Filled:
    """Return the `MATRICES` of (p, p) correlations on a device."""
    return MATRICES(C=correlation, places=None, widths=None, p=len(correlation))


def run_subset_tests(
    backend: Backend, problem: GaussianProblem, subsets: Subsets, matrices: Filled, first: int, last: int
) -> np.ndarray:
    """Return `IndependenceTests.dependences`, by kernels.

    Args:
        matrices: the correlations on the device, as `MATRICES`; either one matrix, or one for each pair, in which the
            numbers of variables are places in that matrix, in the order of the variables.
    """
    size, table = subsets.size, backend.upload(subsets.binomials.astype(np.uint64))
    candidates, test = _arguments(backend, problem, subsets.pairs, subsets.starts, subsets.candidates, size)
    binomial = graph.BINOMIALS(table=table, max_n=subsets.binomials.shape[1] - 1)
    arguments = [candidates, matrices, test, backend.upload(subsets.ends), binomial, np.int32(size)]
    kernel = backend.kernel(*KERNELS.choose(backend, size))
    result = np.empty(last - first)
    out = backend.empty(min(TESTS_OF_LAUNCH, last - first), np.float64)
    for start in range(first, last, TESTS_OF_LAUNCH):
        count = min(TESTS_OF_LAUNCH, last - start)
        kernel((ceil_div(count, THREADS),), (THREADS,), [*arguments, np.int64(start), np.int32(count), out])
        result[start - first : start - first + count] = backend.download(out)[:count]
    return result


class ArrayTests(IndependenceTests):
    """The tests of missing values, which the problem itself makes."""

    effect = "partial_correlation"

    def __init__(self, problem: ArrayProblem):
        self._problem, self._tests = problem, problem.tests()

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        if self._problem.obstacle(sets.shape[1]) is not None:
            return np.zeros(len(pairs), bool)
        return np.asarray(self._tests(pairs, sets, False).separates)

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._problem.obstacle(sets.shape[1]) is not None:
            return quick_strengths(self._problem, pairs, sets)
        outcome = self._tests(pairs, sets, True)
        return outcome.p_values, outcome.effects


class GaussianTests(IndependenceTests):
    """The tests of a `GaussianProblem`: those of numbered subsets by kernels on a backend, all others on CPU cores.

    The dependence is r^2 in the canonical evaluation.
    """

    effect = "partial_correlation"

    def __init__(self, problem: GaussianProblem, backend: str = "auto"):
        self._problem, self._named = problem, backend
        if backend != "auto":
            open_backend(backend)  # An unavailable backend that was named is an error at once.

    @functools.cached_property
    def _device(self) -> tuple[Backend, Any] | None:
        """The backend and the correlations on it; None if there is none or its memory does not suffice."""
        try:
            backend = open_backend(self._named)
            return backend, backend.upload_symmetric(self._problem.correlation)
        except (BackendUnavailable, DeviceMemoryError):
            if self._named != "auto":
                raise
            return None

    def _among(self, variables: np.ndarray) -> np.ndarray:
        """See `canonical.among`."""
        return canonical.among(self._problem.correlation, variables)

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        size = subsets.size
        few = last - first < FEW_TESTS
        if size == 0 or few or self._problem.obstacle(size) is not None or self._device is None:
            return super().dependences(subsets, first, last)
        backend, correlation = self._device
        return run_subset_tests(backend, self._problem, subsets, whole_matrix(correlation), first, last)

    def dependence(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        h = self._residuals(pairs, sets)
        square = np.abs((h.ij * h.ij) / (h.ii * h.jj))
        return (
            np.where(square > 1, 1 / np.maximum(square, 1.0), square)
            if self._problem.residual_tolerance == 0
            else square
        )

    def _residuals(self, pairs: np.ndarray, sets: np.ndarray) -> canonical.Residuals:
        """Return H of the tests in the canonical evaluation."""
        variables = canonical.in_order(pairs, sets)
        return canonical.evaluate(variables, self._among, self._problem.pivot_tolerance)

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return quick_strengths(self._problem, pairs, sets)

    def count_separating(
        self, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `IndependenceTests.count_separating`; by a kernel on CPU cores, since few pairs have most of the sets."""
        backend, problem = self._cores, self._problem
        most = min(most, int(np.diff(starts).max(initial=0)))
        while problem.obstacle(most) is not None:
            most -= 1
        if backend is None or not 0 <= most <= MOST_MEMBERS:
            return super().count_separating(pairs, starts, candidates, most)
        backend.prefetch(VOTES)
        if np.exp2(np.diff(starts)).sum() <= FEW_TESTS and not backend.is_ready(*VOTES):
            return super().count_separating(pairs, starts, candidates, most)
        lists, test = _arguments(backend, problem, pairs, starts, candidates, most)
        matrices = whole_matrix(backend.upload_symmetric(problem.correlation))
        counts = [backend.full(len(each), 0, np.int64) for each in (pairs, candidates)]
        backend.kernel(*VOTES[0])((len(pairs),), (1,), [lists, matrices, test, np.int32(most), *counts])
        return backend.download(counts[0]), backend.download(counts[1])

    @functools.cached_property
    def _cores(self) -> Backend | None:
        with contextlib.suppress(BackendUnavailable):
            return open_backend("host")
        return None

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        problem, size = self._problem, sets.shape[1]
        if problem.obstacle(size) is not None:
            return np.zeros(len(pairs), bool)
        critical, variables = problem.critical_r_squared(size), np.concatenate([sets, pairs], axis=1).T
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # With this tolerance no pseudo-inverse is computed.
            h = canonical.evaluate(variables, self._among, pivot_tolerance=-np.inf, fused=False)
            error = _error(size, h.pivots.prod(axis=0))
            explained, possible = h.ij * h.ij, h.ii * h.jj
            excess, variance = explained - critical * possible, np.minimum(h.ii, h.jj)
            if size == 0:
                return np.asarray(excess <= 0)
            has_variance = variance > problem.residual_tolerance + error
            clear = has_variance & (np.abs(excess) > 8 * error)
            if problem.residual_tolerance > 0:
                clear |= variance < problem.residual_tolerance - error
            else:  # An |r| above one counts as its inverse.
                clear &= possible - critical * explained > 8 * error
            clear &= h.pivots[1:].min(axis=0, initial=np.inf) > problem.pivot_tolerance + error
        result = (excess <= 0) & has_variance
        unclear = np.flatnonzero(~clear)
        if len(unclear):
            result[unclear] = canonical.decided(problem, self._residuals(pairs[unclear], sets[unclear]), size)
        return np.asarray(result)


def _error(size: int, pivots: np.ndarray) -> np.ndarray:
    """Bound the difference of a residual covariance from that of the canonical evaluation, for correlations and sets of
    size l with (t,) products P of pivots.

    Either evaluation has the exact result for correlations that differ by at most 4 (l + 3) u, u = 2^-53 (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, theorem 10.3). A change of all correlations by d changes a residual
    covariance by at most d (1 + |w|_1)^2 to first order, where w are the coefficients of the regression on the set.
    The smallest eigenvalue of M2 is at least P / e, since the others add up to at most l. Hence |w|_1^2 <= e l / P, and
    (1 + |w|_1)^2 <= 2 (1 + e l / P). The bound has a further factor of 2. There is none if rounding makes P negative.
    """
    return np.where(pivots > 0, 2.0**-48 * (size + 3) * (1 + 3 * size / pivots), np.inf)


def quick_strengths(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `IndependenceTests.strengths`, up to rounding errors."""
    h = canonical.quick_residuals(problem, problem.correlation, np.sort(pairs, axis=1), sets)
    return strengths_of(problem, h, sets.shape[1])


def strengths_of(problem: GaussianProblem, h: canonical.Residuals, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values and partial correlations (cuPC, Equation 5), NaN if an endpoint has no variance left."""
    possible = np.where(h.defined(problem.residual_tolerance), h.ii * h.jj, np.nan)
    correlations = np.clip(h.ij / np.sqrt(possible), -1.0, 1.0)
    if problem.obstacle(level) is not None:
        return np.full(len(correlations), np.nan), correlations
    return np.asarray(problem.p_value(np.square(correlations), level)), correlations
