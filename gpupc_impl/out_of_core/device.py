"""The kernels of the out-of-core methods: all, and those that are compiled ahead."""

from __future__ import annotations

import functools

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import pairs, panel_scan
from gpupc_impl.out_of_core.row_tests import gathered_kernel
from gpupc_impl.out_of_core.split_rows import split_kernel

LEVELS_AHEAD = 2
"""Levels whose kernels are compiled while the level before them runs."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """The kernels of both methods, but for those that `pair-scan` and `cupc-s` have as well."""
    of_levels = [kernel(level) for kernel in (gathered_kernel, split_kernel) for level in range(1, max_level + 1)]
    return [pairs.ZERO, pairs.RANKS, pairs.EDGES, panel_scan.TWINS, *panel_scan.SCANS.values(), *of_levels]


@functools.cache
def later_kernels(level: int, max_level: int | None) -> tuple[KernelSource, ...]:
    """The kernels for gathered rows of the levels after one, from level 2 on."""
    last = level + LEVELS_AHEAD if max_level is None else min(level + LEVELS_AHEAD, max_level)
    return tuple(gathered_kernel(each) for each in range(max(level + 1, 2), last + 1))
