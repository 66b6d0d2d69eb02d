"""The kernels of method `distributed`: the declarations of those that decide levels 0 and 1 from matrix products
(kernels/filter.cu), and which kernels are compiled ahead."""

from __future__ import annotations

import functools

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.distributed.filter_plan import COLUMNS_A_WARP, LISTS, MOST_CANDIDATES
from gpupc_impl.distributed.products import SPLIT
from gpupc_impl.gaussian.fixed_order import CORRELATE, SQUARES, STANDARDISE, TILE_CONSTANTS
from gpupc_impl.out_of_core.gathered import GATHERED

MOST_PREFETCHED = 24  # the highest level whose kernels a search requests before level 0

FILTER_SOURCE = "distributed/kernels/filter.cu"
FILTER = Struct(
    "Filter",
    samples=Pointer(np.float64),
    m=np.int32,
    **dict.fromkeys(("low", "high"), np.float32),
    **dict.fromkeys(("error", "critical_zero", "critical_one", "residual_tolerance"), np.float64),
    **dict.fromkeys(("critical", "slack", "defined", "needed_scale", "needed_offset"), np.float32),
)
PRODUCTS = Struct("Products", products=Pointer(np.float32), **dict.fromkeys(("first", "count", "columns"), np.int32))
EDGE_ROWS = Struct("EdgeRows", starts=Pointer(np.int64), **dict.fromkeys(("partners", "values"), Pointer(np.uint32)))
CANDIDATES = Struct(
    "Candidates",
    panel=Pointer(np.float32),
    numbers=Pointer(np.uint16),
    correlations=Pointer(np.float32),
    starts=Pointer(np.int64),
    ends=Pointer(np.int32),
    end=Pointer(np.uint64),
    capacity=np.int64,
    **dict.fromkeys(("first", "count", "pitch"), np.int32),
)
SEPARATED = 1 << 31
WARPS = 8  # warps of a thread block
NO_MEMBER = 2**32 - 1
COUNTS = ("tests", "undefined", "rechecked")
"""The names of the first counters of level 1. The counter with index `OPEN` follows: the number of edges that no test
has separated."""

OPEN = len(COUNTS)
CONSTANTS = {
    "COLUMNS_A_WARP": COLUMNS_A_WARP,
    "MOST_CANDIDATES": MOST_CANDIDATES,
    "SEPARATED": SEPARATED,
    "NO_MEMBER": NO_MEMBER,
    "OPEN": OPEN,
    "LISTS": LISTS,
    "WARPS": WARPS,
}


def _kernel(expression: str, *structs: Struct) -> KernelSource:
    return KernelSource(FILTER_SOURCE, expression, structs, CONSTANTS)


COUNT = _kernel("count_edges", FILTER, PRODUCTS)
LIST = _kernel("list_edges", PRODUCTS, EDGE_ROWS)
NEIGHBOURS = _kernel("list_neighbours", FILTER, CANDIDATES)
SCANS = {
    (from_row, second): _kernel(f"scan<{from_row}, {second}>".lower(), FILTER, EDGE_ROWS, CANDIDATES)
    for from_row, second in ((False, False), (False, True), (True, False))
}
TAKE_OVER = _kernel("take_over", EDGE_ROWS)
FILTER_KERNELS = (SPLIT, COUNT, LIST, NEIGHBOURS, *SCANS.values(), TAKE_OVER)


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return the method's own kernels, without those of `out_of_core` that the method uses as well."""
    return [CORRELATE, *SQUARES, *FILTER_KERNELS]


def prefetch_all(backend: Backend) -> None:
    """Have threads compile the kernels for all levels of a search of samples."""
    backend.prefetch(_searching(backend.name))


@functools.cache
def _searching(backend: str) -> tuple[KernelSource, ...]:
    squares = (kernel._replace(constants=TILE_CONSTANTS[backend]) for kernel in SQUARES)
    return STANDARDISE, *FILTER_KERNELS, *squares, *GATHERED.up_to(MOST_PREFETCHED)
