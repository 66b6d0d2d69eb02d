"""Arguments and launches of level 1 between whole rows on the device (kernels/panels.cu), without transfers."""

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
    **{"c": Pointer(np.float64), "near": Pointer(np.uint32), "has_twin": Pointer(np.uint8)},
    **dict.fromkeys(("first", "count"), np.int32),
)
PANEL = Struct(
    "Panel",
    **dict.fromkeys("ij", PANEL_ROWS),
    **dict.fromkeys(("p", "words"), np.int32),
    members=Pointer(np.uint32),
    **dict.fromkeys(("min_r_squared", "counters"), Pointer(np.uint64)),
    **dict.fromkeys(("critical_r_squared", "residual_tolerance"), np.float64),
)
TWINS = KernelSource(SOURCE, "mark_twins")
SCANS = {flag: KernelSource(SOURCE, f"scan_panel<{flag}>", (PANEL,)) for flag in ("true", "false")}

WARPS = 4
"""Warps of a thread block."""

MOST_SPLITS = 8
"""Upper bound on the thread blocks that divide the partners of a row among themselves."""


@dataclasses.dataclass(frozen=True)
class DeviceRows:
    """Whole rows on the device.

    Attributes:
        first: the variable of the first row.
        c: (rows, p) float64 correlations.
        near: (rows, words) uint32: the same rows of the graph.
        has_twin: (rows,) uint8: whether another variable leaves this variable no variance.
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
        return PANEL_ROWS(**vars(self), count=len(self.has_twin))

    def part(self, variables: slice) -> DeviceRows:
        """The rows of some of the variables."""
        own = slice(variables.start - self.first, variables.stop - self.first)
        return DeviceRows(variables.start, self.c[own], self.near[own], self.has_twin[own])


def twins_launch(backend: Backend, rows: DeviceRows, residual_tolerance: float) -> tuple[Any, ...]:
    """The launch that fills `has_twin` of some rows: kernel, grid, thread block, arguments."""
    count, p = rows.c.shape
    numbers = map(np.int32, (count, rows.first, p))
    arguments = [rows.c, *numbers, np.float64(residual_tolerance), rows.has_twin]
    return TWINS, (ceil_div(count, WARPS),), (WARPS * backend.warp_threads,), arguments


def scan_launch(backend: Backend, rows: DeviceRows, columns: DeviceRows, **fields: Any) -> tuple[Any, ...]:
    """The launch that tests the edges i < j between some rows and others: kernel, grid, thread block, arguments.

    Args:
        fields: the other fields of `PANEL`, from `members` on (see kernels/panels.cu).
    """
    p = rows.c.shape[1]
    panel = PANEL(i=rows.argument, j=columns.argument, p=p, words=row_words(p), **fields)
    grid = len(rows.has_twin), min(ceil_div(len(columns.has_twin), 32 * WARPS), MOST_SPLITS)
    kernel = SCANS["false" if fields["min_r_squared"] is None else "true"]
    return kernel, grid, (WARPS * backend.warp_threads,), [panel]
