"""Fisher's z test for pairs and sets that a caller chooses, in NumPy, with the decisions of every search.

Nearly all tests are decided by float64 elimination, whose error `_error` bounds. The canonical evaluation
(canonical.py), which is a hundred times slower, decides those whose statistic, variance or pivot lies within that error
of its limit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
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
"""The upper bound on the entries of the residual covariances that are updated at once, so that they stay in a core's
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
TEST = Struct(
    "Test",
    C=Pointer(np.float64),
    p=np.int32,
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
)

KERNELS = LevelKernels(
    lambda size: KernelSource(
        "gaussian/kernels/subset_tests.cu",
        f"subset_tests<{size}>",
        (SUBSETS, TEST),
        {"MOST_SETS": graph.CONSTANTS["MOST_SETS"]},
    )
)


def open_gaussian_tests(problem: GaussianProblem, backend: str) -> IndependenceTests:
    return ArrayTests(problem) if isinstance(problem, ArrayProblem) else GaussianTests(problem, backend)


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


@dataclasses.dataclass
class _Subsets:
    """Subsets of the first candidates of some pairs, and the residual covariances given them; a place of the last axis
    is a subset of one pair."""

    covariances: np.ndarray  # (r, r, t) of the r - 2 candidates that are left, followed by the pair
    pairs: np.ndarray  # (t,) numbers of the pairs
    members: np.ndarray  # (n, t) bool
    sizes: np.ndarray  # (t,) the numbers of members
    pivots: np.ndarray  # (t,) the products of the pivots
    smallest: np.ndarray  # (t,) the smallest pivot but the first; infinite if there is none

    def part(self, some: slice | np.ndarray) -> _Subsets:
        return _Subsets(*(getattr(self, field.name)[..., some] for field in dataclasses.fields(self)))

    def halves(self) -> tuple[_Subsets, _Subsets]:
        middle = len(self.pairs) // 2
        return self.part(slice(middle, None)), self.part(slice(middle))

    def extended(self, position: int, allowed: np.ndarray, most: int) -> _Subsets:
        """Return these subsets, without and with the next candidate; (m, n) `allowed` and `most` limit the latter."""
        rest = self.covariances[1:, 1:]
        some = np.flatnonzero(allowed[self.pairs, position] & (self.sizes < most))
        whole = len(some) == len(self.pairs)
        pivot, column = self.covariances[0, 0, some], self.covariances[0, 1:, some].T
        covariances = np.empty((*rest.shape[:2], len(self.pairs) + len(some)))
        covariances[..., : len(self.pairs)] = rest
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            explained = column[:, None] * (column / pivot)[None]
            np.subtract(rest if whole else rest[..., some], explained, out=covariances[..., len(self.pairs) :])
            pivots = self.pivots[some] * pivot
        members = np.concatenate([self.members, self.members[:, some]], axis=1)
        members[position, len(self.pairs) :] = True
        smallest = np.where(self.sizes[some] > 0, np.fmin(self.smallest[some], pivot), self.smallest[some])
        return _Subsets(
            covariances,
            np.concatenate([self.pairs, self.pairs[some]]),
            members,
            np.concatenate([self.sizes, self.sizes[some] + 1]),
            np.concatenate([self.pivots, pivots]),
            np.concatenate([self.smallest, smallest]),
        )


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

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        size = subsets.size
        few = last - first < FEW_TESTS
        if size == 0 or few or self._problem.obstacle(size) is not None or self._device is None:
            return super().dependences(subsets, first, last)
        backend, correlation = self._device
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
        problem = self._problem
        test = TEST(
            C=correlation,
            p=problem.n_variables,
            critical_r_squared=problem.critical_r_squared(size),
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
        )
        kernel = backend.kernel(*KERNELS.choose(backend, size))
        result = np.empty(last - first)
        out = backend.empty(min(TESTS_OF_LAUNCH, last - first), np.float64)
        for start in range(first, last, TESTS_OF_LAUNCH):
            count = min(TESTS_OF_LAUNCH, last - start)
            kernel((ceil_div(count, THREADS),), (THREADS,), [argument, test, np.int64(start), np.int32(count), out])
            result[start - first : start - first + count] = backend.download(out)[:count]
        return result

    def dependence(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        problem, result = self._problem, np.empty(len(pairs))
        for start in range(0, len(pairs), CANONICAL_AT_ONCE):
            part = slice(start, start + CANONICAL_AT_ONCE)
            h = canonical.residuals(problem.correlation, pairs[part], sets[part], problem.pivot_tolerance)
            square = np.abs((h.ij * h.ij) / (h.ii * h.jj))
            if problem.residual_tolerance == 0:
                square = np.where(square > 1, 1 / square, square)
            result[part] = square
        return result

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        every = np.ones(sets.shape, bool)
        result = np.zeros(len(pairs), bool)
        if self._problem.obstacle(sets.shape[1]) is not None:
            return result
        at_once = max(1, ENTRIES_AT_ONCE // (sets.shape[1] + 2) ** 2)
        for first in range(0, len(pairs), at_once):
            part = slice(first, first + at_once)
            subsets = self._start(pairs[part], sets[part])
            for position in range(sets.shape[1]):
                subsets = subsets.extended(position, every[part], sets.shape[1])
                subsets = subsets.part(subsets.members[position])
            result[part] = self._decisions(subsets, pairs[part], sets[part])
        return result

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = sets.shape[1]
        correlations = partial_correlations(self._problem, pairs, sets)
        if self._problem.obstacle(level) is not None:
            return np.full(len(pairs), np.nan), correlations
        return np.asarray(self._problem.p_value(np.square(correlations), level)), correlations

    def separating_subsets(
        self, pairs: np.ndarray, candidates: np.ndarray, allowed: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `IndependenceTests.separating_subsets`.

        A step extends subsets by the next candidate, which doubles their number and removes a row of each matrix. A
        subset thus costs about as many operations as one of a single member.
        """
        n = candidates.shape[1]
        pending = [self._start(pairs, candidates)] if most >= 0 else []
        while pending:
            subsets = pending.pop()
            left = len(subsets.covariances) - 2
            if len(subsets.pairs) > 1 and 2 * subsets.covariances.size > ENTRIES_AT_ONCE:
                pending += subsets.halves()
            elif left:
                pending.append(subsets.extended(n - left, allowed, most))
            else:
                hits = np.flatnonzero(self._decisions(subsets, pairs, candidates))
                yield subsets.pairs[hits], subsets.members[:, hits].T

    def _start(self, pairs: np.ndarray, candidates: np.ndarray) -> _Subsets:
        """Return the empty subset of each pair."""
        variables = np.concatenate([candidates, pairs], axis=1).T
        covariances, k = self._problem.correlation[variables[:, None], variables[None]], len(pairs)
        none = np.zeros(candidates.shape[::-1], bool)
        return _Subsets(covariances, np.arange(k), none, np.zeros(k, np.int64), np.ones(k), np.full(k, np.inf))

    def _decisions(self, subsets: _Subsets, pairs: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return which subsets separate their pairs, (t,) bool."""
        problem, (first, second), sizes = self._problem, subsets.covariances, subsets.sizes
        every = range(int(sizes.max(initial=0)) + 1)
        critical = np.array([problem.critical_r_squared(level) for level in every])[sizes]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            error = _error(sizes, subsets.pivots)
            explained, possible = first[1] * first[1], first[0] * second[1]
            excess = explained - critical * possible
            variance = np.minimum(first[0], second[1])
            has_variance = variance > problem.residual_tolerance + error
            clear = has_variance & (np.abs(excess) > 8 * error)
            if problem.residual_tolerance > 0:
                clear |= variance < problem.residual_tolerance - error
            else:  # An |r| above one counts as its inverse.
                clear &= possible - critical * explained > 8 * error
            clear &= subsets.smallest > problem.pivot_tolerance + error
            clear |= sizes == 0
        result = (excess <= 0) & (has_variance | (sizes == 0))
        unclear = np.flatnonzero(~clear)
        for size in np.unique(sizes[unclear]).tolist():
            alike = unclear[sizes[unclear] == size]
            for start in range(0, len(alike), CANONICAL_AT_ONCE):
                some = alike[start : start + CANONICAL_AT_ONCE]
                numbers, positions = subsets.pairs[some], np.nonzero(subsets.members[:, some].T)[1].reshape(-1, size)
                sets = candidates[numbers[:, None], positions]
                result[some] = canonical.separates(problem, pairs[numbers], sets)
        return result


def _error(sizes: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """Bound the difference of a residual covariance from that of the canonical evaluation, for correlations and sets of
    (t,) sizes l with (t,) products P of pivots.

    Either evaluation has the exact result for correlations that differ by at most 4 (l + 3) u, u = 2^-53 (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, theorem 10.3). A change of all correlations by d changes a residual
    covariance by at most d (1 + |w|_1)^2 to first order, where w are the coefficients of the regression on the set.
    The smallest eigenvalue of M2 is at least P / e, since the others add up to at most l. Hence |w|_1^2 <= e l / P, and
    (1 + |w|_1)^2 <= 2 (1 + e l / P). The bound has a further factor of 2.
    """
    return 2.0**-48 * (sizes + 3) * (1 + 3 * sizes / pivots)
