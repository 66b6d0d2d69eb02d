"""The kernels of the out-of-core methods, and the kernels that are compiled ahead."""

from __future__ import annotations

import functools

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import pairs, panel_scan
from gpupc_impl.out_of_core.row_tests import gathered_kernel
from gpupc_impl.out_of_core.split_rows import split_kernel

LEVELS_AHEAD = 2
"""Number of levels whose kernels are compiled while the level before them runs."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """The kernels of both methods, without those that `pair-scan` and `cupc-s` also use."""
    of_levels = [kernel(level) for kernel in (gathered_kernel, split_kernel) for level in range(1, max_level + 1)]
    return [pairs.ZERO, pairs.RANKS, pairs.EDGES, panel_scan.TWINS, *panel_scan.SCANS.values(), *of_levels]


@functools.cache
def later_kernels(level: int, max_level: int | None) -> tuple[KernelSource, ...]:
    """The kernels that test gathered rows at the next levels, from level 2 on."""
    last = level + LEVELS_AHEAD if max_level is None else min(level + LEVELS_AHEAD, max_level)
    return tuple(gathered_kernel(each) for each in range(max(level + 1, 2), last + 1))
