"""Level 1 on blocks of pairs (Out-of-Core, section 4.2): what kernels take (kernels/pair_block.cuh), and the one for
blocks of which nearly all pairs last (kernels/level_one_tile.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
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
TILES = {
    flag: KernelSource("gaussian/kernels/level_one_tile.cu", f"level_one_tile<{flag}>", (PAIR_BLOCK,))
    for flag in ("true", "false")
}
TILE, TILE_SIDE = 64, 16  # level_one_tile.cu

NO_MEMBER = np.uint32(2**32 - 1)  # pair_block.cuh
MEMBER = np.uint32(2**31 - 1)  # its key without the side

TILED = ("cuda",)
"""Backends on which tiles of pairs are tested faster than pairs one by one, as long as nothing separates them."""

DENSE = 0.25
"""Share of edges in a block above which the kernel that tests all pairs is the faster one."""

GAIN = 10
"""Tests that tiles make in the time of one test of a scan: 8 where nothing separates any pair, 13 where three quarters
of the pairs go (on an H200). The scan of a pair ends with the set that separates it, a tile goes on for its others."""


def tile_launch(n_i: int, n_j: int, residual_tolerance: float) -> tuple[KernelSource, tuple[int, int], tuple[int, int]]:
    """The kernel that tests n_i x n_j pairs in tiles, its grid and its block."""
    kernel = TILES["true" if residual_tolerance > 0 else "false"]
    return kernel, (ceil_div(n_j, TILE), ceil_div(n_i, TILE)), (TILE_SIDE, TILE_SIDE)


def whole_matrix(correlation: Any, graph: Any, **fields: Any) -> Filled:
    """A `PAIR_BLOCK` of all pairs of p variables, whose sets may have any of them as members.

    Args:
        correlation: (p, p) float64 on the device.
        graph: (p, words) uint32 on the device: a bit for each edge.
        fields: what does not follow from those.
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
