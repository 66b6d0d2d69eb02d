"""Levels 0 and 1 from matrix products of samples by the device's library, with canonical answers
(kernels/filter.cu)."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped
from gpupc_impl.distributed import filter_plan
from gpupc_impl.distributed.correlations import standardised_rows
from gpupc_impl.distributed.filter_bounds import (
    SINGLE_ROUNDOFF,
    UNIT_ROUNDOFF,
    excess_bound,
    needed_product,
    product_bound,
)
from gpupc_impl.distributed.filter_plan import COLUMNS_A_WARP, EDGE_BYTES, LISTS, MOST_CANDIDATES, STEP, TILE_ROWS
from gpupc_impl.distributed.supervision import MESSAGE_INTERVAL
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.views.progress import bar

logger = logging.getLogger("gpupc_impl.distributed")

SOURCE = "distributed/kernels/filter.cu"
FILTER = Struct(
    "Filter",
    samples=Pointer(np.float64),
    m=np.int32,
    **dict.fromkeys(("low", "high", "critical_zero", "critical_one", "residual_tolerance"), np.float64),
    **dict.fromkeys(("critical", "slack", "defined"), np.float32),
    **dict.fromkeys(("low_single", "high_single", "needed_scale", "needed_offset"), np.float32),
)
PRODUCTS = Struct("Products", products=Pointer(np.float64), **dict.fromkeys(("first", "count", "columns"), np.int32))
EDGE_ROWS = Struct("EdgeRows", starts=Pointer(np.int64), **dict.fromkeys(("partners", "values"), Pointer(np.uint32)))
CANDIDATES = Struct(
    "Candidates",
    panel=Pointer(np.float32),
    numbers=Pointer(np.uint16),
    correlations=Pointer(np.float32),
    starts=Pointer(np.int64),
    ends=Pointer(np.int32),
    end=Pointer(np.uint64),
    capacity=np.int64,
    **dict.fromkeys(("first", "count", "pitch"), np.int32),
)
OPEN_EDGES = Struct("OpenEdges", rows=EDGE_ROWS, slots=Pointer(np.int64), seconds=Pointer(np.uint32))
SEPARATED = 1 << 31
NO_MEMBER = 2**32 - 1
COUNTS = ("tests", "undefined", "rechecked")
"""The first counters of level 1; after them comes `OPEN`, the number of edges that no test has separated."""

OPEN = len(COUNTS)
CONSTANTS = {
    "COLUMNS_A_WARP": COLUMNS_A_WARP,
    "MOST_CANDIDATES": MOST_CANDIDATES,
    "SEPARATED": SEPARATED,
    "NO_MEMBER": NO_MEMBER,
    "OPEN": OPEN,
    "LISTS": LISTS,
}


def _kernel(expression: str, *structs: Struct) -> KernelSource:
    return KernelSource(SOURCE, expression, structs, CONSTANTS)


COUNT = _kernel("count_edges", FILTER, PRODUCTS)
LIST = _kernel("list_edges", FILTER, PRODUCTS, EDGE_ROWS)
KEEP = _kernel("keep_panel", FILTER, PRODUCTS, CANDIDATES)
SCANS = tuple(_kernel(f"scan_block<{flag}>", FILTER, EDGE_ROWS, CANDIDATES) for flag in ("false", "true"))
COUNT_OPEN = _kernel("count_open", EDGE_ROWS)
LIST_OPEN = _kernel("list_open", EDGE_ROWS, OPEN_EDGES)
SCANS_OPEN = tuple(
    _kernel(f"scan_open<{flag}>", FILTER, EDGE_ROWS, OPEN_EDGES, CANDIDATES) for flag in ("false", "true")
)
USE_SECONDS = _kernel("use_seconds", EDGE_ROWS, OPEN_EDGES)
ALL_KERNELS = (COUNT, LIST, KEEP, *SCANS, COUNT_OPEN, LIST_OPEN, *SCANS_OPEN, USE_SECONDS)

WARPS = 8
"""Warps of a thread block."""

SMALL_PRODUCT = 1e7
"""Upper bound on the multiply-adds of a product that is computed on a single core."""

SPARSENESS = 32
"""The time for a correlation of a row's neighbours relative to the time for a correlation of a panel. The number is
also an upper bound on the ratio of their bytes."""


@dataclasses.dataclass(frozen=True)
class GroupResult:
    """Levels 0 and 1 of a group of rows.

    Attributes:
        rows: the range of variables j whose rows are in the group.
        starts: (rows + 1,) int64: the edges of row j after level 0 begin at index ``starts[j - rows.start]``.
        partners, values: (edges,) uint32 on the device (kernels/filter.cu, `EdgeRows`).
        levels: the number of levels that were run: 1 or 2.
    """

    rows: slice
    starts: np.ndarray
    partners: Any
    values: Any
    levels: int


class FilteredLevels:
    """Levels 0 and 1 of a problem with samples on one device.

    Attributes:
        plan: the sizes of the arrays on the device.
        degrees: (p,) int32 on the device: degrees after level 0, which are complete after the last group.
        counts: the numbers of tests, of undefined tests and of canonical tests at level 1.
        seconds: the duration of each step.

    Raises:
        DeviceMemoryError: the device has less free memory than it reported before.
    """

    def __init__(
        self, problem: GaussianProblem, backend: Backend, with_level_one: bool, candidates: int = 0, show: bool = False
    ):
        self._show = show
        self.backend, self.m, self.p = backend, problem.n_samples, problem.n_variables
        self.seconds: collections.Counter[str] = collections.Counter()
        self.counts = np.zeros(3, np.int64)
        self._last_lap = time.perf_counter()
        assert problem.samples is not None
        self.plan = plan = filter_plan.choose(self.m, self.p, backend.memory_limit - backend.memory_used)
        logger.info(
            "%s samples of %s variables on one device: blocks of %s candidates, groups of up to %s edges; it needs %s "
            "bytes of device memory and may take %s",
            *(f"{each:,}" for each in (self.m, self.p, plan.candidates, plan.edges, plan.device_bytes)),
            f"{backend.memory_limit:,}",
        )
        self.samples = standardised_rows(backend, problem.samples, plan.upload)
        self.lap("samples")
        self._filter = self._decisions(problem, with_level_one)
        self._with_level_one = with_level_one
        p, pitch = self.p, round_up(plan.candidates, STEP)
        self._tile = backend.empty(plan.tile, np.float64)
        self.degrees = backend.full(p, 0, np.int32)
        self._starts = backend.empty(p + 1, np.int64)
        self._edges = backend.empty_all(partners=(plan.edges, np.uint32), values=(plan.edges, np.uint32))
        if with_level_one:
            self._candidates = {
                **backend.empty_all(
                    panel=((p, pitch), np.float32),
                    numbers=(plan.neighbours, np.uint16),
                    correlations=(plan.neighbours, np.float32),
                    starts=(p, np.int64),
                    ends=((p, LISTS), np.int32),
                    end=(1, np.uint64),
                ),
                "capacity": plan.neighbours,
                "pitch": pitch,
            }
            self._open = backend.empty_all(
                starts=(p + 1, np.int64),
                partners=(plan.open_edges, np.uint32),
                values=(plan.open_edges, np.uint32),
                slots=(plan.open_edges, np.int64),
                seconds=(plan.open_edges, np.uint32),
            )
        self.lap("memory")

    def _decisions(self, problem: GaussianProblem, with_level_one: bool) -> Any:
        zero = problem.critical_r_squared(0)
        one = problem.critical_r_squared(1) if with_level_one else 0.0
        # The last term bounds the rounding of the root, and of the square in the canonical test.
        root, bound = math.sqrt(zero), product_bound(self.m) + 8 * UNIT_ROUNDOFF
        entry = SINGLE_ROUNDOFF + product_bound(self.m)
        scale, offset = needed_product(one)
        return FILTER(
            samples=self.samples,
            m=self.m,
            low=root - bound,
            high=root + bound,
            critical_zero=zero,
            critical_one=one,
            residual_tolerance=problem.residual_tolerance,
            critical=np.float32(one),
            slack=np.float32(excess_bound(self.m, one)),
            defined=np.float32(problem.residual_tolerance * (1 + 2.0**-20) + 4 * entry),
            low_single=np.float32(root - bound - 2 * entry),
            high_single=np.float32(root + bound + 2 * entry),
            needed_scale=np.float32(scale),
            needed_offset=np.float32(offset),
        )

    @contextlib.contextmanager
    def _stage(self, title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Show the progress of a stage by a bar or by messages; yields a function of the number of completed units."""
        started = last = time.perf_counter()
        done = 0
        with bar(None if self._show else False, total, title, unit) as shown:

            def update(units: int) -> None:
                nonlocal done, last
                done, now = done + units, time.perf_counter()
                shown.update(units)
                if now - last >= MESSAGE_INTERVAL:
                    last = now
                    left = (now - started) * (total - done) / done
                    logger.info("%s: %d of %d%s, about %.0f s left", title, done, total, unit, left)

            yield update

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the last lap to a step."""
        self.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last_lap
        self._last_lap = now

    def groups(self, first: int = 0) -> Iterator[GroupResult]:
        """The results of groups of rows. The caller has to read each result before it requests the next.

        Args:
            first: the first row.
        """
        while first < self.p:
            with self.backend.array_library() as library:
                result = self._group(library, first)
            yield result
            self.lap("results")
            first = result.rows.stop

    def _group(self, library: Any, first: int) -> GroupResult:
        """Run levels 0 and 1 for as many rows as fit, with the library of `Backend.array_library`."""
        last, edges = self._level_zero(library, first)
        self.lap("level 0: edges")
        logger.info("level 0 has %s edges in the rows %d to %d", f"{edges:,}", first, last - 1)
        is_whole = slice(first, last) == slice(0, self.p)
        with_level_one = self._with_level_one and not (is_whole and self._is_sparse())
        if with_level_one and edges:
            self._level_one(library, first, last, edges)
        starts = self.backend.download(self._starts[first : last + 1])
        partners, values = (self._edges[name][:edges] for name in ("partners", "values"))
        return GroupResult(slice(first, last), starts, partners, values, 1 + with_level_one)

    def release(self) -> Any:
        """Drop every array on the device but the samples, which are returned, even if an error refers to this
        object."""
        samples = self.samples
        self.samples = self._filter = self._tile = self._starts = self._edges = self._candidates = self._open = None
        return samples

    def _is_sparse(self) -> bool:
        """Whether the rows have so few neighbours that level 1 is faster row by row."""
        sizes = self.backend.download(self.degrees).astype(np.float64) + 1
        return float(SPARSENESS * np.square(sizes).sum()) <= min(self.p**2, self.backend.memory_limit)

    def _level_zero(self, library: Any, first: int) -> tuple[int, int]:
        """List the edges of as many rows as fit; returns the row after the last one, and the number of edges."""
        backend, edges, row = self.backend, 0, first
        height = max(1, self.plan.tile // self.p)
        height -= height % TILE_ROWS if height > TILE_ROWS else 0
        backend.fill(self._starts[first : first + 1], 0)
        rows_struct = EDGE_ROWS(starts=self._starts, **self._edges)
        with self._stage("level 0", self.p - first, " rows") as update:
            while row < self.p:
                count = min(self.p - row, height)
                columns = row + count
                tile = self._products(library, slice(row, columns), slice(0, columns))
                self.lap("level 0: products")
                parts = ceil_div(columns, COLUMNS_A_WARP)
                counts = backend.empty(count * parts, np.int64)
                self._launch(COUNT, count * parts, [self._filter, tile, counts])
                ends = backend.empty(count * parts, np.int64)
                library.cumsum(counts, out=ends)
                more = int(backend.download(ends[-1:])[0])
                self.lap("level 0: counts")
                if edges + more > self.plan.edges:
                    if row > first:
                        break
                    if count == 1:
                        raise DeviceMemoryError(EDGE_BYTES * more, backend.memory_used, backend.memory_limit)
                    height = count // 2
                    continue
                self._launch(
                    LIST, count * parts, [self._filter, tile, ends, np.int64(edges), rows_struct, self.degrees]
                )
                edges, row = edges + more, columns
                self.lap("level 0: edges")
                update(count)
        return row, edges

    def _level_one(self, library: Any, first: int, last: int, edges: int) -> None:
        """Test the edges of the rows."""
        rows = EDGE_ROWS(starts=self._starts, **self._edges)
        copies, before = None, 0  # copies of the open edges, and the candidates before the copies were made
        open_edges = edges
        with self._stage("level 1, sets from i", self.p, " candidates") as update:
            for block in self._blocks(library, self.p, last, "i"):
                if copies is None and open_edges <= self.plan.open_edges:
                    copies, before = self._copy_open(library, rows, first, last), block.values["first"]
                if copies is None:
                    open_edges = self._scan(SCANS[False], [rows, block], first, last)
                else:
                    open_edges = self._scan(SCANS_OPEN[True], [rows, copies, block], first, last)
                self.lap("sets from i: tests")
                if not open_edges:
                    return
                update(block.values["count"])
        if copies is None:
            before = self.p
        with self._stage("level 1, sets from j", before, " candidates") as update:
            for block in self._blocks(library, before, last, "j"):
                if copies is None:
                    self._scan(SCANS[True], [rows, block], first, last)
                else:
                    self._scan(SCANS_OPEN[False], [rows, copies, block], first, last)
                self.lap("sets from j: tests")
                update(block.values["count"])
        if copies is not None:
            count = int(self.backend.download(self._open["starts"][last : last + 1])[0])
            threads = 128 if self.backend.warp_threads > 1 else 1
            grid = (max(1, ceil_div(count, threads)),)
            self.backend.kernel(*USE_SECONDS)(grid, (threads,), [rows, copies, np.int64(count)])

    def _scan(self, kernel: KernelSource, arguments: list[Any], first: int, last: int) -> int:
        """Launch a kernel whose thread blocks take a row each; returns the number of edges that are still open."""
        backend = self.backend
        threads = WARPS * backend.warp_threads if backend.warp_threads > 1 else 1
        counters = backend.full(COUNTER_SHAPE, 0, np.uint64)
        backend.kernel(*kernel)((last - first,), (threads,), [self._filter, *arguments, np.int32(first), counters])
        counted = backend.download(counters).sum(axis=0).astype(np.int64)
        self.counts += counted[:OPEN]
        return int(counted[OPEN])

    def _blocks(self, library: Any, stop: int, last: int, side: str) -> Iterator[Any]:
        """The `CANDIDATES` of blocks of the variables below `stop`, with correlations with the variables below
        `last`."""
        start, most = 0, self.plan.candidates
        while start < stop:
            count = min(most, stop - start)
            candidates = CANDIDATES(first=start, count=count, **self._candidates)
            self.backend.fill(self._candidates["end"], 0)
            for variables in mapped.pieces(last, max(1, self.plan.tile // count)):
                tile = self._products(library, variables, slice(start, start + count))
                self.lap(f"sets from {side}: products")
                self._launch(KEEP, variables.stop - variables.start, [self._filter, tile, candidates])
                self.lap(f"sets from {side}: panels")
            if int(self.backend.download(self._candidates["end"])[0]) > self.plan.neighbours:
                most = max(STEP, count // 2 // STEP * STEP)  # the lists of so few candidates fit at any density
                continue
            yield candidates
            start += count

    def _copy_open(self, library: Any, rows: Any, first: int, last: int) -> Any:
        """The `OPEN_EDGES` with copies of the open edges of the rows."""
        counts, ends = (self.backend.empty(last - first, np.int64) for _ in range(2))
        numbers = [np.int32(first), np.int32(last - first)]
        self._launch(COUNT_OPEN, last - first, [rows, *numbers, counts])
        library.cumsum(counts, out=ends)
        own = {name: self._open[name] for name in ("starts", "partners", "values")}
        copies = OPEN_EDGES(rows=EDGE_ROWS(**own), slots=self._open["slots"], seconds=self._open["seconds"])
        self._launch(LIST_OPEN, last - first, [rows, *numbers, ends, copies])
        return copies

    def _launch(self, kernel: KernelSource, warps: int, arguments: list[Any]) -> None:
        """Launch a kernel with at least so many warps."""
        in_block = WARPS if self.backend.warp_threads > 1 else 1
        self.backend.kernel(*kernel)((ceil_div(warps, in_block),), (in_block * self.backend.warp_threads,), arguments)

    def _products(self, library: Any, rows: slice, columns: slice) -> Any:
        """The `PRODUCTS` of some variables with others, which overwrite the one tile on the device."""
        height, width = rows.stop - rows.start, columns.stop - columns.start
        out = self._tile[: height * width].reshape(height, width)
        own, others = self.samples[rows], self.samples[columns].T
        threads = self.backend.array_threads if self.m * height * width > SMALL_PRODUCT else 1
        if threads == 1:
            library.matmul(own, others, out=out)
        else:
            with ThreadPoolExecutor(threads) as pool:
                parts = mapped.pieces(height, ceil_div(height, threads))
                list(pool.map(lambda part: library.matmul(own[part], others, out=out[part]), parts))
        return PRODUCTS(products=out, first=rows.start, count=height, columns=width)
