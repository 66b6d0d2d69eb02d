"""The tests of a group of rows at a level that is run row by row, on a worker's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.core.pairs import row_groups
from gpupc_impl.distributed.communicator import Laps
from gpupc_impl.engine.budget import COUNTER_BYTES, allocated_bytes
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY, binomial_table
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.fixed_order import correlate_squares
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.gathered import gathered_launch

THETA = cupc_s.PARAMETERS["theta"].default
ROW_COUNTS = ("tests", "undefined", "pseudo_inverses")
MOST_DELTA = 1 << 12  # upper bound on the thread blocks that divide the sets of a row among themselves


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """Rows of the graph that are tested in one launch, if the device's memory allows it: (rows,) int64 variables, their
    (rows,) int64 degrees, and their neighbours, (slots,) int32, row after row, ascending in each."""

    rows: np.ndarray
    degrees: np.ndarray
    neighbours: np.ndarray

    def part(self, rows: slice) -> RowGroup:
        """Return the group of some of the rows."""
        slots = slice(*(int(self.degrees[:end].sum()) for end in (rows.start, rows.stop)))
        return RowGroup(self.rows[rows], self.degrees[rows], self.neighbours[slots])


def bytes_of_rows(degrees: np.ndarray) -> np.ndarray:
    """Return the bytes of rows with these degrees: matrices, tiles, keys, indexes of slots, and rounding."""
    sizes = degrees.astype(np.int64) + 1
    return 8 * sizes**2 + 12 * (sizes // 64 + 1) ** 2 + 20 * sizes + 512


def bytes_for_rows(samples: int, p: int, level: int, widest: int, budget: int) -> int:
    """Return the bytes of a budget that are left for rows beside (samples, p) numbers, variables, counters, and
    binomials for degrees up to `widest`."""
    numbers = allocated_bytes(8 * samples * p) + allocated_bytes(4 * p) + COUNTER_BYTES + 16 * 512
    return budget - numbers - 8 * (level + 1) * (widest + 1)


def check_fit(problem: GaussianProblem, degrees: np.ndarray, active: np.ndarray, level: int, budget: int) -> None:
    """Check that each row fits on a device at a level."""
    limit = bytes_for_rows(problem.n_samples, len(degrees), level, int(degrees.max()), budget)
    needed = bytes_of_rows(degrees)
    too_long = np.flatnonzero(active & (needed > limit))
    if len(too_long):
        i = int(too_long[0])
        least = int(needed[i]) + budget - limit
        raise DeviceMemoryError(
            least,
            0,
            budget,
            f"level {level} needs {least:,} bytes of a worker's device memory for the {degrees[i]:,} neighbours of "
            f"{problem.names[i]}; it has {budget:,}: give workers more (device_memory_limit), lower alpha, or "
            f"set max_level to {level - 1}",
        )


def search_rows(
    backend: Backend, samples: Any, laps: Laps, problem: GaussianProblem, level: int, groups: Sequence[RowGroup]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Test all sets of groups of rows, one group after the other, given (m, p) standardised samples, as many rows at a
    time as fit on the device. Returns the counts `ROW_COUNTS`, and (slots,) uint64 best keys for each group."""
    counts, keys = np.zeros(len(ROW_COUNTS), np.int64), []
    for group in groups:
        widest, of_group = int(group.degrees.max()), []
        limit = bytes_for_rows(len(samples), problem.n_variables, level, widest, backend.memory_limit)
        for rows in row_groups(np.concatenate(([0], np.cumsum(bytes_of_rows(group.degrees)))), max(1, limit)):
            made, best = _search_part(backend, samples, laps, problem, level, group.part(rows))
            counts += made
            of_group.append(best)
        keys.append(np.concatenate(of_group))
    return counts, keys


def _search_part(
    backend: Backend, samples: Any, laps: Laps, problem: GaussianProblem, level: int, group: RowGroup
) -> tuple[np.ndarray, np.ndarray]:
    rows, degrees, near = group.rows, group.degrees, group.neighbours
    first_slot = np.concatenate(([0], np.cumsum(degrees)))
    owners = np.repeat(rows, degrees)
    # The correlation matrix of a row has the row's neighbours and its own variable, in ascending order.
    position = np.arange(len(near)) - np.repeat(first_slot[:-1], degrees)
    local = (position + (near > owners)).astype(np.int32)
    own = np.add.reduceat(near < owners, first_slot[:-1]).astype(np.int32)
    sizes = degrees + 1
    starts = np.cumsum(sizes) - sizes
    variables = np.empty(int(sizes.sum()), np.int32)
    variables[starts + own], variables[np.repeat(starts, degrees) + local] = rows, near
    matrices = correlate_squares(backend, samples, variables, sizes)
    laps.lap("correlate")
    keys, counters = backend.full(len(near), NO_KEY, np.uint64), backend.full(COUNTER_SHAPE, 0, np.uint64)
    longest = int(degrees.max())
    binomials = binomial_table(longest, level)
    arrays = {
        "matrix_at": np.cumsum(np.square(sizes)) - np.square(sizes),
        "first_slot": first_slot,
        "sizes": sizes.astype(np.int32),
        "own": own,
        "neighbours": local,
        "mirrors": mirror_slots(rows, degrees, near, problem.n_variables),
    }
    batch = {"matrices": matrices, **{name: backend.upload(array) for name, array in arrays.items()}}
    most_sets = int(binomials[level, longest])
    delta = max(1, min(ceil_div(most_sets, THETA), ceil_div(4 * backend.blocks_at_once, len(rows)), MOST_DELTA))
    table, results = backend.upload(binomials), {"keys": keys, "min_r_squared": None, "counters": counters}
    kernel, *launch = gathered_launch(backend, problem, level, batch, table, longest, (THETA, delta), **results)
    backend.kernel(*kernel)(*launch)
    best, counts = backend.download(keys), backend.download(counters).sum(axis=0)[: len(ROW_COUNTS)]
    laps.lap("tests")
    return counts.astype(np.int64), best


def mirror_slots(rows: np.ndarray, degrees: np.ndarray, near: np.ndarray, p: int) -> np.ndarray:
    """Return for each edge its slot in the other end's row, or its own slot if that row is not in the group."""
    from scipy import sparse

    number = np.full(p, -1, np.int32)
    number[rows] = np.arange(len(rows))
    others, mirrors = number[near], np.arange(len(near), dtype=np.int32)
    inside = np.flatnonzero(others >= 0)
    starts = np.searchsorted(inside, np.concatenate(([0], np.cumsum(degrees))))
    # The graph among the rows is symmetric, so slot number k in the order of columns is the mirror of slot number k in
    # the order of rows.
    slots = sparse.csr_matrix((mirrors[inside], others[inside], starts), shape=(len(rows), len(rows)))
    slots.sort_indices()
    mirrors[slots.data] = slots.tocsc().data
    return mirrors
