"""The kernels of the out-of-core methods, for those who compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core._search import GATHERED_SOURCE, PAIR_KERNELS, PAIR_SOURCE, SPLIT_SOURCE


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of `out-of-core-block`; `out-of-core-um` has those of cuPC-S."""
    return [KernelSource(PAIR_SOURCE, name) for name in PAIR_KERNELS] + [
        KernelSource(source, f"{name}<{level}>")
        for source, name in ((GATHERED_SOURCE, "gathered"), (SPLIT_SOURCE, "split_row"))
        for level in range(1, max_level + 1)
    ]
