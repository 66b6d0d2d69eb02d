"""Tests of whole rows of the graph on gathered sub-matrices: what the kernels take, and the launch of gathered.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.engine.graph import BINOMIALS
from gpupc_impl.engine.row_graph import KEY_CONSTANTS

BATCH = Struct(  # gathered.cu
    "Batch",
    matrices=Pointer(np.float64),
    **dict.fromkeys(("matrix_at", "first_slot"), Pointer(np.int64)),
    **dict.fromkeys(("sizes", "own", "neighbours", "mirrors"), Pointer(np.int32)),
)
ROW_SEARCH = Struct(  # row_search.cuh
    "RowSearch",
    **dict.fromkeys(("keys", "min_r_squared", "counters"), Pointer(np.uint64)),
    binomial=BINOMIALS,
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
    first_come=np.bool_,
)


def gathered_kernel(level: int) -> KernelSource:
    source = "out_of_core/kernels/gathered.cu"
    return KernelSource(source, f"gathered<{level}>", (BATCH, ROW_SEARCH), KEY_CONSTANTS)


def gathered_launch(
    backend: Backend, level: int, batch: Filled, search: Filled, *, rows: int, longest: int, theta: int, delta: int
) -> tuple[KernelSource, tuple[int, int], tuple[int], list[Any], int]:
    """A launch that tests all sets of some rows.

    Args:
        batch, search: the `BATCH` and the `ROW_SEARCH`.
        rows: the number of rows.
        longest: the most neighbours of a row. Rows are copied to shared memory if it holds one of this length.
        theta: threads of a thread block.
        delta: thread blocks that divide the sets of a row among themselves.

    Returns:
        the kernel, its grid, its thread block, its arguments, and the bytes of shared memory.
    """
    row_bytes = 4 * longest
    use_shared = row_bytes <= backend.max_shared_bytes
    arguments = [batch, search, np.bool_(use_shared)]
    return gathered_kernel(level), (rows, delta), (theta,), arguments, row_bytes if use_shared else 0
