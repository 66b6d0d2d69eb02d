"""Fisher's z test for pairs and sets that a caller chooses, with the decisions of every search. Kernels test numbered
subsets, and count those that separate pairs. NumPy makes all other tests. Nearly all of these are decided by float64
elimination, whose error `_error` bounds; the canonical evaluation (canonical.py), which is a hundred times slower,
decides those whose statistic, variance or pivot lies within that error of its limit. From samples no p x p matrix is
ever made: `SampleTests` compute correlations when they are needed, in the fixed order of method `distributed`
(fixed_order.py), so that tests decide as that method does."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.pairs import row_groups
from gpupc_impl.core.subsets import Subsets
from gpupc_impl.engine import graph
from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.gaussian.fixed_order import correlate_squares, product_bound, standardised_on_device
from gpupc_impl.gaussian.level_kernels import LevelKernels
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

FEW_TESTS = 1 << 11  # with fewer tests than this, all tests of subsets are made in NumPy instead of waiting for kernels
TESTS_OF_LAUNCH = 1 << 22  # the upper bound on the tests of a launch
THREADS = 128  # the number of threads in a block
MOST_MEMBERS = 24  # candidates, with `colliders.MAX_TESTS` subsets, for which a kernel counts the votes

# kernels/subset_tests.cu declares these structs.
CANDIDATES = Struct(
    "Candidates", pairs=Pointer(np.int32), starts=Pointer(np.int64), candidates=Pointer(np.int32), n_pairs=np.int64
)
MATRICES = Struct("Matrices", C=Pointer(np.float64), places=Pointer(np.int64), widths=Pointer(np.int32), p=np.int32)
TEST = Struct("Test", critical_r_squared=Pointer(np.float64), residual_tolerance=np.float64, pivot_tolerance=np.float64)


def _kernel(expression: str, *more: Struct) -> KernelSource:
    constants = {"MOST_SETS": graph.CONSTANTS["MOST_SETS"]}
    return KernelSource("gaussian/kernels/subset_tests.cu", expression, (CANDIDATES, MATRICES, TEST, *more), constants)


KERNELS = LevelKernels(lambda size: _kernel(f"subset_tests<{size}>", graph.BINOMIALS))
VOTES = (_kernel(f"votes<{MOST_MEMBERS}>"),)

SEARCH = Struct(
    "Search",
    samples=Pointer(np.float64),
    products=Pointer(np.float64),
    m=np.int32,
    p=np.int32,
    **dict.fromkeys(("error", "critical_zero", "critical_one", "residual_tolerance"), np.float64),
)
BEST_MEMBERS = KernelSource("gaussian/kernels/best_members.cu", "best_members", (SEARCH,))
WARPS = 4  # the number of warps in a block of `BEST_MEMBERS`
PANEL_BYTES = {"cuda": 1 << 32, "host": 1 << 28}  # of correlations on a device at once, if its memory allows


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
    """Return `IndependenceTests.dependences`, by kernels. The correlations on the device, as `MATRICES`, are one
    matrix, or one for each pair, in which variables are places in that matrix, in the order of the variables."""
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
    """Tests of a `GaussianProblem`: numbered subsets by kernels, others on cores. The dependence is canonical r^2."""

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
    size l with (t,) products P of pivots. Either evaluation has the exact result for correlations that differ by at
    most 4 (l + 3) u, u = 2^-53 (Higham 2002, Accuracy and Stability of Numerical Algorithms, theorem 10.3). A change of
    all correlations by d changes a residual covariance by at most d (1 + |w|_1)^2 to first order, where w are the
    coefficients of the regression on the set. The smallest eigenvalue of M2 is at least P / e, since the others add up
    to at most l. Hence |w|_1^2 <= e l / P, and (1 + |w|_1)^2 <= 2 (1 + e l / P). The bound has a further factor of 2.
    There is none if rounding makes P negative."""
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


class SampleTests(GaussianTests):
    def __init__(self, problem: GaussianProblem, backend: Backend):
        super().__init__(problem)
        self._backend = backend

    @functools.cached_property
    def _samples(self) -> Any:
        """(m, p) float64 on the device, standardised."""
        return standardised_on_device(self._backend, self._problem.samples)

    @property
    def _correlations_at_once(self) -> int:
        left = self._backend.memory_limit - 8 * self._samples.size
        return max(1, min(PANEL_BYTES[self._backend.name], left // 2) // 8)

    def _among(self, variables: np.ndarray) -> np.ndarray:
        v, k = variables.shape
        of_test = np.ascontiguousarray(variables.T, np.int32).reshape(-1)
        squares = correlate_squares(self._backend, self._samples, of_test, np.full(k, v))
        return self._backend.download(squares).reshape(k, v, v).transpose(1, 2, 0)

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        if subsets.size == 0 or self._problem.obstacle(subsets.size) is not None:
            return super().dependences(subsets, first, last)
        result = np.empty(last - first)
        ends = np.concatenate([[0], subsets.ends])
        begin, end = np.searchsorted(ends, [first, last], side="right") - 1
        areas = np.concatenate([[0], np.cumsum(np.square(subsets.lengths[begin : end + 1] + 2))])
        for rows in row_groups(areas, self._correlations_at_once):
            part = slice(begin + rows.start, begin + rows.stop)
            low, high = max(first, int(ends[part.start])), min(last, int(ends[part.stop]))
            local, matrices = self._matrices(subsets, part)
            numbers = low - int(ends[part.start]), high - int(ends[part.start])
            result[low - first : high - first] = run_subset_tests(
                self._backend, self._problem, local, matrices, *numbers
            )
        return result

    def _matrices(self, subsets: Subsets, part: slice) -> tuple[Subsets, Any]:
        """Return some pairs' subsets, as places in each pair's own matrix, and these matrices on the device."""
        p, pairs = self._problem.n_variables, subsets.pairs[part].astype(np.int64)
        starts = subsets.starts[part.start : part.stop + 1] - subsets.starts[part.start]
        lists = subsets.candidates[subsets.starts[part.start] : subsets.starts[part.stop]]
        sizes, numbers = np.diff(starts) + 2, np.arange(len(pairs)) * p
        keys = np.concatenate([np.repeat(numbers, np.diff(starts)) + lists, (numbers[:, None] + pairs).reshape(-1)])
        ascending = np.sort(keys)
        first = np.cumsum(sizes) - sizes
        places = (np.searchsorted(ascending, keys) - first[keys // p]).astype(np.int32)
        local = Subsets(places[len(lists) :].reshape(-1, 2), starts, places[: len(lists)], subsets.size)
        backend, areas = self._backend, np.square(sizes)
        matrices = MATRICES(
            C=correlate_squares(backend, self._samples, (ascending % p).astype(np.int32), sizes),
            places=backend.upload(np.cumsum(areas) - areas),
            widths=backend.upload(sizes.astype(np.int32)),
            p=p,
        )
        return local, matrices

    def best_members(self, pairs: np.ndarray) -> np.ndarray | None:
        """See `IndependenceTests.best_members`. Matrix products with all variables screen candidates."""
        problem, p = self._problem, self._problem.n_variables
        if problem.fixed is not None or problem.tiers is not None or problem.obstacle(1) is not None:
            return None
        found = np.empty(len(pairs), np.int64)
        for some in with_few_ends(pairs, max(2, self._correlations_at_once // p)):
            found[some] = self._best_members(pairs[some])
        self._backend.release_memory()
        return np.where(found < p, found, -1)

    def _best_members(self, pairs: np.ndarray) -> np.ndarray:
        """Return the best members of pairs whose products fit in memory, p where there is none."""
        problem, backend = self._problem, self._backend
        rows, ends = np.unique(pairs, return_inverse=True)
        search = SEARCH(
            samples=self._samples,
            products=self._products(rows),
            m=len(self._samples),
            p=problem.n_variables,
            error=product_bound(len(self._samples)),
            critical_zero=problem.critical_r_squared(0),
            critical_one=problem.critical_r_squared(1),
            residual_tolerance=problem.residual_tolerance,
        )
        numbers = [backend.upload(each.astype(np.int32).reshape(-1)) for each in (ends, pairs)]
        members = backend.empty(len(pairs), np.int32)
        grid, threads = (ceil_div(len(pairs), WARPS),), (WARPS * backend.warp_threads,)
        backend.kernel(*BEST_MEMBERS)(grid, threads, [search, *numbers, np.int32(len(pairs)), members])
        return backend.download(members)

    def _products(self, rows: np.ndarray) -> Any:
        """Return the products of the samples of some variables with those of all, (rows, p) on the device."""
        out = self._backend.empty((len(rows), self._problem.n_variables), np.float64)
        with self._backend.array_library() as library:
            own = library.ascontiguousarray(self._samples[:, library.asarray(rows)].T)
            parts = list(pieces(len(rows), ceil_div(len(rows), self._backend.array_threads)))
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda part: library.matmul(own[part], self._samples, out=out[part]), parts))
        return out

    def count_separating(
        self, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `IndependenceTests.count_separating`; from the matrix of the variables that occur, unless it is large."""
        variables, places = np.unique(np.concatenate([pairs.reshape(-1), candidates]), return_inverse=True)
        if len(variables) ** 2 > self._correlations_at_once:
            return IndependenceTests.count_separating(self, pairs, starts, candidates, most)
        problem = dataclasses.replace(
            self._problem,
            names=tuple(self._problem.names[k] for k in variables.tolist()),
            correlation=np.ascontiguousarray(self._among(variables[:, None])[..., 0]),
            correlations="host",
            samples=None,
            **dict.fromkeys(("fixed", "tiers")),
            constant=(),
        )
        ends, near = np.split(places, [pairs.size])
        own = GaussianTests(problem, self._backend.name)
        return own.count_separating(ends.reshape(-1, 2), starts, near.astype(np.int32), most)

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return strengths_of(self._problem, self._residuals(pairs, sets), sets.shape[1])


def with_few_ends(pairs: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Yield indexes of (k, 2) pairs, of which those together have at most `most` variables. Variables are taken in the
    order of Cuthill and McKee, which keeps pairs that share variables together."""
    from scipy import sparse

    variables, ends = np.unique(pairs, return_inverse=True)
    order = np.arange(len(pairs))
    if len(variables) > most:
        n, ends = len(variables), ends.reshape(-1, 2)
        linked = sparse.coo_matrix((np.ones(len(pairs), bool), tuple(ends.T)), shape=(n, n)).tocsr()
        place = np.empty(n, np.int64)
        place[sparse.csgraph.reverse_cuthill_mckee((linked + linked.T).tocsr(), symmetric_mode=True)] = np.arange(n)
        order = np.lexsort(np.sort(place[ends], axis=1).T)
    listed = np.asarray(ends).reshape(-1, 2)[order].reshape(-1)
    by_variable = np.argsort(listed, kind="stable")
    before = np.full(len(listed), -1)  # where each end was listed before
    again = np.diff(listed[by_variable]) == 0
    before[by_variable[1:][again]] = by_variable[:-1][again]
    first = 0
    while first < len(pairs):
        new = np.cumsum((before[2 * first :] < 2 * first).reshape(-1, 2).sum(axis=1))
        last = first + int(np.searchsorted(new, most, side="right"))
        yield order[first:last]
        first = last
