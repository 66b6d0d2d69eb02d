"""The tests of a worker's tasks: levels 0 and 1 of a block of pairs, and later levels of a group of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource, Pointer, Struct
from gpupc_impl.distributed.worker_state import Panel, WorkerState
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.panel_scan import scan_launch

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
"""Upper bound on the thread blocks that divide the sets of a row among themselves."""


def search_block(state: WorkerState, i: int, j: int) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Test the pairs of panels I and J.

    Returns:
        the counts of a shard; its arrays (see `sharded_sets.BLOCK`), which for a diagonal block include the degrees
        after level 0.
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
    """Return the pairs of a block that are edges after level 0 and after level 1, and the members that separate other
    pairs.

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
