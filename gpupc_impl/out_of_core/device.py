"""The kernels of the out-of-core methods, for tests that compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import _gathered, _pairs, _panels, _split_rows


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of `out-of-core-block` out of core, but for those of `pair-scan`; `out-of-core-um` has cuPC-S's."""
    of_levels = [source.kernel(level) for source in (_gathered, _split_rows) for level in range(1, max_level + 1)]
    of_pairs = [_pairs.ZERO, _pairs.RANKS, _pairs.EDGES]
    return [*of_pairs, _panels.TWINS, *_panels.SCANS.values(), *of_levels]
