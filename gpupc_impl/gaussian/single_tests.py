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
from gpupc_impl.gaussian.partial_correlation import partial_correlations
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

ENTRIES_AT_ONCE = 1 << 17
"""The upper bound on the entries of the residual covariances that are computed at once, so that they stay in a core's
cache."""

CANONICAL_AT_ONCE = 1 << 12
"""The upper bound on the canonical evaluations at once, for the same reason."""


FEW_TESTS = 1 << 11
"""With fewer tests than this, all tests of subsets are made in NumPy instead of waiting for kernels."""

TESTS_OF_LAUNCH = 1 << 22
"""The upper bound on the tests of a launch."""

THREADS = 128
"""The number of threads in a block."""

SUBSETS = Struct(  # kernels/subset_tests.cu declares this struct.
    "Subsets",
    pairs=Pointer(np.int32),
    starts=Pointer(np.int64),
    ends=Pointer(np.int64),
    candidates=Pointer(np.int32),
    binomial=graph.BINOMIALS,
    n_pairs=np.int64,
    size=np.int32,
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
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
)

KERNELS = LevelKernels(
    lambda size: KernelSource(
        "gaussian/kernels/subset_tests.cu",
        f"subset_tests<{size}>",
        (SUBSETS, MATRICES, TEST),
        {"MOST_SETS": graph.CONSTANTS["MOST_SETS"]},
    )
)


MOST_MEMBERS = 24
"""The upper bound on the subsets whose votes are counted by a kernel; that many candidates have `colliders.MAX_TESTS`
subsets."""

VOTES_ARGUMENT = Struct(  # kernels/votes.cu declares this struct and the next one.
    "Votes",
    pairs=Pointer(np.int32),
    starts=Pointer(np.int64),
    candidates=Pointer(np.int32),
    separating=Pointer(np.int64),
    containing=Pointer(np.int64),
    n_pairs=np.int64,
    most=np.int32,
)
TEST_OF_LEVELS = Struct(
    "Test",
    C=Pointer(np.float64),
    p=np.int32,
    critical_r_squared=Pointer(np.float64),
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
)
VOTES = (
    KernelSource(
        "gaussian/kernels/votes.cu", "votes", (VOTES_ARGUMENT, TEST_OF_LEVELS), {"MOST_MEMBERS": MOST_MEMBERS}
    ),
)


def run_subset_tests(
    backend: Backend, problem: GaussianProblem, subsets: Subsets, matrices: Any, first: int, last: int
) -> np.ndarray:
    """Return `IndependenceTests.dependences`, by kernels.

    Args:
        matrices: the correlations on the device, as `MATRICES`; either one matrix, or one for each pair, in which the
            numbers of variables are places in that matrix, in the order of the variables.
    """
    size = subsets.size
    argument = SUBSETS(
        pairs=backend.upload(subsets.pairs),
        starts=backend.upload(subsets.starts),
        ends=backend.upload(subsets.ends),
        candidates=backend.upload(subsets.candidates),
        binomial=graph.BINOMIALS(
            table=backend.upload(subsets.binomials.astype(np.uint64)), max_n=subsets.binomials.shape[1] - 1
        ),
        n_pairs=len(subsets.pairs),
        size=size,
    )
    test = TEST(
        critical_r_squared=problem.critical_r_squared(size),
        residual_tolerance=problem.residual_tolerance,
        pivot_tolerance=problem.pivot_tolerance,
    )
    kernel = backend.kernel(*KERNELS.choose(backend, size))
    result = np.empty(last - first)
    out = backend.empty(min(TESTS_OF_LAUNCH, last - first), np.float64)
    for start in range(first, last, TESTS_OF_LAUNCH):
        count = min(TESTS_OF_LAUNCH, last - start)
        numbers = [np.int64(start), np.int32(count), out]
        kernel((ceil_div(count, THREADS),), (THREADS,), [argument, matrices, test, *numbers])
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
            return np.full(len(pairs), np.nan), partial_correlations(self._problem, pairs, sets)
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
        """Return the (v, v, k) correlations among the (v, k) variables of each column."""
        return self._problem.correlation[variables[:, None], variables[None]]

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        size = subsets.size
        few = last - first < FEW_TESTS
        if size == 0 or few or self._problem.obstacle(size) is not None or self._device is None:
            return super().dependences(subsets, first, last)
        backend, correlation = self._device
        matrices = MATRICES(C=correlation, places=None, widths=None, p=self._problem.n_variables)
        return run_subset_tests(backend, self._problem, subsets, matrices, first, last)

    def dependence(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        problem, result = self._problem, np.empty(len(pairs))
        for start in range(0, len(pairs), CANONICAL_AT_ONCE):
            part = slice(start, start + CANONICAL_AT_ONCE)
            h = self._residuals(pairs[part], sets[part])
            square = np.abs((h.ij * h.ij) / (h.ii * h.jj))
            if problem.residual_tolerance == 0:
                square = np.where(square > 1, 1 / square, square)
            result[part] = square
        return result

    def _residuals(self, pairs: np.ndarray, sets: np.ndarray) -> canonical.Residuals:
        return canonical.residuals_of(self._among(canonical.in_order(pairs, sets)), self._problem.pivot_tolerance)

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        result = np.zeros(len(pairs), bool)
        if self._problem.obstacle(sets.shape[1]) is None:
            at_once = max(1, ENTRIES_AT_ONCE // (sets.shape[1] + 2) ** 2)
            for first in range(0, len(pairs), at_once):
                part = slice(first, first + at_once)
                result[part] = self._decisions(pairs[part], sets[part])
        return result

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = sets.shape[1]
        correlations = partial_correlations(self._problem, pairs, sets)
        if self._problem.obstacle(level) is not None:
            return np.full(len(pairs), np.nan), correlations
        return np.asarray(self._problem.p_value(np.square(correlations), level)), correlations

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
        counts = {
            "separating": backend.full(len(pairs), 0, np.int64),
            "containing": backend.full(len(candidates), 0, np.int64),
        }
        argument = VOTES_ARGUMENT(
            pairs=backend.upload(pairs.astype(np.int32)),
            starts=backend.upload(starts),
            candidates=backend.upload(candidates),
            **counts,
            n_pairs=len(pairs),
            most=most,
        )
        test = TEST_OF_LEVELS(
            C=backend.upload_symmetric(problem.correlation),
            p=problem.n_variables,
            critical_r_squared=backend.upload([problem.critical_r_squared(level) for level in range(most + 1)]),
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
        )
        threads = 1 if backend.warp_threads == 1 else THREADS
        backend.kernel(*VOTES[0])((ceil_div(len(pairs), threads),), (threads,), [argument, test])
        return backend.download(counts["separating"]), backend.download(counts["containing"])

    @functools.cached_property
    def _cores(self) -> Backend | None:
        with contextlib.suppress(BackendUnavailable):
            return open_backend("host")
        return None

    def _decisions(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return which sets separate their pairs, (t,) bool."""
        problem, size = self._problem, sets.shape[1]
        critical, variables = problem.critical_r_squared(size), np.concatenate([sets, pairs], axis=1).T
        left = self._among(variables)  # (l + 2, l + 2, t), then without eliminated ones
        pivots, smallest = np.ones(len(pairs)), np.full(len(pairs), np.inf)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for eliminated in range(size):
                pivot, column = left[0, 0], left[0, 1:]
                left = left[1:, 1:] - column[:, None] * (column / pivot)[None]
                pivots *= pivot
                if eliminated:
                    smallest = np.fmin(smallest, pivot)
            error = _error(size, pivots)
            explained, possible = left[0, 1] * left[0, 1], left[0, 0] * left[1, 1]
            excess, variance = explained - critical * possible, np.minimum(left[0, 0], left[1, 1])
            if size == 0:
                return np.asarray(excess <= 0)
            has_variance = variance > problem.residual_tolerance + error
            clear = has_variance & (np.abs(excess) > 8 * error)
            if problem.residual_tolerance > 0:
                clear |= variance < problem.residual_tolerance - error
            else:  # An |r| above one counts as its inverse.
                clear &= possible - critical * explained > 8 * error
            clear &= smallest > problem.pivot_tolerance + error
        result = (excess <= 0) & has_variance
        unclear = np.flatnonzero(~clear)
        for start in range(0, len(unclear), CANONICAL_AT_ONCE):
            some = unclear[start : start + CANONICAL_AT_ONCE]
            result[some] = canonical.decided(problem, self._residuals(pairs[some], sets[some]), size)
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
