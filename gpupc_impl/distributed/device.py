"""The kernels of method `distributed`, for tests that compile or check all of them."""

from __future__ import annotations

import functools

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.distributed import filter as filtered
from gpupc_impl.distributed.correlations import CORRELATE, MIRROR, SQUARES, TILE_CONSTANTS
from gpupc_impl.distributed.worker_search import KEEP, LIST
from gpupc_impl.distributed.worker_state import DECIDE
from gpupc_impl.out_of_core.panel_scan import SCANS
from gpupc_impl.out_of_core.row_tests import GATHERED


def all_kernels(max_level: int) -> list[KernelSource]:
    """The method's own kernels, without those of `out_of_core` that the method uses as well."""
    return [CORRELATE, SQUARES, MIRROR, DECIDE, KEEP, LIST, *filtered.ALL_KERNELS]


def prefetch(backend: Backend, level: int) -> None:
    """Have threads compile the kernels for tasks of a level and of the next levels; 1 stands for levels 0 and 1."""
    backend.prefetch(_task_kernels(backend.name, level))


@functools.cache
def _task_kernels(backend: str, level: int) -> tuple[KernelSource, ...]:
    correlate, squares = (kernel._replace(constants=TILE_CONSTANTS[backend]) for kernel in (CORRELATE, SQUARES))
    first = (correlate, MIRROR, DECIDE, SCANS["false"], KEEP, LIST, squares) if level == 1 else ()
    return *first, *GATHERED.ahead(max(level, 2), None)
