"""The levels that are run row by row: the graph on a worker's device, and the tests of its share of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pairs import row_groups
from gpupc_impl.distributed.communicator import MESSAGE_BYTES, Communicator, Laps
from gpupc_impl.engine.budget import COUNTER_BYTES, allocated_bytes
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY, binomial_table
from gpupc_impl.engine.row_graph import SECOND_SIDE, RowGraph, unrank
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.fixed_order import correlate_squares
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.gathered import gathered_launch

THETA = cupc_s.PARAMETERS["theta"].default
ROW_COUNTS = ("tests", "undefined", "pseudo_inverses")
MOST_DELTA = 1 << 12  # upper bound on the thread blocks that divide the sets of a row among themselves
OCTAVES = 3  # rows whose numbers of sets differ by a factor below 2^OCTAVES share a launch, whose blocks are then alike
SLOT_BYTES = 40  # of device memory for each slot of the graph, whose rows, neighbours, reverse slots and keys it has


def bytes_of_rows(degrees: np.ndarray) -> np.ndarray:
    """Return the bytes of rows with these degrees: matrices, tiles, keys, indexes of slots, and rounding."""
    sizes = degrees.astype(np.int64) + 1
    return 8 * sizes**2 + 12 * (sizes // 64 + 1) ** 2 + 100 * sizes + 512


def bytes_for_rows(samples: int, p: int, slots: int, level: int, widest: int, budget: int) -> int:
    """Return the bytes of a budget that are left for rows beside (samples, p) numbers, the graph, variables, counters,
    and binomials for degrees up to `widest`."""
    numbers = allocated_bytes(8 * samples * p) + allocated_bytes(4 * p) + COUNTER_BYTES + 16 * 512
    return budget - numbers - 16 * p - SLOT_BYTES * slots - 8 * (level + 1) * (widest + 1)


def check_fit(problem: GaussianProblem, degrees: np.ndarray, rows: np.ndarray, level: int, budget: int) -> None:
    """Check that each of some rows fits on a device at a level, given the degrees of all."""
    total, widest = int(degrees.sum()), int(degrees.max())
    limit = bytes_for_rows(problem.n_samples, len(degrees), total, level, widest, budget)
    needed = bytes_of_rows(degrees[rows])
    too_long = np.flatnonzero(needed > limit)
    if len(too_long):
        i, least = int(rows[too_long[0]]), int(needed[too_long[0]]) + budget - limit
        raise DeviceMemoryError(
            least,
            0,
            budget,
            f"level {level} needs {least:,} bytes of a worker's device memory for the {degrees[i]:,} neighbours of "
            f"{problem.names[i]}; it has {budget:,}: give workers more (device_memory_limit), lower alpha, or "
            f"set max_level to {level - 1}",
        )


class RowSearch:
    """The graph of a search on a worker's device, from level 2 on, beside (m, p) standardised samples. Every worker has
    all slots (directions of edges, as in `RowGraph`) and tests a share of the rows, in `Backend.array_library`."""

    def __init__(self, problem: GaussianProblem, workers: Communicator, samples: Any, laps: Laps, graph: RowGraph):
        self._problem, self._workers, self._samples, self._laps = problem, workers, samples, laps
        self._backend = backend = workers.backend
        rows = np.repeat(np.arange(len(graph.degrees), dtype=np.int32), graph.degrees)
        # The row of each slot, its neighbour, its reverse slot, and whether the edge is left.
        self._row, self._near, self._reverse = map(backend.upload, (rows, graph.neighbours, graph.reverse))
        self._is_left = backend.full(len(rows), True, np.bool_)
        self._required: Any = None
        if problem.fixed is not None:  # required edges are tested like others, and the results are dropped
            required = np.zeros(len(rows), bool)
            required[graph.edge_slots(problem.fixed.required)] = True
            self._required = backend.upload(required)

    def level(self, library: Any, level: int, rows: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        """Test the sets of (k,) rows, ascending, with (k,) degrees above the level. Returns the counts `ROW_COUNTS` of
        this worker's share, and on the device the (pairs, 2) int32 pairs i < j that any worker has separated,
        ascending, with the (pairs, level) int32 members of their sets."""
        starts = self._drop(library, rows)
        counts = np.zeros(len(ROW_COUNTS), np.int64)
        keys = self._backend.full(len(self._near), NO_KEY, np.uint64)
        self._laps.lap("graph")
        for some, launches in self._batches(level, rows, degrees):
            counts += self._test(library, level, rows[some], degrees[some], launches, starts, keys)
        size = max(1, MESSAGE_BYTES // keys.itemsize)
        parts = [(k % self._workers.size, part) for k, part in enumerate(mapped_arrays.pieces(len(keys), size))]
        if self._workers.size > 1:
            self._workers.least(library, [keys], parts)
            self._workers.complete([keys], parts)
        pairs, sets = self._separated(library, level, keys, starts)
        self._laps.lap("graph")
        return counts, pairs, sets

    def _drop(self, library: Any, rows: np.ndarray) -> Any:
        """Drop the slots of edges that are removed, or have no end among the rows, which have no tests at later levels
        either. Returns the first slot of every row, (p + 1,) int64 on the device."""
        p = self._problem.n_variables
        active = library.zeros(p, bool)
        active[self._backend.upload(rows)] = True
        keep = self._is_left & (active[self._row] | active[self._near])
        place = library.cumsum(keep) - 1
        self._reverse = place[self._reverse[keep]]
        self._row, self._near, self._is_left = self._row[keep], self._near[keep], self._is_left[keep]
        if self._required is not None:
            self._required = self._required[keep]
        return library.searchsorted(self._row, library.arange(p + 1))

    def _batches(self, level: int, rows: np.ndarray, degrees: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield the rows of this worker that fit on the device together, as indexes, the longest first, and the slices
        of them that are tested in one launch each, since their rows have about as many sets."""
        widest, workers, samples = int(degrees.max()), self._workers, self._samples
        sets = binomial_table(widest, level)[level, degrees].astype(np.float64)
        octave = np.log2(sets * degrees).astype(int) // OCTAVES
        own = np.argsort(-octave, kind="stable")[workers.number :: workers.size]
        limit = bytes_for_rows(*samples.shape, len(self._near), level, widest, self._backend.memory_limit)
        for part in row_groups(_starts(np, bytes_of_rows(degrees[own])), max(1, limit)):
            some = own[part]
            ends = [*np.flatnonzero(np.diff(octave[some])) + 1, len(some)]
            yield some, map(slice, [0, *ends], ends)

    def _test(
        self, library: Any, level: int, rows: np.ndarray, degrees: np.ndarray, launches: Any, starts: Any, keys: Any
    ) -> np.ndarray:
        """Test all sets of some rows in launches (see `_batches`), and write the best key of each of their slots."""
        backend, first_slot, sizes = self._backend, _starts(np, degrees), degrees + 1
        firsts, variable = backend.upload(first_slot), backend.upload(rows)
        each = library.arange(int(first_slot[-1]))
        begins = library.zeros(len(each), np.int32)
        begins[firsts[1:-1]] = 1
        owner = library.cumsum(begins)  # the number of each slot's row, from 0 on
        position = each - firsts[owner]
        slots = starts[variable][owner] + position
        near = self._near[slots]
        # The correlation matrix of a row has the row's neighbours and its own variable, in ascending order.
        is_before = near < variable[owner]
        local = position + ~is_before
        own = library.diff(_starts(library, is_before)[firsts])
        matrix = firsts[:-1] + library.arange(len(rows))  # the place of each matrix's first variable
        variables = library.empty(len(each) + len(rows), np.int32)
        variables[matrix + own], variables[matrix[owner] + local] = variable, near
        matrices = correlate_squares(backend, self._samples, backend.download(variables), sizes)
        self._laps.lap("correlate")
        # For each slot the one in the other end's row, or its own if that row is not among these.
        place = library.full(len(self._near), -1, np.int32)
        place[slots] = each
        mirrors = place[self._reverse[slots]]
        lengths = {"neighbours": len(each), "mirrors": len(each), "own": len(rows)}
        at = backend.empty_all(**{name: (length, np.int32) for name, length in lengths.items()})
        at["mirrors"][...] = library.where(mirrors < 0, each, mirrors)
        at["neighbours"][...], at["own"][...] = local, own
        best, counters = backend.full(len(each), NO_KEY, np.uint64), backend.full(COUNTER_SHAPE, 0, np.uint64)
        binomials = binomial_table(int(degrees.max()), level)
        table, results = backend.upload(binomials), {"keys": best, "min_r_squared": None, "counters": counters}
        of_rows = {
            "matrix_at": backend.upload(_starts(np, np.square(sizes))[:-1]),
            "sizes": backend.upload(sizes.astype(np.int32)),
            "own": at.pop("own"),
        }
        at["matrices"] = matrices
        for some in launches:
            longest, n_rows = int(degrees[some].max()), some.stop - some.start
            at |= {"first_slot": firsts[some.start :], **{name: array[some] for name, array in of_rows.items()}}
            blocks = ceil_div(int(binomials[level, longest]), THETA), ceil_div(4 * backend.blocks_at_once, n_rows)
            shape = THETA, max(1, min(*blocks, MOST_DELTA))
            kernel, *launch = gathered_launch(backend, self._problem, level, at, table, longest, shape, **results)
            backend.kernel(*kernel)(*launch)
        keys[slots] = best
        counts = backend.download(counters).sum(axis=0)[: len(ROW_COUNTS)]
        self._laps.lap("tests")
        return np.asarray(counts.astype(np.int64))

    def _separated(self, library: Any, level: int, keys: Any, starts: Any) -> tuple[Any, Any]:
        """Remove the edges whose keys name a set; returns the pairs and the sets (see `level`)."""
        keys = library.minimum(keys, keys[self._reverse])
        if self._required is not None:
            keys[self._required] = NO_KEY
        self._is_left = keys == NO_KEY
        slots = library.flatnonzero(~self._is_left & (self._row < self._near))
        keys, i, j = keys[slots], self._row[slots], self._near[slots]
        owner = library.where(keys & SECOND_SIDE > 0, j, i)
        positions = unrank(keys & ~SECOND_SIDE, library.diff(starts)[owner], level, library)
        return library.stack([i, j], axis=1), self._near[starts[owner][:, None] + positions]


def _starts(library: Any, counts: Any) -> Any:
    """Return the place where each of (k,) runs of these lengths begins, and the end of the last: (k + 1,) int64."""
    starts = library.zeros(len(counts) + 1, np.int64)
    library.cumsum(counts, out=starts[1:])
    return starts
