"""The kernels of method `distributed`: those that are compiled ahead, and all of them."""

from __future__ import annotations

import functools

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.distributed.correlations import CORRELATE, MIRROR, SQUARES, STANDARDISE, TILE_CONSTANTS
from gpupc_impl.distributed.filter_kernels import ALL_KERNELS as FILTER_KERNELS
from gpupc_impl.distributed.worker_search import KEEP, LIST
from gpupc_impl.distributed.worker_state import DECIDE
from gpupc_impl.out_of_core.panel_scan import SCANS
from gpupc_impl.out_of_core.row_tests import GATHERED

MOST_PREFETCHED = 24
"""The highest level whose kernels a search on one device requests before level 0."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return the method's own kernels, without those of `out_of_core` that the method uses as well."""
    return [CORRELATE, SQUARES, MIRROR, DECIDE, KEEP, LIST, *FILTER_KERNELS]


def prefetch(backend: Backend, level: int) -> None:
    """Have threads compile the kernels for tasks of a level and of the next levels; 1 stands for levels 0 and 1."""
    backend.prefetch(_task_kernels(backend.name, level))


def prefetch_all(backend: Backend) -> None:
    """Have threads compile the kernels for all levels of a search on one device (filtered_search.py)."""
    backend.prefetch(_all_of_one_device(backend.name))


@functools.cache
def _all_of_one_device(backend: str) -> tuple[KernelSource, ...]:
    squares = SQUARES._replace(constants=TILE_CONSTANTS[backend])
    return STANDARDISE, *FILTER_KERNELS, squares, *GATHERED.up_to(MOST_PREFETCHED)


@functools.cache
def _task_kernels(backend: str, level: int) -> tuple[KernelSource, ...]:
    correlate, squares = (kernel._replace(constants=TILE_CONSTANTS[backend]) for kernel in (CORRELATE, SQUARES))
    first = (correlate, MIRROR, DECIDE, SCANS["false"], KEEP, LIST, squares) if level == 1 else ()
    return *first, *GATHERED.ahead(max(level, 2), None)
