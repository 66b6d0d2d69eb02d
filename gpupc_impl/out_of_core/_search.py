"""The block-based search (Out-of-Core, section 4.2, Algorithm 2), at every level, in a budget of device memory."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY, binomial_table
from gpupc_impl.gaussian.partial_correlation import partial_r_squared
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import _gather, _plan
from gpupc_impl.out_of_core._checkpoint import Checkpoint, State, make_folder
from gpupc_impl.out_of_core._lanes import Lane, Lanes, Timeline

logger = logging.getLogger("gpupc_impl.out_of_core")

PAIR_SOURCE = "out_of_core/kernels/pair_blocks.cu"
PAIR_KERNELS = ("level_zero_block", "level_one_edges", "level_one_tile")
GATHERED_SOURCE = "out_of_core/kernels/gathered.cu"
SPLIT_SOURCE = "out_of_core/kernels/split_row.cu"

NO_MEMBER = np.uint32(2**32 - 1)  # pair_blocks.cuh
MEMBER = np.uint32(2**31 - 1)  # its key without the side
SECOND_SIDE = np.uint64(2**62)  # keys.cuh
TILE, TILE_SIDE = 64, 16  # pair_blocks.cu
ZERO_THREADS = 128
SPLIT_THREADS, SPLIT_BLOCKS = 64, 1024
DENSE = 0.25
"""Share of edges in a block from which on the kernel that makes all pairs' tests is the faster one."""

EDGE_THREADS = {"cuda": (32, 8), "host": (1, 32)}
"""Threads of an edge and edges of a block in `level_one_edges`: a GPU reads a row with a warp, a core with a loop."""


class BlockSearch:
    """One search on one backend; a `LevelSearch` (see core/pc_stable.py).

    Attributes:
        report: what is recorded of the search: budget, plans, bytes moved and seconds by step.

    Raises:
        DeviceMemoryError: the budget does not hold the smallest plan; nothing has been computed then.
        InvalidProblem: the checkpoint belongs to another problem or another kind of search, or the folder of a file
            to write cannot be made.
    """

    def __init__(self, problem: GaussianProblem, run: Run):
        self.problem, self.run, self.backend = problem, run, run.backend
        self.p = problem.n_variables
        self.params = run.params
        self._used_before = self.backend.memory_used
        self.budget = max(0, self.backend.memory_limit - self._used_before)
        self._check_budget()
        self.backend.reset_peak()
        if self.params["timeline"]:
            make_folder("timeline", self.params["timeline"])
        self.adjacency_left = self._new_adjacency()
        self._pmax = np.full((self.p, self.p), np.nan) if run.pmax else None
        self.outcomes: list[LevelOutcome] = []
        self.checkpoint = None
        self._replayed = 0
        if self.params["checkpoint"]:
            self.checkpoint = Checkpoint(self.params["checkpoint"], problem.fingerprint, run.separating_sets, run.pmax)
            self._resume()
        self.timeline = Timeline(self.backend, keep=bool(self.params["timeline"]))
        self.lanes = Lanes(self.backend, self.timeline)
        self.counters: Any = None
        self.report = {
            "budget_bytes": self.budget,
            "least_budget_bytes": self.least_budget,
            "forecast": self._forecast(),
            "levels": [],
            "resumed_at_level": self._replayed or None,
            "peak_device_bytes": 0,
        }

    def _check_budget(self) -> None:
        self.least_budget = _plan.least_budget(
            self.p, self.problem.max_level, self.problem.degrees_of_freedom, self.run.pmax
        )
        if self.budget < self.least_budget:
            used, limit = self.backend.memory_used, self.backend.memory_limit
            raise DeviceMemoryError(
                self.least_budget,
                used,
                limit,
                f"out-of-core-block needs at least {self.least_budget:,} bytes of device memory for {self.p:,} "
                f"variables, in its smallest blocks; {max(0, limit - used):,} of {limit:,} bytes are free: set "
                f"device_memory_limit to {self.least_budget + used:,} or more",
            )

    def _new_adjacency(self) -> np.ndarray:
        adjacency = np.ones((self.p, self.p), bool)
        np.fill_diagonal(adjacency, False)
        return adjacency

    def _forecast(self) -> dict[str, Any]:
        """Plans of levels 0 and 1 for the complete graph, which is the most that they can need; logged."""
        zero = _plan.level_zero(self.p, self.budget, self.params["block_size"])
        one = None
        if self.problem.max_level != 0:
            one = _plan.level_one(self.p, self.budget, self.params["block_size"], self.params["layout"], self.run.pmax)
        level_one = "no level 1"  # not asked for, or no samples for it: a budget that passed holds it otherwise
        if one is not None:
            level_one = (
                f"level 1 in {one.layout} of {one.rows} x {one.columns} (at most {one.device_bytes:,} bytes, "
                f"{one.bytes_up:,} to move)"
            )
        logger.info(
            "%s variables, budget %s bytes: level 0 in blocks of %d (%s bytes of device memory, %s to move), %s",
            *(f"{self.p:,}", f"{self.budget:,}", zero.rows, f"{zero.device_bytes:,}", f"{zero.bytes_up:,}", level_one),
        )
        return {"level_0": zero.facts(), "level_1": one.facts() if one else None}

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level < self._replayed:
            return self.outcomes[level]
        run = self._level_zero if level == 0 else self._level
        try:
            self.counters = self.backend.full(COUNTER_SHAPE, 0, np.uint64)
            self.backend.synchronize()  # the lanes' streams do not wait for the backend's own
            outcome = run(level)
        finally:
            self.lanes.abandon()
            self.counters = None
        self.report["peak_device_bytes"] = self.backend.memory_peak - self._used_before
        self.outcomes.append(outcome)
        if self.checkpoint is not None:
            self.checkpoint.save(State(self.adjacency_left, self.outcomes, self._pmax))
        return outcome

    def adjacency(self) -> np.ndarray:
        return self.adjacency_left

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    def _resume(self) -> None:
        state = self.checkpoint.load()
        if state is not None:
            self.adjacency_left, self.outcomes = state.adjacency, state.outcomes
            self._pmax = state.pmax
            self._replayed = len(state.outcomes)
            logger.info("resuming at level %d from %s", self._replayed, self.checkpoint.path)

    def close(self) -> None:
        """Write the timeline; the checkpoint has served its end."""
        if self.params["timeline"]:
            self.timeline.save(self.params["timeline"])
        if self.checkpoint is not None:
            self.checkpoint.remove()

    # --- reading and writing the host's data -------------------------------------------------------------------

    def _read(self, rows: slice, columns: slice, target: np.ndarray) -> None:
        """A block of the correlation matrix into a staging area."""
        correlation = self.problem.correlation
        target[...] = correlation[rows, columns]
        mapped.release(correlation)

    def _gather(self, members: np.ndarray, target: np.ndarray) -> None:
        """A sub-matrix of the correlation matrix into a staging area."""
        correlation = self.problem.correlation
        if isinstance(correlation, np.ndarray):
            target[...] = correlation[members[:, None], members]
        else:  # a matrix made on the fly, which is never there as a whole and knows slices only
            for row, member in zip(target, members, strict=True):
                row[...] = correlation[int(member) : int(member) + 1, :][0, members]

    def _read_bits(self, rows: slice, columns: slice, target: np.ndarray) -> None:
        """A block of the graph, a bit a pair, into a staging area of 32-bit words."""
        packed = np.packbits(self.adjacency_left[rows, columns], axis=1, bitorder="little")
        flat = target.view(np.uint8)
        flat[:, : packed.shape[1]] = packed
        flat[:, packed.shape[1] :] = 0

    def _finish_level(self, level: int, plan: _plan.Plan, removed: list | None) -> LevelOutcome:
        """Take the separated edges out of the graph; count what is left."""
        tests, undefined, pseudo_inverses = map(int, self.backend.download(self.counters).sum(axis=0)[:3])
        pairs = sets = None
        if removed is not None:
            pairs = np.concatenate([np.empty((0, 2), np.int32), *(found for found, _ in removed)])
            sets = np.concatenate([np.empty((0, level), np.int32), *(found for _, found in removed)])
            i, j = pairs.T
            self.adjacency_left[i, j] = self.adjacency_left[j, i] = False
            if self._pmax is not None:
                r_squared = partial_r_squared(self.problem.correlation, pairs, sets)
                self._pmax[i, j] = self._pmax[j, i] = self.problem.p_value(r_squared, level)
        else:
            tests = self.p * (self.p - 1) // 2
        self.report["levels"].append(
            {
                "level": level,
                **plan.facts(),
                "blocks": self.lanes.blocks,
                "bytes_up": self.lanes.bytes_up,
                "bytes_down": self.lanes.bytes_down,
                "seconds": self.timeline.take_busy(),
            }
        )
        degrees = np.array([np.count_nonzero(row) for row in self.adjacency_left])
        return LevelOutcome(int(degrees.sum()) // 2, int(degrees.max()), tests, pairs, sets, undefined, pseudo_inverses)

    def _record_p_values(self, level: int, i: np.ndarray, j: np.ndarray, bits: np.ndarray) -> None:
        """Largest p-values of pairs so far, from the smallest r^2 met where there was any."""
        tested = bits != NO_KEY
        i, j, p_values = i[tested], j[tested], self.problem.p_value(bits[tested].view(np.float64), level)
        self._pmax[i, j] = self._pmax[j, i] = np.fmax(self._pmax[i, j], p_values)

    # --- level 0 -----------------------------------------------------------------------------------------------

    def _level_zero(self, level: int) -> LevelOutcome:
        p = self.p
        plan = _plan.level_zero(p, self.budget, self.params["block_size"])
        side = plan.rows
        kernel = self.backend.kernel(PAIR_SOURCE, "level_zero_block")
        critical = np.float64(self.problem.critical_r_squared(0))
        self.lanes.allocate(c=8 * side * side, edges=4 * side * _plan.words(side))
        for rows, columns in _upper_blocks(p, side):
            lane = self.lanes.next(level)
            n_i, n_j, n_words = _length(rows), _length(columns), _plan.words(_length(columns))
            c, device_c = lane.buffers["c"].pair((n_i, n_j), np.float64)
            edges, device_edges = lane.buffers["edges"].pair((n_i, n_words), np.uint32)
            with lane.extracting():
                self._read(rows, columns, c)
                if self._pmax is not None:
                    self._pmax[rows, columns] = self.problem.p_value(np.square(c), 0)
                    self._pmax[columns, rows] = self._pmax[rows, columns].T
            lane.upload((device_c, c))
            numbers = [np.int32(n) for n in (n_i, n_j, rows.start, columns.start)]
            lane.launch(
                kernel,
                (-(-n_i * n_words // ZERO_THREADS),),
                (ZERO_THREADS,),
                [device_c, *numbers, critical, device_edges, np.int32(n_words)],
            )
            lane.download((edges, device_edges))
            lane.merge_with(functools.partial(self._merge_edges, rows, columns, edges))
        self.lanes.finish()
        if self._pmax is not None:
            np.fill_diagonal(self._pmax, np.nan)
        return self._finish_level(level, plan, None)

    def _merge_edges(self, rows: slice, columns: slice, edges: np.ndarray) -> None:
        found = np.unpackbits(edges.view(np.uint8), axis=1, count=_length(columns), bitorder="little").view(bool)
        self.adjacency_left[rows, columns] = found
        self.adjacency_left[columns, rows] = found.T

    # --- levels 1 and above ------------------------------------------------------------------------------------

    def _level(self, level: int) -> LevelOutcome:
        if level == 1:
            degrees = np.array([np.count_nonzero(row) for row in self.adjacency_left], np.int64)
            gathered = int(8 * np.square(degrees[degrees > 1] + 1).sum())
            longest = int(degrees.max())
            fits = _plan.cluster_bytes(longest + 1, 1, longest, self.run.pmax) <= self._arena(1, longest, 0)
            plan = _plan.level_one(
                self.p,
                self.budget,
                self.params["block_size"],
                self.params["layout"],
                self.run.pmax,
                gathered if fits or self.params["layout"] == "gather" else None,
            )
            if plan.layout == "panels":
                return self._finish_level(level, plan, self._panels(plan))
            if plan.layout == "blocks":
                return self._finish_level(level, plan, self._blocks(plan))
        return self._gathered_level(level)

    # --- level 1 in panels and blocks --------------------------------------------------------------------------

    def _panels(self, plan: _plan.Plan) -> list:
        """Level 1 by panels of whole rows; returns the removed pairs and their sets, in pieces."""
        p, n_words = self.p, _plan.words(self.p)
        removed: list = []
        panel = self.backend.empty((plan.rows * p,), np.float64)
        panel_bits = self.backend.empty((plan.rows * n_words,), np.uint32)
        whole = plan.rows == p
        results = {"keys": 4 * plan.rows * plan.columns}
        if self._pmax is not None:
            results["smallest"] = 8 * plan.rows * plan.columns
        self.lanes.allocate(**results)
        chunks = {"c": 8 * p * plan.columns, "bits": 4 * n_words * plan.columns}
        for lane in self.lanes.both:
            for name, nbytes in chunks.items():
                lane.add_buffer(name, nbytes, on_device=not whole)
        for i0 in range(0, p, plan.rows):
            rows = slice(i0, min(i0 + plan.rows, p))
            if not self.adjacency_left[rows, i0:].any():
                continue
            for part in _pieces(rows, plan.columns):
                lane = self.lanes.next(1)
                c, _ = lane.buffers["c"].pair((_length(part), p), np.float64)
                bits, _ = lane.buffers["bits"].pair((_length(part), n_words), np.uint32)
                with lane.extracting():
                    self._read(part, slice(0, p), c)
                    self._read_bits(part, slice(0, p), bits)
                first, last = part.start - i0, part.stop - i0
                lane.upload((panel[first * p : last * p], c), (panel_bits[first * n_words : last * n_words], bits))
            uploaded = [lane.stream.record() for lane in self.lanes.both]
            for lane in self.lanes.both:
                for event in uploaded:
                    lane.stream.wait(event)
            for columns in itertools.chain(_pieces(rows, plan.columns), _pieces(slice(rows.stop, p), plan.columns)):
                edges = int(np.count_nonzero(self.adjacency_left[rows, columns]))
                if not edges:
                    continue
                lane = self.lanes.next(1)
                at = columns.start - i0
                if columns.start < rows.stop:
                    c_j, bits_j = panel[at * p :], panel_bits[at * n_words :]
                else:
                    c, c_j = lane.buffers["c"].pair((_length(columns), p), np.float64)
                    bits, bits_j = lane.buffers["bits"].pair((_length(columns), n_words), np.uint32)
                    with lane.extracting():
                        self._read(columns, slice(0, p), c)
                        self._read_bits(columns, slice(0, p), bits)
                    lane.upload((c_j, c), (bits_j, bits))
                fetch = self._prepare_pairs(lane, rows, columns)
                self._launch_pairs(
                    lane,
                    rows,
                    columns,
                    slice(0, p),
                    edges,
                    [panel, c_j, panel_bits, bits_j, panel[columns.start :], panel_bits],
                    pitches=(p, p, columns.start),
                    word_counts=(n_words, n_words),
                )
                fetch(removed)
            self.lanes.finish()
        return removed

    def _blocks(self, plan: _plan.Plan) -> list:
        """Level 1 by Algorithm 2; returns the removed pairs and their sets, in pieces."""
        p, side = self.p, plan.rows
        n_words = _plan.words(side)
        removed: list = []
        pair_lane = Lane(self.backend, 2, self.timeline)
        pair_lane.add_buffer("c", 8 * side * side)
        pair_lane.add_buffer("edges", 4 * side * n_words)
        pair_lane.add_buffer("keys", 4 * side * side)
        if self._pmax is not None:
            pair_lane.add_buffer("smallest", 8 * side * side)
        self.lanes.allocate(
            c_i=8 * side * side, c_j=8 * side * side, bits_i=4 * side * n_words, bits_j=4 * side * n_words
        )
        try:
            for rows, columns in _upper_blocks(p, side):
                edges = int(np.count_nonzero(self.adjacency_left[rows, columns]))
                if edges:
                    self._block(pair_lane, rows, columns, side, edges, removed)
        finally:
            pair_lane.stream.synchronize()
        self.lanes.both[0].bytes_up += pair_lane.bytes_up
        self.lanes.both[0].bytes_down += pair_lane.bytes_down
        return removed

    def _block(self, pair_lane: Lane, rows: slice, columns: slice, side: int, edges: int, removed: list) -> None:
        """One block of pairs: Algorithm 2, lines 9 to 19."""
        n_i, n_j = _length(rows), _length(columns)
        pair_lane.begin(1, self.lanes.take_number())
        c, device_c = pair_lane.buffers["c"].pair((n_i, n_j), np.float64)
        edge_bits, device_edges = pair_lane.buffers["edges"].pair((n_i, _plan.words(n_j)), np.uint32)
        with pair_lane.extracting():
            self._read(rows, columns, c)
            self._read_bits(rows, columns, edge_bits)
        pair_lane.upload((device_c, c), (device_edges, edge_bits))
        fetch = self._prepare_pairs(pair_lane, rows, columns)
        ready = pair_lane.stream.record()
        for members in mapped.pieces(self.p, side):
            sides = [rows] if rows == columns else [rows, columns]
            if not any(self.adjacency_left[part, members].any() for part in sides):
                continue  # SepSetCombination: no set of these pairs has a member there
            lane = self.lanes.next(1)
            width = _length(members)
            n_words = _plan.words(width)
            copies, arrays = [], []
            with lane.extracting():
                for name, part in zip("ij", sides, strict=False):
                    block, device_block = lane.buffers[f"c_{name}"].pair((_length(part), width), np.float64)
                    bits, device_bits = lane.buffers[f"bits_{name}"].pair((_length(part), n_words), np.uint32)
                    self._read(part, members, block)
                    self._read_bits(part, members, bits)
                    copies += [(device_block, block), (device_bits, bits)]
                    arrays.append((device_block, device_bits))
            lane.upload(*copies)
            lane.stream.wait(ready)  # the keys of the separation-set block before
            (c_i, bits_i), (c_j, bits_j) = arrays[0], arrays[-1]
            self._launch_pairs(
                lane,
                rows,
                columns,
                members,
                edges,
                [c_i, c_j, bits_i, bits_j, device_c, device_edges],
                pitches=(width, n_j, 0),
                word_counts=(n_words, _plan.words(n_j)),
                results=pair_lane,
            )
            ready = lane.stream.record()
        pair_lane.stream.wait(ready)
        fetch(removed)
        self.lanes.finish()
        pair_lane.finish()

    def _prepare_pairs(self, lane: Lane, rows: slice, columns: slice) -> Callable[[list], None]:
        """Empty the keys of a block of pairs; returns what queues their way back and their merge."""
        shape = (_length(rows), _length(columns))
        keys, device_keys = lane.buffers["keys"].pair(shape, np.uint32)
        lane.stream.fill_bytes(device_keys, 0xFF)
        copies = [(keys, device_keys)]
        smallest = None
        if self._pmax is not None:
            smallest, device_smallest = lane.buffers["smallest"].pair(shape, np.uint64)
            lane.stream.fill_bytes(device_smallest, 0xFF)
            copies.append((smallest, device_smallest))

        def merge(removed: list) -> None:
            if smallest is not None:
                i, j = np.nonzero(smallest != NO_KEY)
                self._record_p_values(1, i + rows.start, j + columns.start, smallest[i, j])
            i, j = np.nonzero(keys != NO_MEMBER)
            pairs = np.stack([i + rows.start, j + columns.start], axis=1).astype(np.int32)
            removed.append((pairs, (keys[i, j] & MEMBER).astype(np.int32)[:, None]))

        def fetch(removed: list) -> None:
            lane.download(*copies)
            lane.merge_with(lambda: merge(removed))

        return fetch

    def _launch_pairs(
        self,
        lane: Lane,
        rows: slice,
        columns: slice,
        members: slice,
        edges: int,
        arrays: list,
        *,
        pitches: tuple[int, int, int],
        word_counts: tuple[int, int],
        results: Lane | None = None,
    ) -> None:
        """The tests of a block of pairs with a separation-set block (a `PairBlock` of pair_blocks.cuh)."""
        n_i, n_j = _length(rows), _length(columns)
        buffers = (results or lane).buffers
        keys = buffers["keys"].pair((n_i, n_j), np.uint32)[1]
        smallest = buffers["smallest"].pair((n_i, n_j), np.uint64)[1] if self._pmax is not None else None
        args = [
            *arrays,
            keys,
            smallest,
            *map(np.int64, pitches),
            *map(np.int32, word_counts),
            *map(np.int32, (_length(members), n_i, n_j, rows.start, columns.start, members.start)),
            np.float64(self.problem.critical_r_squared(1)),
            np.int32(self.run.separating_sets == "first-come"),
            self.counters,
        ]
        if edges >= DENSE * n_i * n_j and self._pmax is None:
            grid, block, name = (-(-n_j // TILE), -(-n_i // TILE)), (TILE_SIDE, TILE_SIDE), "level_one_tile"
        else:
            grid, block, name = (n_i,), EDGE_THREADS[self.backend.name], "level_one_edges"
        lane.launch(self.backend.kernel(PAIR_SOURCE, name), grid, block, args)

    # --- any level, gathered -----------------------------------------------------------------------------------

    def _gathered_level(self, level: int) -> LevelOutcome:
        """A level on sub-matrices gathered for groups of rows; rows that do not fit are split."""
        graph = _gather.Graph.of(self.adjacency_left)
        degrees = graph.degrees
        max_degree = int(degrees.max())
        pmax = self._pmax is not None
        active = degrees > level

        arena = self._arena(level, max_degree, 0)
        need = _plan.cluster_bytes(degrees + 1, 1, degrees, pmax) + _plan.BATCH_SLACK
        split = active & (need > arena)
        if split.any():
            arena = self._arena(level, max_degree, max_degree)
            split = active & (need > arena)
        arena = min(arena, max(_plan.STAGING_BYTES, int(need[active & ~split].max(initial=0))))
        arena = max(arena, 512)

        fixed = _plan.gather_fixed_bytes(level, max_degree, max_degree if split.any() else 0, pmax)
        plan = _plan.Plan("gather", fixed + 2 * arena)
        logger.info(
            "level %d: %d rows in groups, %d split; %s bytes of device memory",
            *(level, np.count_nonzero(active & ~split), np.count_nonzero(split), f"{plan.device_bytes:,}"),
        )
        best = np.full(len(graph.neighbours), NO_KEY, np.uint64)
        smallest = np.full(len(graph.neighbours) if pmax else 0, NO_KEY, np.uint64)
        binomials = self.backend.upload(binomial_table(max_degree, level))
        self.lanes.allocate(arena=arena)

        order = graph.order()
        groups = _gather.clusters(graph, order[(active & ~split)[order]], arena - _plan.BATCH_SLACK, pmax)
        for batch in _gather.batches(groups, arena - _plan.BATCH_SLACK, pmax):
            self._batch(level, graph, batch, binomials, max_degree, best, smallest)
        self.lanes.finish()
        for i in np.flatnonzero(split):
            self._split_row(level, graph, int(i), arena, binomials, max_degree, best, smallest)
        return self._finish_level(level, plan, self._collect(level, graph, best, smallest))

    def _arena(self, level: int, max_degree: int, longest_split: int) -> int:
        """Bytes of a lane's buffer, a multiple of 512."""
        fixed = _plan.gather_fixed_bytes(level, max_degree, longest_split, self._pmax is not None)
        return (self.budget - fixed) // 1024 * 512

    def _batch(
        self,
        level: int,
        graph: _gather.Graph,
        batch: list[_gather.Cluster],
        binomials: Any,
        max_degree: int,
        best: np.ndarray,
        smallest: np.ndarray,
    ) -> None:
        """The tests of some groups of rows, in one launch."""
        lane = self.lanes.next(level)
        pmax = self._pmax is not None
        rows = np.concatenate([group.rows for group in batch])
        sizes = np.array([len(group.members) for group in batch])
        counts = graph.degrees[rows]
        first_slot = np.concatenate(([0], np.cumsum(counts)))
        n_slots, n_rows = int(first_slot[-1]), len(rows)
        parts = [
            ("matrices", np.float64, int(np.square(sizes).sum())),
            ("matrix_at", np.int64, n_rows),
            ("first_slot", np.int64, n_rows + 1),
            ("best", np.uint64, n_slots),
            ("smallest", np.uint64, n_slots if pmax else 0),
            ("sizes", np.int32, n_rows),
            ("own", np.int32, n_rows),
            ("neighbours", np.int32, n_slots),
            ("mirrors", np.int32, n_slots),
        ]
        host, device, offset = {}, {}, 0
        for name, dtype, count in parts:
            host[name], device[name] = lane.buffers["arena"].pair((count,), dtype, offset)
            offset += np.dtype(dtype).itemsize * count
        with lane.extracting():
            slots = _ranges(graph.starts[rows], counts)
            place = np.full(self.p, -1, np.int64)  # of a row's first slot in this batch
            place[rows] = first_slot[:-1]
            reverse = graph.reverse[slots]
            near = graph.neighbours[slots]
            mirrors = place[near] + reverse - graph.starts[near]
            host["mirrors"][:] = np.where(place[near] >= 0, mirrors, np.arange(n_slots))
            host["best"][:] = np.minimum(best[slots], best[reverse])  # what the other end's row may have found
            host["smallest"][:] = NO_KEY
            host["first_slot"][:] = first_slot
            local = np.empty(self.p, np.int32)
            at = row = slot = 0
            for group in batch:
                size = len(group.members)
                local[group.members] = np.arange(size)
                self._gather(group.members, host["matrices"][at : at + size * size].reshape(size, size))
                these = slice(row, row + len(group.rows))
                host["matrix_at"][these], host["sizes"][these] = at, size
                host["own"][these] = local[group.rows]
                host["neighbours"][slot : slot + group.slots] = local[near[slot : slot + group.slots]]
                at, row, slot = at + size * size, these.stop, slot + group.slots
            mapped.release(self.problem.correlation)
        whole = lane.buffers["arena"].pair((offset,), np.uint8)
        lane.upload(whole[::-1])
        row_bytes = 4 * int(counts.max())
        use_shared = row_bytes <= self.backend.max_shared_bytes
        lane.launch(
            self.backend.kernel(GATHERED_SOURCE, f"gathered<{level}>"),
            (n_rows, self.params["delta"]),
            (self.params["theta"],),
            [
                *(device[name] for name in ("matrices", "matrix_at", "sizes", "own", "first_slot")),
                *(device[name] for name in ("neighbours", "mirrors")),
                binomials,
                np.int32(max_degree),
                np.float64(self.problem.critical_r_squared(level)),
                device["best"],
                device["smallest"] if pmax else None,
                np.int32(self.run.separating_sets == "first-come"),
                self.counters,
                np.int32(use_shared),
            ],
            row_bytes if use_shared else 0,
        )
        lane.download(*((host[name], device[name]) for name in ("best", "smallest")[: 1 + pmax]))

        def merge() -> None:
            best[slots] = np.minimum(best[slots], host["best"])
            if pmax:
                smallest[slots] = host["smallest"]

        lane.merge_with(merge)

    def _split_row(
        self,
        level: int,
        graph: _gather.Graph,
        i: int,
        arena: int,
        binomials: Any,
        max_degree: int,
        best: np.ndarray,
        smallest: np.ndarray,
    ) -> None:
        """The tests of one row whose neighbours do not fit at once, by blocks of neighbours."""
        near = graph.row(i)
        n = len(near)
        slots = slice(int(graph.starts[i]), int(graph.starts[i + 1]))
        before = int(np.searchsorted(near, i))
        piece = _plan.longest_piece(level, arena, n)
        if not piece:
            needed = self.backend.memory_used - 2 * arena + 2 * _plan.rounded(_plan.split_bytes(level, 1))
            raise DeviceMemoryError(needed, self.backend.memory_used, self.backend.memory_limit)
        keys = self.backend.upload(np.minimum(best[slots], best[graph.reverse[slots]]))
        least = self.backend.upload(smallest[slots]) if self._pmax is not None else None
        self.backend.synchronize()
        kernel = self.backend.kernel(SPLIT_SOURCE, f"split_row<{level}>")
        positions = [np.arange(start, min(start + piece, n)) for start in range(0, n, piece)]
        for chosen in _compositions([len(block) for block in positions], level):
            for other in range(len(positions)):
                present = sorted({*chosen, other})
                lane = self.lanes.next(level)
                members = np.concatenate([positions[block] for block in present])
                base = dict(
                    zip(present, itertools.accumulate((len(positions[b]) for b in present), initial=0), strict=False)
                )
                own = int(np.searchsorted(members, before))
                size = len(members) + 1
                matrix, device_matrix = lane.buffers["arena"].pair((size, size), np.float64)
                pieces, device_pieces = lane.buffers["arena"].pair((4 * len(chosen) + 4,), np.int32, matrix.nbytes)
                with lane.extracting():
                    self._gather(np.insert(near[members], own, i), matrix)
                    described = [(b, chosen[b]) for b in sorted(chosen)] + [(other, 0)]
                    pieces[:] = [
                        number
                        for b, count in described
                        for number in (int(positions[b][0]), len(positions[b]), base[b], count)
                    ]
                    mapped.release(self.problem.correlation)
                lane.upload((device_matrix, matrix), (device_pieces, pieces))
                sets = math.prod(math.comb(len(positions[b]), count) for b, count in chosen.items())
                lane.launch(
                    kernel,
                    (min(SPLIT_BLOCKS, -(-sets // SPLIT_THREADS)),),
                    (SPLIT_THREADS,),
                    [
                        device_matrix,
                        *map(np.int32, (size, own, before, n)),
                        device_pieces,
                        np.int32(len(chosen)),
                        binomials,
                        np.int32(max_degree),
                        np.float64(self.problem.critical_r_squared(level)),
                        keys,
                        least,
                        np.int32(self.run.separating_sets == "first-come"),
                        self.counters,
                    ],
                )
        self.lanes.finish()
        best[slots] = self.backend.download(keys)
        if least is not None:
            smallest[slots] = self.backend.download(least)

    def _collect(self, level: int, graph: _gather.Graph, best: np.ndarray, smallest: np.ndarray) -> list:
        """The separated pairs and their sets, from the best keys of all slots."""
        i = np.repeat(np.arange(self.p, dtype=np.int32), graph.degrees)
        once = i < graph.neighbours
        if self._pmax is not None:
            pairs = i[once], graph.neighbours[once]
            self._record_p_values(level, *pairs, np.minimum(smallest, smallest[graph.reverse])[once])
        best = np.minimum(best, best[graph.reverse])
        found = np.flatnonzero(once & (best != NO_KEY))
        keys, pairs = best[found], np.stack([i[found], graph.neighbours[found]], axis=1)
        owners = np.where(keys & SECOND_SIDE, pairs[:, 1], pairs[:, 0])
        ranks = keys & ~SECOND_SIDE
        sets = unrank(ranks, graph.degrees[owners], level)
        return [(pairs, graph.neighbours[graph.starts[owners][:, None] + sets].astype(np.int32))]


def unrank(ranks: np.ndarray, sizes: np.ndarray, level: int) -> np.ndarray:
    """(k, level) int64: the combinations of these ranks out of sizes (combinations.cuh, on the host)."""
    positions = np.empty((len(ranks), level), np.int64)
    if not len(ranks):
        return positions
    table = binomial_table(int(sizes.max()), level)
    following = table[level, sizes] - np.uint64(1) - ranks
    for c in range(level):
        row = table[level - c]
        m = np.searchsorted(row, following, side="right") - 1  # the largest m with C(m, k) <= following
        following = following - row[m]
        positions[:, c] = sizes - 1 - m
    return positions


def _compositions(lengths: list[int], level: int) -> Iterator[dict[int, int]]:
    """How many members of a set come from each block, in every way that the blocks' lengths allow."""
    for chosen in itertools.combinations_with_replacement(range(len(lengths)), level):
        counts = {block: len(list(run)) for block, run in itertools.groupby(chosen)}
        if all(count <= lengths[block] for block, count in counts.items()):
            yield counts


def _upper_blocks(p: int, side: int) -> Iterator[tuple[slice, slice]]:
    """The blocks (I, J), J >= I, of a p x p matrix."""
    for rows in mapped.pieces(p, side):
        for columns in _pieces(slice(rows.start, p), side):
            yield rows, columns


def _pieces(whole: slice, size: int) -> Iterator[slice]:
    for part in mapped.pieces(_length(whole), size):
        yield slice(whole.start + part.start, whole.start + part.stop)


def _length(part: slice) -> int:
    return part.stop - part.start


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The concatenation of ``arange(start, start + count)``."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1])) + np.repeat(starts - ends + counts, counts)
