"""Tests of whole rows of the graph on gathered sub-matrices: the kernels' structs, and the launch of gathered.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.engine.graph import BINOMIALS
from gpupc_impl.engine.row_graph import KEY_CONSTANTS
from gpupc_impl.gaussian.level_kernels import LevelKernels

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
    **dict.fromkeys(("critical_r_squared", "residual_tolerance", "pivot_tolerance"), np.float64),
    level=np.int32,
    first_come=np.bool_,
)


GATHERED = LevelKernels(
    lambda size: KernelSource(
        "out_of_core/kernels/gathered.cu", f"gathered<{size}>", (BATCH, ROW_SEARCH), KEY_CONSTANTS
    )
)


def gathered_launch(
    backend: Backend, level: int, batch: Filled, search: Filled, rows: int, longest: int, theta: int, delta: int
) -> tuple[Any, ...]:
    """The launch that tests all sets of some rows: kernel, grid, thread block, arguments, bytes of shared memory.

    Args:
        batch, search: the `BATCH` and the `ROW_SEARCH`.
        longest: the largest number of neighbours of a row; rows are copied to shared memory if so many neighbours fit.
        theta, delta: threads of a thread block, and thread blocks that divide the sets of a row among themselves.
    """
    use_shared = 4 * longest <= backend.max_shared_bytes
    arguments = [batch, search, np.bool_(use_shared)]
    return GATHERED.choose(backend, level), (rows, delta), (theta,), arguments, 4 * longest if use_shared else 0
