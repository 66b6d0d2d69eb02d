"""The tests of a group of rows at a level from 2 on, on a device that holds the samples or the matrix."""

from __future__ import annotations

import collections
from typing import Any, Protocol

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.distributed import panel_plan
from gpupc_impl.distributed.spec import RowGroup
from gpupc_impl.engine.graph import BINOMIALS, COUNTER_SHAPE, NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.row_tests import BATCH, ROW_SEARCH, gathered_launch

THETA = cupc_s.PARAMETERS["theta"].default
MOST_DELTA = 1 << 12
"""Upper bound on the thread blocks that divide the sets of a row among themselves."""


class RowDevice(Protocol):
    """The device on which rows are tested, with the samples or the correlation matrix.

    Attributes:
        p: number of variables.
        samples_held: number of samples on the device; 0 if the device holds a correlation matrix.
        budget: bytes that may be in use on the device.
    """

    backend: Backend
    budget: int
    p: int
    samples_held: int
    residual_tolerance: float
    pivot_tolerance: float

    def square_correlations(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        """Return the correlation matrix of each group of variables, one after the other, on the device.

        Args:
            variables: int32, group after group.
            sizes: (groups,) the number of variables of each group.
        """

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the previous call to a step."""


def search_rows(
    device: RowDevice, level: int, critical: float, group: RowGroup
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Test all sets of some rows.

    The rows of a group fit into the plan's budget; a worker with less memory tests a part of the rows at a time.

    Args:
        critical: the level's critical r^2.

    Returns:
        the counts of a shard, and the shard's array `keys`: (slots,) uint64 best keys.
    """
    sizes = panel_plan.row_bytes(group.degrees)
    totals, keys = collections.Counter[str](), []
    limit = panel_plan.bytes_for_rows(device.samples_held, device.p, level, int(group.degrees.max()), device.budget)
    for rows in panel_plan.share_out(np.zeros(len(sizes)), sizes, limit, 1.0, 1):
        counts, part_keys = _search_part(device, level, critical, group.part(rows))
        totals.update(counts)
        keys.append(part_keys)
    return dict(totals), {"keys": np.concatenate(keys)}


def _search_part(device: RowDevice, level: int, critical: float, group: RowGroup) -> tuple[dict[str, int], np.ndarray]:
    backend = device.backend
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
    matrices = device.square_correlations(variables, sizes)
    device.lap("correlate")
    first_keys = np.full(len(near), NO_KEY, np.uint64)
    first_keys[group.required] = REQUIRED_KEY
    keys, counters = backend.upload(first_keys), backend.full(COUNTER_SHAPE, 0, np.uint64)
    longest = int(degrees.max())
    binomials = binomial_table(longest, level)
    batch = BATCH(
        matrices=matrices,
        matrix_at=backend.upload(np.cumsum(np.square(sizes)) - np.square(sizes)),
        first_slot=backend.upload(first_slot),
        sizes=backend.upload(sizes.astype(np.int32)),
        own=backend.upload(own),
        neighbours=backend.upload(local),
        mirrors=backend.upload(mirror_slots(rows, degrees, near, device.p)),
    )
    search = ROW_SEARCH(
        keys=keys,
        min_r_squared=None,
        counters=counters,
        binomial=BINOMIALS(table=backend.upload(binomials), max_n=longest),
        critical_r_squared=critical,
        residual_tolerance=device.residual_tolerance,
        pivot_tolerance=device.pivot_tolerance,
        level=level,
        first_come=False,
    )
    most_sets = int(binomials[level, longest])
    delta = max(1, min(ceil_div(most_sets, THETA), ceil_div(4 * backend.blocks_at_once, len(rows)), MOST_DELTA))
    kernel, *launch = gathered_launch(backend, level, batch, search, len(rows), longest, THETA, delta)
    backend.kernel(*kernel)(*launch)
    best = backend.download(keys)
    tests, undefined, pseudo_inverses = map(int, backend.download(counters).sum(axis=0)[:3])
    device.lap("tests")
    return {"tests": tests, "undefined": undefined, "pseudo_inverses": pseudo_inverses}, best


def mirror_slots(rows: np.ndarray, degrees: np.ndarray, near: np.ndarray, p: int) -> np.ndarray:
    """Return (slots,) int32: for each edge, its slot in the other end's row, or its own slot if that row is not in the
    group.

    Args:
        rows, degrees: (rows,) the variables of the rows, and their numbers of neighbours.
        near: (slots,) the neighbour of each slot.
    """
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
