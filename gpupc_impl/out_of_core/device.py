"""The kernels of the out-of-core methods, for tests that compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import pairs, panel_scan
from gpupc_impl.out_of_core.row_tests import gathered_kernel
from gpupc_impl.out_of_core.split_rows import split_kernel


def all_kernels(max_level: int) -> list[KernelSource]:
    """The kernels of both methods, but for those that `pair-scan` and `cupc-s` have as well."""
    of_levels = [kernel(level) for kernel in (gathered_kernel, split_kernel) for level in range(1, max_level + 1)]
    return [pairs.ZERO, pairs.RANKS, pairs.EDGES, panel_scan.TWINS, *panel_scan.SCANS.values(), *of_levels]
