"""Levels 0 and 1 from products of samples (products.py), with canonical answers (kernels/filter.cu)."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped_arrays, progress_watcher
from gpupc_impl.distributed import filter_plan
from gpupc_impl.distributed.communicator import Communicator, Laps, Part
from gpupc_impl.distributed.edge_shards import Share
from gpupc_impl.distributed.filter_bounds import excess_bound, needed_product
from gpupc_impl.distributed.filter_plan import STEP, FilterPlan
from gpupc_impl.distributed.products import SPLIT, DoubleProducts, PartProducts
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.gaussian.fixed_order import CORRELATE, SQUARES, UNIT_ROUNDOFF, product_bound
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.out_of_core.host_blocks import pieces

logger = logging.getLogger("gpupc_impl.distributed")
FILTER_SOURCE = "distributed/kernels/filter.cu"
FILTER = Struct(
    "Filter",
    samples=Pointer(np.float64),
    m=np.int32,
    **dict.fromkeys(("low", "high"), np.float32),
    **dict.fromkeys(("error", "critical_zero", "critical_one", "residual_tolerance"), np.float64),
    **dict.fromkeys(("critical", "slack", "defined", "needed_scale", "needed_offset"), np.float32),
)
PRODUCTS = Struct("Products", products=Pointer(np.float32), **dict.fromkeys(("first", "count", "columns"), np.int32))
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
SEPARATED = 1 << 31
WARPS = 8  # warps of a thread block
NO_MEMBER = 2**32 - 1
COUNTS = ("tests", "undefined", "rechecked")  # then `OPEN`: the number of edges that no test has separated
OPEN = len(COUNTS)
CONSTANTS = {
    "COLUMNS_A_WARP": filter_plan.COLUMNS_A_WARP,
    "MOST_CANDIDATES": filter_plan.MOST_CANDIDATES,
    "SEPARATED": SEPARATED,
    "NO_MEMBER": NO_MEMBER,
    "OPEN": OPEN,
    "LISTS": filter_plan.LISTS,
    "WARPS": WARPS,
}


def _kernel(expression: str, *structs: Struct) -> KernelSource:
    return KernelSource(FILTER_SOURCE, expression, structs, CONSTANTS)


COUNT = _kernel("count_edges", FILTER, PRODUCTS)
LIST = _kernel("list_edges", PRODUCTS, EDGE_ROWS)
NEIGHBOURS = _kernel("list_neighbours", FILTER, CANDIDATES)
SCANS = {
    (from_row, second): _kernel(f"scan<{from_row}, {second}>".lower(), FILTER, EDGE_ROWS, CANDIDATES)
    for from_row, second in ((False, False), (False, True), (True, False))
}
GIVE, TAKE = _kernel("give_separated"), _kernel("take_separated")
FILTER_KERNELS = (SPLIT, COUNT, LIST, NEIGHBOURS, *SCANS.values(), GIVE, TAKE)

STAGED_EDGES = 64  # open edges of a row, on average, from which on a thread block takes a row, and a warp otherwise
# Candidates of each worker's first block; later blocks become larger. A worker tests edges in vain that another worker
# separates at the same time, and the first candidates separate most edges.
FIRST_CANDIDATES = 256
# The time for a correlation of a row's neighbours relative to that for a correlation of a panel. The number is also an
# upper bound on the ratio of their bytes.
SPARSENESS = 32


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return the method's own kernels, without those of `out_of_core` that the method uses as well."""
    return [CORRELATE, *SQUARES, *FILTER_KERNELS]


class FilteredLevels:
    """Levels 0 and 1 on a worker. The workers of a search share the rows of level 0, the blocks of candidates of level
    1, and the rows whose results are read (docs/design/wide.md)."""

    def __init__(
        self,
        problem: GaussianProblem,
        workers: Communicator,
        plan: FilterPlan,
        samples: Any,
        laps: Laps,
        level_one: bool,
    ):
        self._workers, self.backend, self.plan, self.samples = workers, workers.backend, plan, samples
        self._lap = laps.lap
        backend, self.m, self.p = self.backend, problem.n_samples, problem.n_variables
        self._warps = WARPS if backend.warp_threads > 1 else 1  # of a thread block
        self._counts = np.zeros(len(COUNTS), np.int64)  # of the tests that this worker makes for a group
        self._products = PartProducts(backend, samples) if plan.parts else DoubleProducts(backend, samples, plan.tile)
        self._filter = self._decisions(problem, level_one)
        self._with_level_one = level_one
        p, pitch = self.p, round_up(plan.candidates, STEP)
        self._tile = backend.empty(plan.tile, np.float32)
        self._degrees = backend.full(p, 0, np.int32)  # of the edges of a group that this worker has found
        self._starts = backend.empty(p + 1, np.int64)
        self._edges = backend.empty_all(partners=(plan.edges, np.uint32), values=(plan.edges, np.uint32))
        if level_one:
            self._candidates = {
                **backend.empty_all(
                    panel=((p, pitch), np.float32),
                    numbers=(plan.neighbours, np.uint16),
                    correlations=(plan.neighbours, np.float32),
                    starts=(p, np.int64),
                    ends=((p, filter_plan.LISTS), np.int32),
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
                second_members=(plan.open_edges, np.uint32),
            )
        self._lap("memory")

    def _decisions(self, problem: GaussianProblem, level_one: bool) -> Any:
        zero, one = problem.critical_r_squared(0), problem.critical_r_squared(1) if level_one else 0.0
        # The last term bounds the rounding of the square root, and of the square in the canonical test.
        root, error = math.sqrt(zero), self._products.error
        bound = error + 8 * UNIT_ROUNDOFF
        scale, offset = needed_product(one, error)
        return FILTER(
            samples=self.samples,
            m=self.m,
            low=np.nextafter(np.float32(root - bound), np.float32(-1)),
            high=np.nextafter(np.float32(root + bound), np.float32(2)),
            error=product_bound(self.m),
            critical_zero=zero,
            critical_one=one,
            residual_tolerance=problem.residual_tolerance,
            critical=np.float32(one),
            slack=np.nextafter(np.float32(excess_bound(error, one)), np.float32(2)),
            defined=np.float32(problem.residual_tolerance * (1 + 2.0**-20) + 4 * error + 2.0**-20),
            needed_scale=np.float32(scale),
            needed_offset=np.float32(offset),
        )

    def group(self, first: int) -> tuple[Share, Any, Any]:
        """Run levels 0 and 1 for as many rows as fit on the device. Returns this worker's share, and the partners and
        values of its edges on the device (kernels/filter.cu, `EdgeRows`), to be read before the next group."""
        backend, workers = self.backend, self._workers
        with backend.array_library() as library:
            backend.fill(self._degrees, 0)
            self._counts[:] = 0
            last, edges = self._level_zero(library, first)
            self._lap("level 0: edges")
            if workers.number == 0:
                logger.info("level 0 has %s edges in the rows %d to %d", f"{edges:,}", first, last - 1)
            is_whole = slice(first, last) == slice(0, self.p)
            with_level_one = self._with_level_one and not (is_whole and self._is_sparse())
            if with_level_one and edges:
                self._level_one(library, first, last, edges)
        starts = backend.download(self._starts[first : last + 1])
        # Each worker has about as many edges, which its caller reads; the first worker has at least a row.
        ends = np.searchsorted(starts, edges * np.arange(1, workers.size) // workers.size, side="right")
        bounds = [0, *np.minimum(ends, last - first).tolist(), last - first]
        begin, end = bounds[workers.number :][:2]
        own = starts[begin : end + 1]
        if with_level_one and workers.size > 1:
            shares = [pieces(slice(*each), self.plan.read) for each in itertools.pairwise(starts[bounds].tolist())]
            turns = itertools.zip_longest(*shares)  # a message has parts of every worker
            parts = [(k, part) for turn in turns for k, part in enumerate(turn) if part]
            with backend.array_library() as library:
                workers.least(library, [self._edges["values"]], parts)
            self._lap("level 1: exchange")
        counts = np.sum(workers.all_gather(self._counts), axis=0)
        share = Share(
            rows=slice(first + begin, first + end),
            group_stop=last,
            starts=own - own[0],
            levels=1 + with_level_one,
            degrees=backend.download(self._degrees),
            counts=dict(zip(COUNTS, map(int, counts), strict=True)),
            most_read=self.plan.read,
        )
        return share, *(array[int(own[0]) : int(own[-1])] for array in self._edges.values())

    def _is_sparse(self) -> bool:
        """Return whether the rows have so few neighbours that level 1 is faster row by row."""
        sizes = np.sum(self._workers.all_gather(self.backend.download(self._degrees)), axis=0, dtype=np.float64) + 1
        least = min(self.p**2, *self._workers.all_gather(self.backend.memory_limit))
        return float(SPARSENESS * np.square(sizes).sum()) <= least

    def _level_zero(self, library: Any, first: int) -> tuple[int, int]:
        """List the edges of as many rows as fit; returns the row after the last one, and the number of edges."""
        workers, backend, edges, row = self._workers, self.backend, 0, first
        height = max(1, self.plan.tile // self.p)
        height -= height % filter_plan.TILE_ROWS if height > filter_plan.TILE_ROWS else 0
        backend.fill(self._starts[first : first + 1], 0)
        rows_struct = EDGE_ROWS(starts=self._starts, **self._edges)
        sharing, row_parts, edge_parts = workers.size, list[Part](), list[Part]()  # `sharing`: workers that take a tile
        while row < self.p:
            height = min(height, ceil_div(self.p - row, sharing))
            bounds = [min(row + min(k, sharing) * height, self.p) for k in range(workers.size + 1)]
            own = slice(*bounds[workers.number :][:2])
            count, columns, more = own.stop - own.start, own.stop, 0
            if count:
                products = self._tile[: count * columns].reshape(count, columns)
                self._products.multiply(library, own, slice(0, columns), products)
                self._lap("level 0: products")
                tile = PRODUCTS(products=products, first=own.start, count=count, columns=columns)
                parts = ceil_div(columns, filter_plan.COLUMNS_A_WARP)
                counts = backend.empty(count * parts, np.int64)
                words = backend.empty(count * parts * (filter_plan.COLUMNS_A_WARP // 32), np.uint32)
                self._launch(COUNT, count * parts, [self._filter, tile, words, counts])
                ends = backend.empty(count * parts, np.int64)
                library.cumsum(counts, out=ends)
                more = int(backend.download(ends[-1:])[0])
                self._lap("level 0: counts")
            places = np.cumsum([edges, *workers.all_gather(more)]).tolist()
            if places[-1] > self.plan.edges:
                if row > first:
                    break
                if height == sharing == 1:
                    needed = filter_plan.EDGE_BYTES * places[-1]
                    raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
                height, sharing = max(1, height // 2), sharing if height > 1 else 1
                continue
            if count:
                before = np.int64(places[workers.number])
                self._launch(LIST, count * parts, [tile, words, ends, before, rows_struct, self._degrees])
            row_parts += [(k, slice(bounds[k] + 1, bounds[k + 1] + 1)) for k in range(workers.size)]
            edge_parts += [(k, slice(places[k], places[k + 1])) for k in range(workers.size)]
            self._lap("level 0: edges")
            edges, row = places[-1], bounds[-1]
            progress_watcher.advance(row - first, self.p - first, "rows")
        workers.complete([self._starts], row_parts)
        workers.complete([self._edges["partners"], self._edges["values"]], edge_parts)
        self._lap("level 0: exchange")
        return row, edges

    def _level_one(self, library: Any, first: int, last: int, edges: int) -> None:
        """Test the edges of the rows."""
        open_edges, before = edges, self.p  # `before`: candidates before open edges are copied
        tested, count = {"starts": self._starts, **self._edges}, edges
        for candidates, block in self._blocks(library, self.p, last, "i"):
            if tested is not self._open and open_edges <= self.plan.open_edges:
                tested, count, before = self._open, self._copy_open(library, first, last, edges), candidates.start
            open_edges = self._scan(False, tested, block, first, last, open_edges)
            self._lap("sets from i: tests")
            self._exchange(tested, count)
            if not open_edges:
                break
            progress_watcher.advance(candidates.stop, self.p, "candidates of level 1")
        for candidates, block in self._blocks(library, before if open_edges else 0, last, "j"):
            self._scan(True, tested, block, first, last, open_edges)
            self._lap("sets from j: tests")
            self._exchange(tested, count)
            progress_watcher.advance(candidates.stop, before, "candidates of level 1, second pass")
        if tested is self._open:
            copies = [tested["values"], tested["second_members"]]
            whole = enumerate(mapped_arrays.pieces(count, self.plan.read))
            parts = [(number % self._workers.size, part) for number, part in whole]
            self._workers.least(library, copies, parts)
            self._workers.complete(copies, parts)
            self._lap("level 1: exchange")
            self._use_copies(library, count)

    def _exchange(self, tested: dict[str, Any], edges: int) -> None:
        """Take over which edges, or copies, other workers have separated; the members follow at the level's end."""
        if self._workers.size == 1:
            return
        for part in mapped_arrays.pieces(edges, 64 * self.plan.read):  # whose bits fit where results are read
            arrays, count = [tested["partners"][part], tested["values"][part]], np.int64(part.stop - part.start)
            own, warps = self.backend.empty(ceil_div(int(count), 32), np.uint32), ceil_div(int(count), 32 * 32)
            self._launch(GIVE, warps, [arrays[0], count, own])
            for theirs in self._workers.from_others(own):
                self._launch(TAKE, warps, [*arrays, count, theirs])
        self._lap("level 1: exchange")

    def _scan(self, from_row: bool, tested: dict[str, Any], block: Any, first: int, last: int, open_edges: int) -> int:
        """Test edges with a block of candidates. Of the `open_edges` edges that were open before, it returns an upper
        bound on the number that no worker has separated."""
        backend = self.backend
        if not block.values["count"]:  # Only other workers have a block left.
            return min(self._workers.all_gather(open_edges))
        kernel = SCANS[from_row, tested is self._open and not from_row]
        share = self._warps if open_edges >= STAGED_EDGES * (last - first) else 1
        counters = backend.full(COUNTER_SHAPE, 0, np.uint64)
        rows = EDGE_ROWS(**{name: tested[name] for name in EDGE_ROWS.fields})
        numbers = [np.int32(first), np.int32(last), np.int32(share)]
        arguments = [self._filter, rows, self._open["second_members"], block, *numbers, counters]
        self._launch(kernel, (last - first) * share, arguments)
        counted = backend.download(counters).sum(axis=0).astype(np.int64)
        self._counts += counted[:OPEN]
        return min(self._workers.all_gather(int(counted[OPEN])))

    def _blocks(self, library: Any, stop: int, last: int, side: str) -> Iterator[tuple[slice, Any]]:
        """Yield the blocks of candidates below `stop`: the variables of the blocks that all workers have at the same
        time, and the `CANDIDATES` of this worker's own block, with its correlations with the variables below `last`."""
        workers, start, most = self._workers, 0, self.plan.candidates
        while start < stop:
            width = min(most, round_up(ceil_div(stop - start, workers.size), STEP))
            if workers.size > 1:
                width = min(width, max(FIRST_CANDIDATES, start // 2 // STEP * STEP))
            own = min(start + workers.number * width, stop)
            count, after = min(width, stop - own), min(start + workers.size * width, stop)
            candidates = CANDIDATES(first=own, count=count, **self._candidates)
            self.backend.fill(self._candidates["end"], 0)
            if count:
                panel = self._candidates["panel"][:last, :count]
                self._products.multiply(library, slice(0, last), slice(own, own + count), panel)
                self._lap(f"sets from {side}: products")
                self._launch(NEIGHBOURS, last, [self._filter, candidates, np.int32(last)])
                self._lap(f"sets from {side}: lists")
            if max(workers.all_gather(int(self.backend.download(self._candidates["end"])[0]))) > self.plan.neighbours:
                most = max(STEP, width // 2 // STEP * STEP)  # the lists of so few candidates fit at any density
                continue
            yield slice(start, after), candidates
            start = after

    def _copy_open(self, library: Any, first: int, last: int, edges: int) -> int:
        """Copy the open edges of the rows to `_open`; returns their number. `slots` has the index of each among all
        edges, and `second_members` the first member of adj(j) that separates it, or `NO_MEMBER` if none has yet."""
        to, copied = self._open, 0
        for part in mapped_arrays.pieces(edges, self.plan.read):
            found = library.flatnonzero(self._edges["partners"][part] < SEPARATED)
            own = slice(copied, copied + len(found))
            to["slots"][own] = found + part.start
            for name, array in self._edges.items():
                to[name][own] = array[part][found]
            copied = own.stop
        to["second_members"][:copied] = np.uint32(NO_MEMBER)
        to["starts"][first : last + 1] = library.searchsorted(to["slots"][:copied], self._starts[first : last + 1])
        return copied

    def _use_copies(self, library: Any, copied: int) -> None:
        """Separate the edges whose copies have been separated, or have a second member."""
        of = self._open
        for part in mapped_arrays.pieces(copied, self.plan.read):
            is_separated = of["partners"][part] >= SEPARATED
            members = library.where(is_separated, of["values"][part], of["second_members"][part])
            found = library.flatnonzero(members != np.uint32(NO_MEMBER))
            slots = of["slots"][part][found]
            self._edges["partners"][slots] |= np.uint32(SEPARATED)
            self._edges["values"][slots] = members[found]

    def _launch(self, kernel: KernelSource, warps: int, arguments: list[Any]) -> None:
        """Launch a kernel with at least this number of warps."""
        grid, threads = ceil_div(warps, self._warps), self._warps * self.backend.warp_threads
        self.backend.kernel(*kernel)((grid,), (threads,), arguments)
