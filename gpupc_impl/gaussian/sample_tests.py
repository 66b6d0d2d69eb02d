"""Fisher's z test for pairs and sets that a caller chooses, from samples: no p x p matrix is ever made.

Correlations are computed when they are needed, in the fixed order of method `distributed` (fixed_order.py), so tests
decide as that method does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.pairs import row_groups
from gpupc_impl.core.subsets import Subsets
from gpupc_impl.gaussian.fixed_order import correlate_squares, product_bound, standardised_on_device
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.single_tests import MATRICES, GaussianTests, run_subset_tests, strengths_of
from gpupc_impl.integers import ceil_div

SEARCH = Struct(
    "Search",
    samples=Pointer(np.float64),
    products=Pointer(np.float64),
    m=np.int32,
    p=np.int32,
    **dict.fromkeys(("error", "critical_zero", "critical_one", "residual_tolerance"), np.float64),
)
BEST_MEMBERS = KernelSource("gaussian/kernels/best_members.cu", "best_members", (SEARCH,))
WARPS = 4
"""The number of warps in a block of `BEST_MEMBERS`."""

PANEL_BYTES = {"cuda": 1 << 32, "host": 1 << 28}
"""The upper bound on the correlations on a device at once, if its memory allows as many."""


class SampleTests(GaussianTests):
    """The tests of a `GaussianProblem` with samples."""

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
        """Return the subsets of some pairs, with each pair's variables as places in a matrix of its own, and these
        matrices, on the device."""
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
        """See `IndependenceTests.best_members`.

        Matrix products of the samples of both ends with those of all variables screen the candidates.
        """
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
    """Yield indexes of (k, 2) pairs, of which those together have at most `most` variables.

    Variables are taken in the order of Cuthill and McKee, which keeps pairs that share variables together.
    """
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
