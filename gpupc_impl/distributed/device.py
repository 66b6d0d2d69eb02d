"""The kernels of method `distributed`, for tests that compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.distributed import filter as filtered
from gpupc_impl.distributed.correlations import CORRELATE, MIRROR, SQUARES
from gpupc_impl.distributed.worker_search import KEEP, LIST
from gpupc_impl.distributed.worker_state import DECIDE


def all_kernels(max_level: int) -> list[KernelSource]:
    """The method's own kernels; it uses those of `out_of_core` as well."""
    return [CORRELATE, SQUARES, MIRROR, DECIDE, KEEP, LIST, *filtered.ALL_KERNELS]
