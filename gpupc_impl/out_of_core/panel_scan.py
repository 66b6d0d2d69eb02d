"""Level 1 between whole rows on the device (kernels/panels.cu): arguments and launches, without transfers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.integers import ceil_div

SOURCE = "out_of_core/kernels/panels.cu"
PANEL_ROWS = Struct(
    "PanelRows",
    c=Pointer(np.float64),
    near=Pointer(np.uint32),
    has_twin=Pointer(np.uint8),
    first=np.int32,
    count=np.int32,
)
PANEL = Struct(
    "Panel",
    **dict.fromkeys("ij", PANEL_ROWS),
    p=np.int32,
    words=np.int32,
    members=Pointer(np.uint32),
    min_r_squared=Pointer(np.uint64),
    counters=Pointer(np.uint64),
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
)
TWINS = KernelSource(SOURCE, "mark_twins")
SCANS = {flag: KernelSource(SOURCE, f"scan_panel<{flag}>", (PANEL,)) for flag in ("true", "false")}

WARPS = 4
"""Warps of a thread block."""

MOST_SPLITS = 8
"""The most thread blocks that divide the partners of a row among themselves."""

Launch = tuple[KernelSource, tuple[int, ...], tuple[int, ...], list[Any]]
"""A kernel, its grid, its thread block, and its arguments."""


@dataclasses.dataclass(frozen=True)
class DeviceRows:
    """Whole rows on the device.

    Attributes:
        first: the variable of the first row.
        c: (rows, p) float64 correlations.
        near: (rows, words) uint32: the same rows of the graph.
        has_twin: (rows,) uint8: whether the variable has no variance left given another one.
    """

    first: int
    c: Any
    near: Any
    has_twin: Any

    @property
    def variables(self) -> slice:
        return slice(self.first, self.first + len(self.has_twin))

    @property
    def argument(self) -> Filled:
        """The `PANEL_ROWS` that the kernel takes."""
        first, count = self.first, len(self.has_twin)
        return PANEL_ROWS(c=self.c, near=self.near, has_twin=self.has_twin, first=first, count=count)

    def part(self, variables: slice) -> DeviceRows:
        """The rows of some of the variables."""
        own = slice(variables.start - self.first, variables.stop - self.first)
        return DeviceRows(variables.start, self.c[own], self.near[own], self.has_twin[own])


def twins_launch(backend: Backend, rows: DeviceRows, residual_tolerance: float) -> Launch:
    """The launch that fills `has_twin` of some rows."""
    count, p = rows.c.shape
    numbers = map(np.int32, (count, rows.first, p))
    arguments = [rows.c, *numbers, np.float64(residual_tolerance), rows.has_twin]
    return TWINS, (ceil_div(count, WARPS),), (WARPS * backend.warp_threads,), arguments


def scan_launch(
    backend: Backend,
    rows: DeviceRows,
    columns: DeviceRows,
    *,
    members: Any,
    min_r_squared: Any,
    counters: Any,
    critical_r_squared: float,
    residual_tolerance: float,
) -> Launch:
    """The launch that tests the edges i < j between some rows and others.

    Args:
        members: (rows, columns) uint32 on the device, written where a pair is separated.
        min_r_squared: (rows, columns) uint64 on the device for the bits of the smallest r^2 of each pair, or None.
        counters: uint64 on the device (engine/kernels/tally.cuh).
    """
    p = rows.c.shape[1]
    argument = PANEL(
        i=rows.argument,
        j=columns.argument,
        p=p,
        words=row_words(p),
        members=members,
        min_r_squared=min_r_squared,
        counters=counters,
        critical_r_squared=critical_r_squared,
        residual_tolerance=residual_tolerance,
    )
    grid = len(rows.has_twin), min(ceil_div(len(columns.has_twin), 32 * WARPS), MOST_SPLITS)
    kernel = SCANS["false" if min_r_squared is None else "true"]
    return kernel, grid, (WARPS * backend.warp_threads,), [argument]
