"""Level 1 on blocks of pairs (Out-of-Core, section 4.2): the struct that its kernels take (kernels/pair_block.cuh), and
the launch of the kernel for blocks with nearly all of their pairs (kernels/level_one_tile.cu)."""

from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
from gpupc_impl.engine.graph import TALLY_CONSTANTS
from gpupc_impl.integers import ceil_div

PAIR_BLOCK = Struct(
    "PairBlock",
    **dict.fromkeys(("rows_i", "rows_j"), Pointer(np.float64)),
    **dict.fromkeys(("bits_i", "bits_j"), Pointer(np.uint32)),
    c=Pointer(np.float64),
    edges=Pointer(np.uint32),
    keys=Pointer(np.uint32),
    **dict.fromkeys(("min_r_squared", "counters"), Pointer(np.uint64)),
    **dict.fromkeys(("pitch", "c_pitch", "edges_first"), np.int64),
    **dict.fromkeys(("words", "edge_words", "width", "n_i", "n_j", "i0", "j0", "s0"), np.int32),
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    first_come=np.bool_,
)
NO_MEMBER = np.uint32(2**32 - 1)  # the key of a pair that no set has separated
MEMBER = np.uint32(2**31 - 1)  # the bits of a key that hold the member of the set; the bit above these holds the side
TILE, TILE_SIDE = 64, 16  # the numbers of variables and of threads on a side of a tile

CONSTANTS = {
    **TALLY_CONSTANTS,
    "NO_MEMBER": int(NO_MEMBER),
    "SECOND_SIDE_MEMBER": int(MEMBER) + 1,
    "TILE": TILE,
    "SIDE": TILE_SIDE,
}

TILES = {
    flag: KernelSource("gaussian/kernels/level_one_tile.cu", f"level_one_tile<{flag}>", (PAIR_BLOCK,), CONSTANTS)
    for flag in ("true", "false")
}

TILED = ("cuda",)  # the backends on which pairs that no set separates are tested faster in tiles than one by one
TILED_FROM = 4096  # variables: reading level 0's counters first costs smaller problems more than tiles save
DENSE = 0.25  # the share of edges among the pairs of a block above which the kernel that tests all pairs is faster

GAIN = 10
"""The number of tests that tiles make in the time of one test of a scan. On an H200 it is 8 if no pair is separated,
and 13 if three quarters of the pairs are removed. The scan of a pair ends with the set that separates the pair, whereas
a tile is finished when its last pair is separated."""


def tile_launch(n_i: int, n_j: int, residual_tolerance: float) -> tuple[KernelSource, tuple[int, int], tuple[int, int]]:
    """Return the kernel that tests n_i x n_j pairs in tiles, its grid and its block."""
    kernel = TILES["true" if residual_tolerance > 0 else "false"]
    return kernel, (ceil_div(n_j, TILE), ceil_div(n_i, TILE)), (TILE_SIDE, TILE_SIDE)


def whole_matrix(correlation: Any, graph: Any, **fields: Any) -> Filled:
    """Return a `PAIR_BLOCK` of all pairs of p variables, whose sets may contain any of these variables, from their (p,
    p) float64 correlations and the (p, words) uint32 bits of the graph on the device."""
    p, words = graph.shape
    return PAIR_BLOCK(
        **dict.fromkeys(("rows_i", "rows_j", "c"), correlation),
        **dict.fromkeys(("bits_i", "bits_j", "edges"), graph),
        **dict.fromkeys(("pitch", "c_pitch", "width", "n_i", "n_j"), p),
        **dict.fromkeys(("words", "edge_words"), words),
        **dict.fromkeys(("edges_first", "i0", "j0", "s0"), 0),
        **fields,
    )
