"""Level 1 on blocks of pairs (Out-of-Core, section 4.2): the argument of its kernels (kernels/pair_block.cuh), and the
launch of the kernel for blocks of which nearly all pairs remain (kernels/level_one_tile.cu)."""

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
NO_MEMBER = np.uint32(2**32 - 1)
"""The key of a pair that nothing separated."""
MEMBER = np.uint32(2**31 - 1)
"""The bits of a key that hold the member; the bit above them holds the side."""
TILE, TILE_SIDE = 64, 16
"""Variables, and threads, on a side of a tile."""

CONSTANTS = {
    **TALLY_CONSTANTS,
    "NO_MEMBER": int(NO_MEMBER),
    "SECOND_SIDE_MEMBER": int(MEMBER) + 1,
    "TILE": TILE,
    "SIDE": TILE_SIDE,
}
"""Constants of kernels/level_one_tile.cu and its headers."""

TILES = {
    flag: KernelSource("gaussian/kernels/level_one_tile.cu", f"level_one_tile<{flag}>", (PAIR_BLOCK,), CONSTANTS)
    for flag in ("true", "false")
}

TILED = ("cuda",)
"""Backends on which tiles of pairs are tested faster than pairs one by one, as long as nothing separates them."""

TILED_FROM = 4096
"""Variables from which it pays to find out whether pair-scan takes tiles; with fewer, no level has to be read first."""

DENSE = 0.25
"""Share of edges in a block above which the kernel that tests all pairs is the faster one."""

GAIN = 10
"""Tests that tiles make in the time of one test of a scan: 8 where nothing separates any pair, 13 where three quarters
of the pairs are removed (on an H200). The scan of a pair ends with the set that separates it; a tile goes on until the
last of its pairs is separated."""


def tile_launch(n_i: int, n_j: int, residual_tolerance: float) -> tuple[KernelSource, tuple[int, int], tuple[int, int]]:
    """The kernel that tests n_i x n_j pairs in tiles, its grid and its block."""
    kernel = TILES["true" if residual_tolerance > 0 else "false"]
    return kernel, (ceil_div(n_j, TILE), ceil_div(n_i, TILE)), (TILE_SIDE, TILE_SIDE)


def whole_matrix(correlation: Any, graph: Any, **fields: Any) -> Filled:
    """A `PAIR_BLOCK` of all pairs of p variables; every variable is a possible member of their sets.

    Args:
        correlation: (p, p) float64 on the device.
        graph: (p, words) uint32 on the device: a bit for each edge.
        fields: the fields that these two do not determine.
    """
    p, words = graph.shape
    return PAIR_BLOCK(
        **dict.fromkeys(("rows_i", "rows_j", "c"), correlation),
        **dict.fromkeys(("bits_i", "bits_j", "edges"), graph),
        **dict.fromkeys(("pitch", "c_pitch", "width", "n_i", "n_j"), p),
        **dict.fromkeys(("words", "edge_words"), words),
        **dict.fromkeys(("edges_first", "i0", "j0", "s0"), 0),
        **fields,
    )
