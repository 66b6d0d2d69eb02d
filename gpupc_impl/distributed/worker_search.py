"""The tests of a worker's tasks: levels 0 and 1 of a block of pairs, and later levels of a group of rows."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource, Pointer, Struct
from gpupc_impl.distributed import panel_plan
from gpupc_impl.distributed.spec import RowGroup
from gpupc_impl.distributed.worker_state import Panel, WorkerState
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.graph import BINOMIALS, COUNTER_SHAPE, NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.panel_scan import scan_launch
from gpupc_impl.out_of_core.row_tests import BATCH, ROW_SEARCH, gathered_launch

SOURCE = "distributed/kernels/blocks.cu"
BLOCK = Struct(
    "Block",
    **dict.fromkeys(("near", "required", "members", "edges", "left"), Pointer(np.uint32)),
    removed=Pointer(np.int32),
    **dict.fromkeys(("row_words", "words", "n_i", "n_j", "first_i", "first_j"), np.int32),
)
NO_MEMBER = np.uint32(2**32 - 1)
CONSTANTS = {"NO_MEMBER": int(NO_MEMBER)}
KEEP = KernelSource(SOURCE, "keep_block", (BLOCK,), CONSTANTS)
LIST = KernelSource(SOURCE, "list_members", (BLOCK,), CONSTANTS)

THETA = cupc_s.PARAMETERS["theta"].default
MOST_DELTA = 1 << 12
"""The most thread blocks that divide the sets of a row among themselves."""


def search_block(state: WorkerState, i: int, j: int) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Test the pairs of panels I and J.

    Returns:
        the counts of a shard, and its arrays: see `sharded_sets.BLOCK`; and of a diagonal block the degrees after
        level 0.
    """
    spec, backend = state.spec, state.backend
    panel = state.panel(i, keep=i)
    partner = state.panel(j, keep=i)
    n_i, n_j = len(panel.degrees), len(partner.degrees)
    counters, members = backend.full(COUNTER_SHAPE, 0, np.uint64), None
    if spec.critical[1] is not None:
        members = backend.full((n_i, n_j), NO_MEMBER, np.uint32)
        launch = scan_launch(
            backend,
            panel.rows,
            partner.rows,
            members=members,
            min_r_squared=None,
            counters=counters,
            critical_r_squared=spec.critical[1],
            residual_tolerance=spec.residual_tolerance,
        )
        state.launch(*launch)
    arrays = _edges_and_members(state, panel, partner.rows.first, n_j, members)
    if i == j:
        arrays["degrees"] = backend.download(panel.degrees)
    tests, undefined, _ = map(int, backend.download(counters).sum(axis=0)[:3])
    state.lap("level_1")
    return {"tests": tests, "undefined": undefined}, arrays


def _edges_and_members(state: WorkerState, panel: Panel, first_j: int, n_j: int, members: Any) -> dict[str, np.ndarray]:
    """The pairs of a block that are edges after level 0 and after level 1, and the members that separate the others.

    Args:
        members: (n_i, n_j) uint32 on the device, or None if level 1 is not run.
    """
    backend, n_i, words = state.backend, len(panel.degrees), ceil_div(n_j, 32)
    bits = backend.empty_all(edges=((n_i, words), np.uint32), left=((n_i, words), np.uint32))
    removed = backend.empty(n_i, np.int32)
    argument = BLOCK(
        near=panel.rows.near,
        required=panel.required,
        members=members,
        **bits,
        removed=removed,
        row_words=row_words(state.spec.plan.p),
        words=words,
        n_i=n_i,
        n_j=n_j,
        first_i=panel.rows.first,
        first_j=first_j,
    )
    state.launch_rows(KEEP, n_i, [argument])
    ends = np.cumsum(backend.download(removed), dtype=np.int64)
    listed = np.empty(0, np.int32)
    if ends[-1]:
        on_device = backend.empty(int(ends[-1]), np.int32)
        starts = backend.upload(np.concatenate(([0], ends[:-1])))
        state.launch_rows(LIST, n_i, [argument, starts, on_device])
        listed = backend.download(on_device)
    return {**{name: backend.download(array) for name, array in bits.items()}, "members": listed}


def search_rows(
    state: WorkerState, level: int, critical: float, group: RowGroup
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Test all sets of some rows.

    A group is made to fit the plan's budget; a worker with less memory tests a part of the rows at a time.

    Args:
        critical: the level's critical r^2.

    Returns:
        the counts of a shard, and its array `keys`: (slots,) uint64 best keys.
    """
    spec, sizes = state.spec, panel_plan.row_bytes(group.degrees)
    totals, keys = collections.Counter[str](), []
    limit = panel_plan.bytes_for_rows(spec.samples, spec.plan.p, level, int(group.degrees.max()), state.budget)
    for rows in panel_plan.share_out(np.zeros(len(sizes)), sizes, limit, 1.0, 1):
        counts, part_keys = _search_part(state, level, critical, group.part(rows))
        totals.update(counts)
        keys.append(part_keys)
    return dict(totals), {"keys": np.concatenate(keys)}


def _search_part(state: WorkerState, level: int, critical: float, group: RowGroup) -> tuple[dict[str, int], np.ndarray]:
    spec, backend = state.spec, state.backend
    rows, degrees, near = group.rows, group.degrees, group.neighbours
    first_slot = np.concatenate(([0], np.cumsum(degrees)))
    owners = np.repeat(rows, degrees)
    # The matrix of a row is that of its neighbours with the row's own variable at its place among them.
    position = np.arange(len(near)) - np.repeat(first_slot[:-1], degrees)
    local = (position + (near > owners)).astype(np.int32)
    own = np.add.reduceat(near < owners, first_slot[:-1]).astype(np.int32)
    sizes = degrees + 1
    starts = np.cumsum(sizes) - sizes
    variables = np.empty(int(sizes.sum()), np.int32)
    variables[starts + own], variables[np.repeat(starts, degrees) + local] = rows, near
    matrices = state.square_correlations(variables, sizes)
    state.lap("correlate")
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
        mirrors=backend.upload(mirror_slots(owners, near, spec.plan.p)),
    )
    search = ROW_SEARCH(
        keys=keys,
        min_r_squared=None,
        counters=counters,
        binomial=BINOMIALS(table=backend.upload(binomials), max_n=longest),
        critical_r_squared=critical,
        residual_tolerance=spec.residual_tolerance,
        pivot_tolerance=spec.pivot_tolerance,
        first_come=False,
    )
    most_sets = int(binomials[level, longest])
    delta = max(1, min(ceil_div(most_sets, THETA), ceil_div(4 * backend.blocks_at_once, len(rows)), MOST_DELTA))
    state.launch(*gathered_launch(backend, level, batch, search, len(rows), longest, THETA, delta))
    best = backend.download(keys)
    tests, undefined, pseudo_inverses = map(int, backend.download(counters).sum(axis=0)[:3])
    state.lap("tests")
    return {"tests": tests, "undefined": undefined, "pseudo_inverses": pseudo_inverses}, best


def mirror_slots(owners: np.ndarray, near: np.ndarray, p: int) -> np.ndarray:
    """(slots,) int32: for each edge, its slot in the other end's row, or its own slot if that row is not in the group.

    Args:
        owners, near: (slots,) the row and the neighbour of each slot.
    """
    forth, back = owners.astype(np.int64) * p + near, near.astype(np.int64) * p + owners
    order = np.argsort(forth)
    at = order[np.minimum(np.searchsorted(forth[order], back), len(order) - 1)]
    return np.where(forth[at] == back, at, np.arange(len(at))).astype(np.int32)
