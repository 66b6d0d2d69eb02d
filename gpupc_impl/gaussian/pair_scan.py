"""pair-scan: what one would build today; not from a paper (docs/design/gaussian.md).

A pair is tested from both its ends at once, in one ascending scan over the third variable (level 1; in tiles of pairs
where nearly all of them last), or over the last member of a set whose other members are worked into the covariances
once (levels from 2 on). The graph is a matrix of bits, and separating sets stay on the device until the search ends.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource, Pointer, Struct
from gpupc_impl.backends.arguments import Filled
from gpupc_impl.core.pc_stable import MAX_SETS, LevelOutcome, LevelSearch, pc_stable, stop_reason
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine import bit_graph, separating_sets
from gpupc_impl.engine.bit_graph import GRAPHS, MOST_LEVELS, BitGraphs, Counted
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY, binomial_table
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.gaussian import correlation, pair_block
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up

PAIR_SOURCE = "gaussian/kernels/pair_scan.cu"
PREFIX_SOURCE = "gaussian/kernels/prefix_scan.cu"
MOST_SCRATCH_BYTES = 1 << 29
"""Device memory for what warps know of their prefixes, where rows are too long for shared memory."""

LEVELS_AHEAD = 6
"""Levels for which a table of binomials is made in advance."""

TOGETHER = ((1, 5), (6, 8), (9, 11))
"""First and last level of kernels that run several in one launch: as many as compile in about 10 s. The tests of level
1 have a kernel of their own, which has more warps at once."""

MOST_EDGES_TOGETHER = 1 << 18
"""Edges up to which levels run together unless asked: with more, work takes far longer than launches."""

MOST_TESTS_TOGETHER = 1 << 24
"""Tests of the level before up to which levels run together unless asked: with more, kernels of single levels, which
have more registers, gain more than launches take."""

EDGES_A_BLOCK = 32
"""Edges for each block of levels that run together, from a block a multiprocessor on: blocks wait for each other."""

AHEAD_SHARE = 4
"""Of the device memory that is left, the part (1 / this) that arrays for all that there could be may take."""

ROWS_A_BLOCK = 2
"""Variables for each of these blocks where the edges are not known yet."""

BUSY_TESTS = 1 << 20
"""Tests of the level before from which there are as many blocks as run at once."""

LONGEST_AHEAD = 256
"""Neighbours of a variable up to which levels that are queued before level 0 has run go on from level 2."""

LEAST_SHARED_BYTES = 40 << 10
"""Shared memory of a block of levels that run together: later levels have shorter rows, and more to know of each."""

SLACK_BYTES = 16 * 512
"""What a device's allocator may round up."""

TILED_FROM = 4096
"""Variables from which it pays to find out whether level 1 is to be made in tiles; with fewer, nothing need be known of
level 0 to go on."""

PROBED = 4096
"""Pairs that this is found out with."""

GRAPHS_AT_ONCE = 3
"""kernels/prefix_scan.cu: the same."""

MOST_BLOCKS = 1 << 20
"""Blocks of a launch, rows without work among them."""

SEARCH = Struct(
    "PairScan",
    graphs=GRAPHS,
    C=Pointer(np.float64),
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
    has_twin=Pointer(np.uint8),
    members=Pointer(np.int32),
    smallest_r_squared=Pointer(np.uint64),
    starts=Pointer(np.int64),
    neighbours=Pointer(np.int32),
    best=Pointer(np.uint64),
    run_starts=Pointer(np.uint64),
    binomials=Pointer(np.uint64),
    widest=np.int32,
    scratch=Pointer(np.float64),
    required=Pointer(np.uint32),
    forbidden=Pointer(np.uint32),
)

RESULT = Struct(
    "ScanResult",
    entries=Pointer(np.uint8),
    pairs=Pointer(np.int32),
    offsets=Pointer(np.int64),
    sizes=Pointer(np.uint8),
    members=Pointer(np.int32),
)

NO_RESULT = dict.fromkeys(RESULT.fields)

PARAMETERS = {
    "warps": Parameter(4, "warps a block", minimum=1, maximum=4),
    "splits": Parameter(0, "blocks a row in level 1; 0: by the size of the graph", minimum=0, maximum=4096),
    "tiles": Parameter(
        "auto",
        "whether level 1 tests all pairs of a tile at once, and goes on for all of them; always: but for p-values and "
        "background knowledge; auto: on a GPU, where edges are many and scans of them one by one go on for long",
        choices=("auto", "always", "never"),
    ),
    "run": Parameter(0, "prefixes that a warp takes one after the other; 0: by the level", minimum=0, maximum=4096),
    "together": Parameter(
        "auto",
        "whether levels run in one launch, as far as they can, the first of them before level 0 is known; auto: on a "
        "GPU, in small problems",
        choices=("auto", "always", "never"),
    ),
}


@method(
    "pair-scan",
    family="gaussian",
    source="ours: docs/design/gaussian.md",
    summary="a warp a pair or a prefix of sets, 32 last members at a time, both sides in one scan",
    params=PARAMETERS,
)
def pair_scan(problem: GaussianProblem, run: Run) -> Skeleton:
    return pc_stable(problem, PairScan(problem, run), facts=dict(run.facts), progress=run.progress)


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of this method, levels 0 to `max_level`."""
    flags, levels = ("false", "true"), range(2, max_level + 1)
    first = ["pair_scan_zero", *(f"pair_scan_one<{flag}>" for flag in flags), "list_removed_one"]
    first += ["probe_pairs", "keep_unseparated"]
    later = [f"{name}<{level}>" for level in levels for name in ("begin_level", "list_removed")]
    later += [f"prefix_scan<{level}, {one}, {other}>" for level in levels for one in flags for other in flags]
    together = [_later_levels(first, last) for first, last in TOGETHER if first <= max_level]
    found = [
        (PAIR_SOURCE, first, (SEARCH,)),
        (PREFIX_SOURCE, later, (SEARCH,)),
        (PREFIX_SOURCE, together, (SEARCH, RESULT)),
        (bit_graph.SOURCE, bit_graph.KERNELS, (GRAPHS,)),
        (separating_sets.SOURCE, separating_sets.KERNELS, (separating_sets.LISTS,)),
        (correlation.SOURCE, correlation.KERNELS, ()),
    ]
    kernels = [KernelSource(source, name, structs) for source, names, structs in found for name in names]
    return [*kernels, *pair_block.TILES.values()]


class PairScan(LevelSearch):
    """One search on one backend; a `LevelSearch` (core/pc_stable.py).

    Args:
        ahead: whether levels may be queued before level 0 has run, which takes memory for all that there could be.
    """

    def __init__(self, problem: GaussianProblem, run: Run, ahead: bool = True):
        self.problem, self.params = problem, run.params
        backend = self.backend = run.backend
        p = self.p = problem.n_variables
        on_device = correlation.device_correlation(backend, problem)  # on its way while the rest is made ready
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self._ahead = self._kernel_ahead() if ahead else None
        memory = backend.empty_all(
            **BitGraphs.arrays(p, GRAPHS_AT_ONCE),
            has_twin=(p, np.uint8),
            found=((p, p), np.int32),
            **({} if self._ahead is None else _arrays_ahead(p)),
        )
        self.graphs = BitGraphs(backend, p, GRAPHS_AT_ONCE, memory)
        self.graph: int | None = None  # the present one
        self.levels_ahead = 0  # for which there are rows and a table of binomials
        self.removed: list[LevelSets] = []
        self._known: dict[int, LevelOutcome] = {}  # of levels that ran together with one before
        self._memory = memory
        self._has_result = False  # in this memory, of the present graph
        self._tests = 0  # of the level that was read last
        self.fields: dict[str, Any] = {
            "graphs": self.graphs.struct,
            "C": on_device,
            "residual_tolerance": problem.residual_tolerance,
            "pivot_tolerance": problem.pivot_tolerance,
            "has_twin": memory["has_twin"],
            "members": memory["found"],
            "smallest_r_squared": None if self._pmax is None else backend.empty((p, p), np.uint64),
            **{name: memory.get(name) for name in ("starts", "neighbours", "best", "run_starts")},
            **dict.fromkeys(("binomials", "scratch")),
            "widest": 0,
            **self._fixed_graphs(),
        }
        if self._ahead is not None:
            self.levels_ahead = TOGETHER[-1][1]
            self._upload_tables(min(p, LONGEST_AHEAD))
        self.search = SEARCH(**self.fields)

    def _fixed_graphs(self) -> dict[str, Any]:
        """The graphs of required and of forbidden edges, where there are any."""
        fixed = self.problem.fixed
        if fixed is None:
            return {"required": None, "forbidden": None}
        graphs = {"required": fixed.required, "forbidden": fixed.forbidden}
        return {name: self.backend.upload(bit_graph.pack_pairs(pairs, self.p)) for name, pairs in graphs.items()}

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            return self._level_zero() if self._ahead is None else self._levels_ahead(*self._ahead)
        if level in self._known:
            return self._known.pop(level)
        if level >= MOST_LEVELS:
            raise InvalidProblem(f"pair-scan counts to level {MOST_LEVELS - 1}; set max_level to that, or take cupc-s")
        if math.comb(self.graphs.most_degree, level) >= MAX_SETS:  # of a variable whose edges are all required
            raise InvalidProblem(
                f"pair-scan cannot number the sets of level {level} of a variable with {self.graphs.most_degree} "
                f"required edges; set max_level to {level - 1}, or take cupc-s"
            )
        if level > 1 and (together := self._kernel_together(level)) is not None:
            return self._levels_together(level, *together)
        self._has_result = False
        backend, before, edges_before = self.backend, self.graph, self.graphs.edges
        smallest = self.fields["smallest_r_squared"]
        if smallest is not None:
            backend.fill(smallest, NO_KEY)
        self.graph = (before + 1) % GRAPHS_AT_ONCE
        if level == 1:
            self._level_one(before, self.graph)
        else:
            self._level(level, before, self.graph, (before + 2) % GRAPHS_AT_ONCE)
        self.graphs.count(before, self.graph, level)
        tests, undefined, pseudo_inverses, *_ = self.graphs.read(level)
        self._tests = tests
        if gone := edges_before - self.graphs.edges:
            found = LevelSets(**backend.empty_all(pairs=((gone, 2), np.int32), members=((gone, level), np.int32)))
            kernel = (PAIR_SOURCE, "list_removed_one") if level == 1 else (PREFIX_SOURCE, f"list_removed<{level}>")
            graphs = np.int32(before), np.int32(self.graph)
            self.graphs.launch(*kernel, self.search, *graphs, found.pairs, found.members)
            self.removed.append(found)
        if smallest is not None:
            self._record_pmax(level, smallest, removed=gone > 0)
        left = self.graphs.edges, self.graphs.most_tested_degree(self.problem.fixed)
        return LevelOutcome(*left, tests, undefined=undefined, pseudo_inverses=pseudo_inverses)

    def adjacency(self) -> np.ndarray:
        return self._result[0]

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        return self._result[1]

    @functools.cached_property
    def _result(self) -> tuple[np.ndarray, SeparatingSets]:
        if self.graph is None:  # no level was run
            complete = ~np.eye(self.p, dtype=bool)
            return complete, SeparatingSets.from_levels(complete, [])
        entries = self._memory["entries"] if self._has_result else self.graphs.entries(self.graph)
        return download_result(self.backend, entries, self.removed)

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    # --- what a search that may go on elsewhere asks for, with ahead=False (out_of_core/_search.py) -----------------

    @staticmethod
    def first_bytes(p: int, max_level: int | None, pmax: bool) -> int:
        """The most device memory that a search takes up to level 1, its result included, whatever the graph."""
        of_graph = (8 + 4 + 8 * pmax + 1) * p * p + p + BitGraphs.device_bytes(p, GRAPHS_AT_ONCE)  # the result's p^2
        level_one = 0 if max_level == 0 else 8 * math.prod(COUNTER_SHAPE) + _list_bytes(1, p * (p - 1) // 2)
        return of_graph + level_one + SLACK_BYTES

    def level_bytes(self, level: int) -> int:
        """The most device memory that a level from 1 on takes beside what is in use at its start."""
        if level in self._known:
            return 0
        edges, longest = self.graphs.edges, self.graphs.most_degree
        together = (last for first, last in TOGETHER if level > 1 and first <= level <= last)
        last = next(together, level)
        needed = _list_bytes(last, edges) + SLACK_BYTES
        if level > 1:
            needed += 16 * (self.p + 1) + 24 * edges + 8 * (level + LEVELS_AHEAD + 1) * (longest + 32)
            if 8 * _cells(level, longest) > self.backend.max_shared_bytes:
                needed += max(MOST_SCRATCH_BYTES, 8 * self.params["warps"] * _cells(level, longest))
        return needed

    def adjacency_now(self) -> np.ndarray:
        """(p, p) bool: the edges left, in host memory; takes no device memory."""
        return self.graphs.download(self.graph)

    def removed_in(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """The (k, 2) pairs that a level from 1 on removed and their (k, level) sets, in host memory."""
        for found in self.removed:
            if found.members.shape[1] == level:
                return self.backend.download(found.pairs), self.backend.download(found.members)
        return np.empty((0, 2), np.int32), np.empty((0, level), np.int32)

    # --- levels ------------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        problem, self.graph = self.problem, 0
        self._test_pairs()
        self.graphs.read(0)
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        most = self.graphs.most_tested_degree(problem.fixed)
        return LevelOutcome(self.graphs.edges, most, tests=problem.tests_of_level_zero)

    def _test_pairs(self) -> None:
        """Make the tests of level 0."""
        critical = np.float64(self.problem.critical_r_squared(0))
        self.graphs.launch(PAIR_SOURCE, "pair_scan_zero", self.search, critical, np.int32(0), np.int32(1))

    def _level_one(self, start: int, left: int) -> None:
        """Make the tests of level 1; `left` has no edges since level 0."""
        if self._in_tiles(start):
            self._level_one_in_tiles(start, left)
        else:
            self._scan_pairs(start, left)
        _ = self._critical_later  # worked out while the device works

    def _scan_pairs(self, start: int, left: int) -> None:
        """Make the tests of level 1 pair by pair."""
        splits = self.params["splits"] or max(1, min(ceil_div(self.p, 128), MOST_BLOCKS // self.p, 8))
        kernel = self.backend.kernel(PAIR_SOURCE, f"pair_scan_one<{_flag(self._pmax is not None)}>", (SEARCH,))
        arguments = [self.search, self._critical_one, np.int32(start), np.int32(left)]
        kernel((self.p, splits), (self._threads,), arguments)

    @property
    def _critical_one(self) -> np.float64:
        return np.float64(self.problem.critical_r_squared(1))

    def _in_tiles(self, graph: int) -> bool:
        """Whether level 1 tests tiles of pairs: where they are asked for, or scans of some pairs go on for long."""
        wanted, backend, p = self.params["tiles"], self.backend, self.p
        if self._pmax is not None or self.problem.fixed is not None:  # tiles know of neither
            return False
        if wanted != "auto":
            return bool(wanted == "always")
        share = self.graphs.edges / max(1, p * (p - 1) // 2)
        if backend.name not in pair_block.TILED or p < TILED_FROM or share * pair_block.GAIN < 1:
            return False
        counts = backend.full(2, 0, np.uint64)
        numbers = np.int32(graph), np.int32(PROBED)
        self.graphs.launch(PAIR_SOURCE, "probe_pairs", self.search, self._critical_one, *numbers, counts)
        edges, tests = backend.download(counts).tolist()
        return bool(edges > 0 and share * tests * pair_block.GAIN >= p * edges)

    def _level_one_in_tiles(self, start: int, left: int) -> None:
        backend, p, words, problem = self.backend, self.p, self.graphs.words, self.problem
        members, counters = self.fields["members"], backend.full(COUNTER_SHAPE, 0, np.uint64)
        backend.fill(members, -1)  # NO_MEMBER
        block = pair_block.whole_matrix(
            self.fields["C"],
            self.graphs.bits(start),
            keys=members.view(np.uint32),
            min_r_squared=None,
            counters=counters,
            critical_r_squared=problem.critical_r_squared(1),
            residual_tolerance=problem.residual_tolerance,
            first_come=False,
        )
        kernel, grid, threads = pair_block.tile_launch(p, p, problem.residual_tolerance)
        backend.kernel(*kernel)(grid, threads, [block])
        graphs = np.int32(start), np.int32(left)
        backend.kernel(PAIR_SOURCE, "keep_unseparated", (SEARCH,))(
            (ceil_div(p, 32), max(1, min(words // 64, 16))), (self._threads,), [self.search, *graphs, counters]
        )

    def _level(self, level: int, start: int, left: int, middle: int) -> None:
        """Make the tests of a level from 2 on; `middle` is for the graph between its sides."""
        backend, longest = self.backend, self.graphs.most_degree
        run, cells = np.int32(self.params["run"]), _cells(level, longest)
        warps = min(self.params["warps"], backend.max_shared_bytes // (8 * cells))
        blocks, shared_bytes, scratch = backend.blocks_at_once, 8 * warps * cells, None
        if not warps:  # rows too long for shared memory
            warps = self.params["warps"]
            blocks = max(1, min(blocks, MOST_SCRATCH_BYTES // (8 * warps * cells)))
            scratch = backend.empty((blocks * warps, cells), np.float64)
        self._make_room(level, scratch)
        graphs = np.int32(start), np.int32(left), np.int32(middle)
        self.graphs.launch(PREFIX_SOURCE, f"begin_level<{level}>", self.search, *graphs, run)
        flags = ", ".join(map(_flag, (self._pmax is not None, scratch is None)))
        kernel = backend.kernel(PREFIX_SOURCE, f"prefix_scan<{level}, {flags}>", (SEARCH,))
        critical = np.float64(self.problem.critical_r_squared(level))
        for side in (0, 1):
            arguments = [self.search, critical, graphs[2], graphs[1], np.int32(side), run, np.int32(longest)]
            kernel((blocks,), (warps * backend.warp_threads,), arguments, shared_bytes)

    def _kernel_together(self, level: int) -> tuple[Any, int, int] | None:
        """What runs levels from this one on in one launch: kernel, its last level, shared memory of a block.

        None where levels take a few launches each.
        """
        if not self._is_asked():
            return None
        backend, edges = self.backend, self.graphs.edges
        few = edges <= MOST_EDGES_TOGETHER and self._tests_before(level) <= MOST_TESTS_TOGETHER
        levels = next(((first, last) for first, last in TOGETHER if first <= level <= last), None)
        of_warp = 8 * _cells(level, self.graphs.most_degree)
        warps = min(self.params["warps"], backend.max_shared_bytes // of_warp)
        if levels is None or not warps or self._alone or not (few or self.params["together"] == "always"):
            return None
        return self._launchable(levels, warps * of_warp)

    def _launchable(self, levels: tuple[int, int], shared_bytes: int) -> tuple[Any, int, int] | None:
        """The kernel of these levels, its last one, and what of shared memory a block has, about as much as is wanted;
        None where the device cannot have all blocks at once."""
        backend = self.backend
        shared_bytes = min(max(shared_bytes, LEAST_SHARED_BYTES), backend.max_shared_bytes)
        kernel = backend.kernel(PREFIX_SOURCE, _later_levels(*levels), (SEARCH, RESULT))
        return (kernel, levels[1], shared_bytes) if kernel.resident_blocks(self._threads, shared_bytes) else None

    @property
    def _alone(self) -> bool:
        """Whether the kernel of several levels does not know of what is asked for."""
        return self._pmax is not None or self.problem.fixed is not None

    def _is_asked(self) -> bool:
        """Whether levels are to run together, as far as they can."""
        wanted = self.params["together"]
        return wanted == "always" or (wanted == "auto" and self.backend.warp_threads > 1)

    def _kernel_ahead(self) -> tuple[Any, int, int] | None:
        """What runs the first levels without a look at what level 0 left: as `_kernel_together`; None: nothing does."""
        problem, backend, p = self.problem, self.backend, self.p
        if not self._is_asked() or p >= TILED_FROM or self.params["tiles"] == "always" or self._alone:
            return None
        if backend.device_memory_limit is not None:  # who has a budget may need it for later levels
            return None
        if any(stop_reason(problem, level, p - 1) is not None for level in (0, 1)):
            return None
        if AHEAD_SHARE * _bytes_ahead(p) > backend.memory_limit - backend.memory_used:
            return None
        return self._launchable(TOGETHER[0], 8 * self.params["warps"] * _cells(2, min(p, LONGEST_AHEAD)))

    def _levels_ahead(self, kernel: Any, most: int, shared_bytes: int) -> LevelOutcome:
        """Run levels from 0 to `most` as far as they run together, all queued before anything is read."""
        started, problem, self.graph = time.perf_counter(), self.problem, 0
        self._test_pairs()
        self._scan_pairs(0, 1)
        blocks, memory = max(self.backend.multiprocessors, self.p // ROWS_A_BLOCK), self._memory
        result = {name: memory[name] for name in RESULT.fields}
        lists = memory["level_pairs"], memory["level_sets"]
        before, *rows = self._run_together(1, kernel, most, shared_bytes, blocks, *lists, RESULT(**result))
        gone = [(a.degree_sum - b.degree_sum) // 2 for a, b in itertools.pairwise((before, *rows))]
        if any(gone):
            pairs, size = sum(gone), sum(level * count for level, count in enumerate(gone, 1))
            ends = {"pairs": pairs, "offsets": pairs + 1, "sizes": pairs, "members": size}
            self.removed.append(LevelSets(**{name: memory[name][:end] for name, end in ends.items()}))
        self._has_result = True
        if self.graphs.edges > len(self.fields["best"]) // 2 or self.graphs.most_degree > self.fields["widest"]:
            self.levels_ahead = 0  # no room for what is left
        return LevelOutcome(
            before.degree_sum // 2, before.most_degree, problem.tests_of_level_zero, seconds=self._rest_of(started)
        )

    def _rest_of(self, started: float) -> float:
        """The time since then, less that of levels that are known."""
        return time.perf_counter() - started - sum(known.seconds for known in self._known.values())

    def _tests_before(self, level: int) -> float:
        """Tests of the level before. Those of level 1 tell nothing of level 2; in their place stands a sixteenth of all
        that level 2 would make if variables had as many neighbours as on average and no edge went."""
        edges, degree = self.graphs.edges, 2 * self.graphs.edges / self.p
        return self._tests if level > 2 else edges * degree * degree / 16

    @property
    def _threads(self) -> int:
        """Of a block of levels that run together."""
        return self.params["warps"] * self.backend.warp_threads

    def _levels_together(self, first: int, kernel: Any, most: int, shared_bytes: int) -> LevelOutcome:
        """Run levels from `first` to `most` in one launch, as far as there is work and shared memory for their rows."""
        started = time.perf_counter()
        backend, edges = self.backend, self.graphs.edges
        self._make_room(most, None)
        lists = backend.empty_all(pairs=((edges, 2), np.int32), sets=(edges * most, np.int32))
        busy = self._tests_before(first) >= BUSY_TESTS
        blocks = kernel.resident_blocks(self._threads, shared_bytes) if busy else edges // EDGES_A_BLOCK
        blocks = max(backend.multiprocessors, blocks)
        rows = self._run_together(
            first, kernel, most, shared_bytes, blocks, lists["pairs"], lists["sets"], RESULT(**NO_RESULT)
        )
        pair = member = 0
        for level, (before, row) in enumerate(itertools.pairwise(rows), first):
            if gone := (before.degree_sum - row.degree_sum) // 2:
                found = lists["sets"][member : member + gone * level].reshape(gone, level)
                self.removed.append(LevelSets(lists["pairs"][pair : pair + gone], found))
                pair, member = pair + gone, member + gone * level
        self._has_result = False
        outcome = self._known.pop(first)  # which takes what the others leave of the time of this call
        return dataclasses.replace(outcome, seconds=self._rest_of(started))

    def _run_together(
        self, first: int, kernel: Any, most: int, shared_bytes: int, blocks: int, pairs: Any, sets: Any, result: Filled
    ) -> list[Counted]:
        """Launch levels from `first` to `most` and read what they did: from then on they are known.

        Args:
            blocks: as many as are wanted; fewer where not all could run at once.
            pairs, sets: room for the lists of removed pairs and of their sets.
            result: room for the result, where level 1 is the first.

        Returns:
            What the level before the first counted, and each that was run.
        """
        last = first  # that the problem allows (core/pc_stable.py, stop_reason); of degrees the kernel knows
        while last < most and stop_reason(self.problem, last + 1, last + 2) is None:
            last += 1
        blocks = min(kernel.resident_blocks(self._threads, shared_bytes), max(blocks, 1))
        most_tests = MOST_TESTS_TOGETHER if self.params["together"] == "auto" else math.inf
        numbers = [*map(np.int32, (self.graph, first, last, self.params["run"]))]
        limits = np.int64(shared_bytes), np.int64(len(self.fields["best"]) // 2), np.float64(most_tests)
        arguments = [self.search, self.critical, *numbers, *limits, pairs, sets, result]
        kernel((blocks,), (self._threads,), arguments, shared_bytes, cooperative=True)
        rows = self.graphs.read_together(first, last)
        for level, (before, row) in enumerate(itertools.pairwise(rows), first):
            self._known[level] = LevelOutcome(
                row.degree_sum // 2,
                row.most_degree,
                row.tests,
                undefined=row.undefined,
                pseudo_inverses=row.singular,
                seconds=(row.ended - before.ended) / 1e9,
            )
        self._tests = rows[-1].tests
        self.graph = (self.graph + len(self._known)) % GRAPHS_AT_ONCE
        return rows

    def _make_room(self, level: int, scratch: Any) -> None:
        """Rows for a level from 2 on, kept for those that follow, which have no more edges."""
        backend, graphs = self.backend, self.graphs
        if self.levels_ahead < level:
            self.levels_ahead = level + LEVELS_AHEAD
            self.fields |= {
                **backend.empty_all(
                    starts=(self.p + 1, np.int64),
                    run_starts=(self.p + 1, np.uint64),
                    neighbours=(2 * graphs.edges, np.int32),
                    best=(2 * graphs.edges, np.uint64),
                ),
            }
            self._upload_tables(graphs.most_degree)
        elif scratch is self.fields["scratch"]:
            return
        self.fields["scratch"] = scratch
        self.search = SEARCH(**self.fields)

    def _upload_tables(self, longest: int) -> None:
        """Binomials for rows of up to `longest` in the levels that follow, and critical values of those that may run
        together behind them."""
        table = _binomials(round_up(longest, 32), self.levels_ahead)
        device = self.backend.upload(np.concatenate((table.reshape(-1), self._critical_later.view(np.uint64))))
        self.fields |= {"binomials": device, "widest": table.shape[1] - 1}
        self.critical = device[table.size :].view(np.float64)

    @functools.cached_property
    def _critical_later(self) -> np.ndarray:
        """(levels,) float64: critical r^2 from level 2 on; 0 where there is none for want of degrees of freedom."""
        levels, problem = range(2, TOGETHER[-1][1] + 1), self.problem
        return np.array([0.0 if problem.obstacle(level) else problem.critical_r_squared(level) for level in levels])

    def _record_pmax(self, level: int, smallest: Any, removed: bool) -> None:
        """Largest p-values so far; a removed pair's is that of the set that separated it."""
        bits = self.backend.download(smallest)
        tested = np.triu(bits != NO_KEY)
        p_values = self.problem.p_value(np.where(tested, bits, 0).view(np.float64), level)
        self._pmax[tested] = np.fmax(self._pmax[tested], p_values[tested])
        if removed:
            pairs, sets = map(self.backend.download, (self.removed[-1].pairs, self.removed[-1].members))
            i, j = pairs.T
            self._pmax[i, j] = removed_p_values(self.problem, pairs, sets)
        lower = np.tril_indices(self.p, -1)
        self._pmax[lower] = self._pmax.T[lower]


@functools.lru_cache(maxsize=16)
def _binomials(widest: int, levels: int) -> np.ndarray:
    """`binomial_table`, to be read only: searches of like problems need the same ones."""
    table = binomial_table(widest, levels)
    table.setflags(write=False)
    return table


def _arrays_ahead(p: int) -> dict[str, tuple[Any, Any]]:
    """What levels that are queued before level 0 has run need on a device, as `BitGraphs.arrays`: rows and lists for as
    many edges as they go on with from level 2, lists for all that level 1 may remove, and the result."""
    pairs = p * (p - 1) // 2
    edges = min(pairs, MOST_EDGES_TOGETHER)
    members = pairs + (TOGETHER[0][1] - 1) * edges
    return {
        "starts": (p + 1, np.int64),
        "run_starts": (p + 1, np.uint64),
        "neighbours": (2 * edges, np.int32),
        "best": (2 * edges, np.uint64),
        "level_pairs": ((pairs, 2), np.int32),
        "level_sets": (members, np.int32),
        "entries": ((p, p), np.uint8),
        "pairs": ((pairs, 2), np.int32),
        "offsets": (pairs + 1, np.int64),
        "sizes": (pairs, np.uint8),
        "members": (members, np.int32),
    }


def _bytes_ahead(p: int) -> int:
    """About what they take."""
    return 18 * p * p + 16 * p + 56 * min(p * p // 2, MOST_EDGES_TOGETHER)


def _list_bytes(level: int, edges: int) -> int:
    """For a list of so many removed pairs with their sets."""
    return (8 + 4 * level) * edges


def _cells(level: int, longest: int) -> int:
    """float64 for what a warp knows of a prefix in rows of up to `longest` (kernels/prefix_scan.cu, cells_of_warp)."""
    return (3 * level - 1) * longest + ceil_div(longest, 2)


def _later_levels(first: int, last: int) -> str:
    return f"later_levels<{first}, {last}>"


def _flag(holds: bool) -> str:
    return "true" if holds else "false"
