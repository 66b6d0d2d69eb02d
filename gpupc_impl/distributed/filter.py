"""Levels 0 and 1 from matrix products of samples by the device's library, with canonical answers
(kernels/filter.cu)."""

from __future__ import annotations

import collections
import dataclasses
import logging
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, KernelSource
from gpupc_impl.core import mapped
from gpupc_impl.distributed import filter_plan
from gpupc_impl.distributed.communicator import Communicator, Part
from gpupc_impl.distributed.correlations import standardised_rows
from gpupc_impl.distributed.filter_bounds import (
    SINGLE_ROUNDOFF,
    UNIT_ROUNDOFF,
    excess_bound,
    needed_product,
    product_bound,
)
from gpupc_impl.distributed.filter_kernels import (
    CANDIDATES,
    COUNT,
    COUNT_OPEN,
    EDGE_ROWS,
    FILTER,
    KEEP,
    LIST,
    LIST_OPEN,
    OPEN,
    OPEN_EDGES,
    PRODUCTS,
    SCANS,
    SCANS_OPEN,
    TAKE_OVER,
    USE_COPIES,
)
from gpupc_impl.distributed.filter_plan import COLUMNS_A_WARP, EDGE_BYTES, LISTS, STEP, TILE_ROWS
from gpupc_impl.distributed.supervision import stage
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up

logger = logging.getLogger("gpupc_impl.distributed")

WARPS = 8
"""Warps of a thread block."""

SMALL_PRODUCT = 1e7
"""Upper bound on the multiply-adds of a product that is computed on a single core."""

SPARSENESS = 32
"""The time for a correlation of a row's neighbours relative to the time for a correlation of a panel. The number is
also an upper bound on the ratio of their bytes."""


@dataclasses.dataclass(frozen=True)
class GroupResult:
    """Levels 0 and 1 of a group of rows, or of a device's share of them.

    Attributes:
        rows: the range of variables j whose rows these are; `group_stop` is the row after the last one of the group.
        starts: (rows + 1,) int64: the edges of row j after level 0 begin at index ``starts[j - rows.start]``.
        partners, values: (edges,) uint32 on the device (kernels/filter.cu, `EdgeRows`).
        levels: the number of levels that were run: 1 or 2.
    """

    rows: slice
    starts: np.ndarray
    partners: Any
    values: Any
    levels: int
    group_stop: int


class FilteredLevels:
    """Levels 0 and 1 of a problem with samples on a device, alone or together with others.

    Every device holds all samples and all edges of a group of rows. The devices share the rows of level 0, the blocks
    of candidates of level 1, and the rows whose results are read.

    Args:
        devices: the connection with the other devices, which make the same calls.

    Attributes:
        plan: the sizes of the arrays on the device.
        degrees: (p,) int32 on the device: degrees after level 0 of the edges that this device has found.
        counts: the numbers of tests, of undefined tests and of canonical tests that the device makes at level 1.
        seconds: the duration of each step.

    Raises:
        DeviceMemoryError: the device has less free memory than it reported before.
    """

    def __init__(self, problem: GaussianProblem, devices: Communicator, with_level_one: bool, show: bool = False):
        self._devices, self.backend = devices, devices.backend
        self._log = logger.info if devices.number == 0 else lambda *message: None
        self._shown = show and devices.number == 0, self._log
        backend, self.m, self.p = self.backend, problem.n_samples, problem.n_variables
        self.seconds: collections.Counter[str] = collections.Counter()
        self.counts = np.zeros(3, np.int64)
        self._last_lap = time.perf_counter()
        assert problem.samples is not None
        free = min(devices.all_gather(backend.memory_limit - backend.memory_used))
        self.plan = plan = filter_plan.choose(self.m, self.p, free)
        self._log(
            "%s samples of %s variables on %s devices: blocks of %s candidates, groups of up to %s edges; each "
            "needs %s bytes of device memory and may take %s",
            *(f"{each:,}" for each in (self.m, self.p, devices.size, plan.candidates, plan.edges, plan.device_bytes)),
            f"{backend.memory_limit:,}",
        )
        self.samples = standardised_rows(devices, problem.samples, plan.upload)
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
        # The last term bounds the rounding of the square root, and of the square in the canonical test.
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

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the previous call to a step."""
        self.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last_lap
        self._last_lap = now

    def groups(self, first: int = 0) -> Iterator[GroupResult]:
        """Yield this device's share of the results of each group of rows. The caller has to read each result before it
        requests the next.

        Args:
            first: the first row.
        """
        while first < self.p:
            with self.backend.array_library() as library:
                result = self._group(library, first)
            yield self._own_share(result)
            self.lap("results")
            first = result.rows.stop

    def _own_share(self, whole: GroupResult) -> GroupResult:
        """Return the rows whose results the caller of this device reads, which have about as many edges on each device.
        The first device has at least one row."""
        starts, size = whole.starts, self._devices.size
        ends = np.searchsorted(starts, len(whole.partners) * np.arange(1, size) // size, side="right")
        begin, end = [0, *np.minimum(ends, len(starts) - 1).tolist(), len(starts) - 1][self._devices.number :][:2]
        own, rows = starts[begin : end + 1], slice(whole.rows.start + begin, whole.rows.start + end)
        partners, values = (array[int(own[0]) : int(own[-1])] for array in (whole.partners, whole.values))
        return GroupResult(rows, own - own[0], partners, values, whole.levels, whole.group_stop)

    def _group(self, library: Any, first: int) -> GroupResult:
        """Run levels 0 and 1 for as many rows as fit on the device, by the library of `Backend.array_library`."""
        last, edges = self._level_zero(library, first)
        self.lap("level 0: edges")
        self._log("level 0 has %s edges in the rows %d to %d", f"{edges:,}", first, last - 1)
        is_whole = slice(first, last) == slice(0, self.p)
        with_level_one = self._with_level_one and not (is_whole and self._is_sparse())
        if with_level_one and edges:
            self._level_one(library, first, last, edges)
        starts = self.backend.download(self._starts[first : last + 1])
        partners, values = (self._edges[name][:edges] for name in ("partners", "values"))
        return GroupResult(slice(first, last), starts, partners, values, 1 + with_level_one, last)

    def release(self) -> Any:
        """Return the samples, and drop every other array on the device, even if an error still refers to this
        object."""
        samples = self.samples
        self.samples = self._filter = self._tile = self._starts = self._edges = self._candidates = self._open = None
        return samples

    def _is_sparse(self) -> bool:
        """Return whether the rows have so few neighbours that level 1 is faster row by row."""
        sizes = np.sum(self._devices.all_gather(self.backend.download(self.degrees)), axis=0, dtype=np.float64) + 1
        least = min(self.p**2, *self._devices.all_gather(self.backend.memory_limit))
        return float(SPARSENESS * np.square(sizes).sum()) <= least

    def _level_zero(self, library: Any, first: int) -> tuple[int, int]:
        """List the edges of as many rows as fit into the arrays of edges; returns the row after the last one, and the
        number of edges."""
        devices, backend, edges, row = self._devices, self.backend, 0, first
        height = max(1, self.plan.tile // self.p)
        height -= height % TILE_ROWS if height > TILE_ROWS else 0
        backend.fill(self._starts[first : first + 1], 0)
        rows_struct = EDGE_ROWS(starts=self._starts, **self._edges)
        sharing, row_parts, edge_parts = devices.size, list[Part](), list[Part]()  # `sharing`: devices that take a tile
        with stage(*self._shown, "level 0", self.p - first, " rows") as update:
            while row < self.p:
                height = min(height, ceil_div(self.p - row, sharing))
                bounds = [min(row + min(k, sharing) * height, self.p) for k in range(devices.size + 1)]
                own = slice(*bounds[devices.number :][:2])
                count, columns, more = own.stop - own.start, own.stop, 0
                if count:
                    tile = self._products(library, own, slice(0, columns))
                    self.lap("level 0: products")
                    parts = ceil_div(columns, COLUMNS_A_WARP)
                    counts = backend.empty(count * parts, np.int64)
                    self._launch(COUNT, count * parts, [self._filter, tile, counts])
                    ends = backend.empty(count * parts, np.int64)
                    library.cumsum(counts, out=ends)
                    more = int(backend.download(ends[-1:])[0])
                    self.lap("level 0: counts")
                places = np.cumsum([edges, *devices.all_gather(more)]).tolist()
                if places[-1] > self.plan.edges:
                    if row > first:
                        break
                    if height == sharing == 1:
                        raise DeviceMemoryError(EDGE_BYTES * places[-1], backend.memory_used, backend.memory_limit)
                    height, sharing = max(1, height // 2), sharing if height > 1 else 1
                    continue
                if count:
                    before = np.int64(places[devices.number])
                    self._launch(LIST, count * parts, [self._filter, tile, ends, before, rows_struct, self.degrees])
                row_parts += [(k, slice(bounds[k] + 1, bounds[k + 1] + 1)) for k in range(devices.size)]
                edge_parts += [(k, slice(places[k], places[k + 1])) for k in range(devices.size)]
                self.lap("level 0: edges")
                update(bounds[-1] - row)
                edges, row = places[-1], bounds[-1]
        devices.complete([self._starts], row_parts)
        devices.complete([self._edges["partners"], self._edges["values"]], edge_parts)
        self.lap("level 0: exchange")
        return row, edges

    def _level_one(self, library: Any, first: int, last: int, edges: int) -> None:
        """Test the edges of the rows."""
        rows = EDGE_ROWS(starts=self._starts, **self._edges)
        copies, copied, before = None, 0, self.p  # `before`: candidates before copies are made
        open_edges = edges
        with stage(*self._shown, "level 1, sets from i", self.p, " candidates") as update:
            for number, (candidates, block) in enumerate(self._blocks(library, self.p, last, "i"), 1):
                if copies is None and open_edges <= self.plan.open_edges:
                    copies, copied = self._copy_open(library, rows, first, last)
                    before = candidates.start
                kernel, tested = (SCANS[False], rows) if copies is None else (SCANS_OPEN[True], copies)
                open_edges = self._scan(kernel, [tested, block], first, last, open_edges)
                self.lap("sets from i: tests")
                # An exchange takes long if there are many edges, but without one a device tests edges in vain that
                # another device has separated. Most edges that are open after the first blocks stay open for long, so
                # exchanges become rare.
                if copies is None or not number & (number - 1) or candidates.stop == self.p or not open_edges:
                    self._exchange(library, rows, edges, copies, copied)
                if not open_edges:
                    break
                update(candidates.stop - candidates.start)
        with stage(*self._shown, "level 1, sets from j", before, " candidates") as update:
            for candidates, block in self._blocks(library, before if open_edges else 0, last, "j"):
                kernel, tested = (SCANS[True], rows) if copies is None else (SCANS_OPEN[False], copies)
                self._scan(kernel, [tested, block], first, last, open_edges)
                self.lap("sets from j: tests")
                self._exchange(library, rows, edges, copies, copied)
                update(candidates.stop - candidates.start)
        if copies is not None:
            self._launch_each(USE_COPIES, copied, [rows, copies, np.int64(copied)])

    def _exchange(self, library: Any, rows: Any, edges: int, copies: Any, copied: int) -> None:
        """Take over the sets that other devices have found for edges, or for copies of edges if there are any."""
        devices = self._devices
        if devices.size == 1:
            return
        if copies is not None:
            rows, edges = copies.values["rows"], copied
        own = [rows.values["partners"], rows.values["values"], *([] if copies is None else [copies.values["seconds"]])]
        size = max(1, min(self.plan.read, ceil_div(edges, devices.size)))
        parts = [(number % devices.size, part) for number, part in enumerate(mapped.pieces(edges, size))]
        others = [arrays for number, arrays in enumerate(devices.arrays(own)) if number != devices.number]
        for part in (part for owner, part in parts if owner == devices.number):  # no other device changes this part
            for arrays in others:
                partners, values, *seconds = (devices.fetch(array[part]) for array in arrays)
                count = part.stop - part.start
                self._launch_each(TAKE_OVER, count, [rows, np.int64(part.start), partners, values, np.int64(count)])
                for theirs in seconds:
                    library.minimum(own[2][part], theirs, out=own[2][part])
        devices.complete(own, parts)
        self.lap("level 1: exchange")

    def _scan(self, kernel: KernelSource, arguments: list[Any], first: int, last: int, open_edges: int) -> int:
        """Launch a kernel whose thread blocks take a row each. Of the `open_edges` edges that were open before the
        launch, it returns an upper bound on the number that no device has separated."""
        backend = self.backend
        if not arguments[-1].values["count"]:  # Only other devices have a block left.
            return min(self._devices.all_gather(open_edges))
        threads = WARPS * backend.warp_threads if backend.warp_threads > 1 else 1
        counters = backend.full(COUNTER_SHAPE, 0, np.uint64)
        backend.kernel(*kernel)((last - first,), (threads,), [self._filter, *arguments, np.int32(first), counters])
        counted = backend.download(counters).sum(axis=0).astype(np.int64)
        self.counts += counted[:OPEN]
        return min(self._devices.all_gather(int(counted[OPEN])))

    def _blocks(self, library: Any, stop: int, last: int, side: str) -> Iterator[tuple[slice, Any]]:
        """Yield the blocks of candidates below `stop`: the variables of the blocks that all devices have at the same
        time, and the `CANDIDATES` of this device's own block, with its correlations with the variables below `last`."""
        devices, start, most = self._devices, 0, self.plan.candidates
        if devices.size > 1 and stop:  # all devices have blocks of about the same number
            most = min(most, round_up(ceil_div(stop, devices.size * ceil_div(stop, devices.size * most)), STEP))
        while start < stop:
            most = min(most, stop - start)
            own = min(start + devices.number * most, stop)
            count, after = min(most, stop - own), min(start + devices.size * most, stop)
            candidates = CANDIDATES(first=own, count=count, **self._candidates)
            self.backend.fill(self._candidates["end"], 0)
            for variables in mapped.pieces(last if count else 0, max(1, self.plan.tile // max(1, count))):
                tile = self._products(library, variables, slice(own, own + count))
                self.lap(f"sets from {side}: products")
                self._launch(KEEP, variables.stop - variables.start, [self._filter, tile, candidates])
                self.lap(f"sets from {side}: panels")
            if max(devices.all_gather(int(self.backend.download(self._candidates["end"])[0]))) > self.plan.neighbours:
                most = max(STEP, most // 2 // STEP * STEP)  # the lists of so few candidates fit at any density
                continue
            yield slice(start, after), candidates
            start = after

    def _copy_open(self, library: Any, rows: Any, first: int, last: int) -> tuple[Any, int]:
        """Copy the open edges of the rows; returns their `OPEN_EDGES` and their number."""
        counts, ends = (self.backend.empty(last - first, np.int64) for _ in range(2))
        numbers = [np.int32(first), np.int32(last - first)]
        self._launch(COUNT_OPEN, last - first, [rows, *numbers, counts])
        library.cumsum(counts, out=ends)
        own = {name: self._open[name] for name in ("starts", "partners", "values")}
        copies = OPEN_EDGES(rows=EDGE_ROWS(**own), slots=self._open["slots"], seconds=self._open["seconds"])
        self._launch(LIST_OPEN, last - first, [rows, *numbers, ends, copies])
        return copies, int(self.backend.download(ends[-1:])[0])

    def _launch(self, kernel: KernelSource, warps: int, arguments: list[Any]) -> None:
        """Launch a kernel with at least this number of warps."""
        in_block = WARPS if self.backend.warp_threads > 1 else 1
        self.backend.kernel(*kernel)((ceil_div(warps, in_block),), (in_block * self.backend.warp_threads,), arguments)

    def _launch_each(self, kernel: KernelSource, count: int, arguments: list[Any]) -> None:
        """Launch a kernel with a thread for each of `count` edges."""
        threads = 128 if self.backend.warp_threads > 1 else 1
        self.backend.kernel(*kernel)((max(1, ceil_div(count, threads)),), (threads,), arguments)

    def _products(self, library: Any, rows: slice, columns: slice) -> Any:
        """Compute the products of some variables with others; returns their `PRODUCTS`, which overwrite the one tile on
        the device."""
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
