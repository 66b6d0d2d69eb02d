"""The kernels of method `distributed`, for tests that compile or check all of them."""

from __future__ import annotations

from gpupc_impl.backends import KernelSource
from gpupc_impl.distributed import _worker
from gpupc_impl.distributed.correlations import CORRELATE, MIRROR, SQUARES


def all_kernels(max_level: int) -> list[KernelSource]:
    """Those of its own; the others are out_of_core's."""
    return [CORRELATE, SQUARES, MIRROR, _worker.DECIDE, _worker.KEEP, _worker.LIST]
