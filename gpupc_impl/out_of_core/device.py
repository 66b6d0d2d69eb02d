"""The kernels of the out-of-core methods, for tests that compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import pairs, panel_scan
from gpupc_impl.out_of_core.row_tests import GATHERED
from gpupc_impl.out_of_core.split_rows import SPLIT


def all_kernels(max_level: int) -> list[KernelSource]:
    """The kernels of both methods, without those that `pair-scan` and `cupc-s` also use."""
    of_levels = *GATHERED.up_to(max_level), *SPLIT.up_to(max_level)
    return [pairs.ZERO, pairs.RANKS, pairs.EDGES, panel_scan.TWINS, *panel_scan.SCANS.values(), *of_levels]
