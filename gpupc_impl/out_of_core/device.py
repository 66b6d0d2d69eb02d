"""The kernels of the out-of-core methods, for those who compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.out_of_core import _gathered, _pairs, _split_rows


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of `out-of-core-block`; `out-of-core-um` has those of cuPC-S."""
    return [KernelSource(_pairs.SOURCE, name) for name in _pairs.KERNELS] + [
        KernelSource(source, f"{name}<{level}>")
        for source, name in ((_gathered.SOURCE, "gathered"), (_split_rows.SOURCE, "split_row"))
        for level in range(1, max_level + 1)
    ]
