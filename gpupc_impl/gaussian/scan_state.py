"""The declarations of the kernels of pair-scan, the state of a search on the device, and levels 0 and 1. Level 1 tests
single pairs, or tiles of pairs where nearly all pairs remain."""

import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource, Pointer, Struct
from gpupc_impl.core.registry import Run
from gpupc_impl.engine import bit_graph, graph
from gpupc_impl.engine.bit_graph import GRAPHS, BitGraphs
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up

FUSED = ((1, 5), (6, 8), (9, 11))  # first and last level of each kernel of fused levels, which compiles in 10 s
LEVELS_PREPARED = 6  # number of levels after the present one for which the table of binomials is computed in advance
GRAPHS_AT_ONCE = 3  # that a search keeps: one before a level, one after it, and one between the two sides
CONSTANTS = {**bit_graph.CONSTANTS, "MOST_SETS": graph.CONSTANTS["MOST_SETS"]}  # of prefix_scan.cu

LAUNCH: dict[str, Any] = {"tiles": "auto", "fused_levels": "auto"}
"""How kernels are launched, on which the answer does not depend: whether level 1 tests all pairs of a tile at once
until the last of them is separated, and whether one launch runs as many levels as it can. Tests set "always" or
"never"; "auto" is in graphs for which that is faster, tiles on a GPU alone."""

WARPS = 4  # the number of warps in a block whose warps scan pairs or prefixes
SEARCH = Struct(  # kernels/pair_scan.cuh declares this struct.
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


PROBED = 4096  # the number of pairs in the sample whose scans show whether scans are long
MOST_BLOCKS = 1 << 20  # the upper bound on the thread blocks of a launch, which includes blocks that have no tests

LEVEL_ONE_KERNELS = {
    name: KernelSource(
        "gaussian/kernels/pair_scan.cu", name, (SEARCH,), {**bit_graph.CONSTANTS, **graph.TALLY_CONSTANTS}
    )
    for name in (
        *("pair_scan_zero", "pair_scan_one<false>", "pair_scan_one<true>"),
        *("list_removed_one", "probe_pairs", "keep_unseparated"),
    )
}


def scan_arrays(p: int) -> dict[str, tuple[Any, Any]]:
    """Return the arrays of every search besides the correlations, as `Backend.empty_all` takes them."""
    own = {"has_twin": (p, np.uint8), "member_of_pair": ((p, p), np.int32)}
    return {**BitGraphs.arrays(p, GRAPHS_AT_ONCE), **own}


class ScanState:
    """The graphs and device arrays of one search (`memory`, by name); `more_arrays` are allocated with the graphs."""

    def __init__(self, problem: GaussianProblem, run: Run, correlation: Any, more_arrays: dict[str, tuple[Any, Any]]):
        self.problem, self.pmax = problem, run.pmax
        backend = self.backend = run.backend
        p = self.p = problem.n_variables
        memory = self.memory = backend.empty_all(**scan_arrays(p), **more_arrays)
        self.graphs = BitGraphs(backend, p, GRAPHS_AT_ONCE, memory)
        self.graph: int | None = None  # the number of the present graph, None before level 0
        self.critical: Any = None  # (levels,) float64 on the device: the critical r^2 from level 2 on, if fused
        self.levels_prepared = 0  # the last level for which the allocated rows and the table of binomials suffice
        self.removed: list[LevelSets] = []  # the pairs that each level removed, with their separating sets
        self.tests = 0  # those of the level whose counters were read last
        self.entries: Any = None  # the adjacency matrix of the present graph on the device, if a launch has written it
        self.fields: dict[str, Any] = {  # the values of `search`, the struct that kernels take
            **dict.fromkeys(SEARCH.fields),
            **{name: memory.get(name) for name in ("starts", "neighbours", "best", "run_starts")},
            **self._fixed_graphs(),
            "graphs": self.graphs.struct,
            "C": correlation,
            "residual_tolerance": problem.residual_tolerance,
            "pivot_tolerance": problem.pivot_tolerance,
            "has_twin": memory["has_twin"],
            "members": memory["member_of_pair"],
            "smallest_r_squared": backend.empty((p, p), np.uint64) if run.pmax else None,
            "widest": 0,
        }
        self.search = SEARCH(**self.fields)

    def _set(self, **fields: Any) -> None:
        self.fields |= fields
        self.search = SEARCH(**self.fields)

    def _fixed_graphs(self) -> dict[str, Any]:
        """Return the graphs of required and of forbidden edges on the device; none without background knowledge."""
        fixed = self.problem.fixed
        if fixed is None:
            return {}
        graphs = {"required": fixed.required, "forbidden": fixed.forbidden}
        return {name: self.backend.upload(bit_graph.pack_pairs(pairs, self.p)) for name, pairs in graphs.items()}

    def restart(self, problem: GaussianProblem, edges: np.ndarray) -> None:
        """Go on with the edges of a (p, p) bool matrix as graph 0, and with the problem's fixed edges. As after level
        0, graph 1 has the required edges alone."""
        self.problem, self.removed, self.entries, self.graph = problem, [], None, 0
        assert problem.fixed is not None
        self.graphs.replace(bit_graph.pack_rows(edges), bit_graph.pack_pairs(problem.fixed.required, self.p))
        self._set(**self._fixed_graphs(), graphs=self.graphs.struct)
        self.levels_prepared = 0  # The graph may have longer rows than the graph before.
        self.graphs.reset_counters()
        self.graphs.count(0, 0, 0)
        self.graphs.read(0)

    @property
    def threads(self) -> int:
        return WARPS * self.backend.warp_threads

    def prepare_rows(self, level: int, scratch: Any) -> None:
        """Allocate the rows and upload the tables for a level from 2 on and for some later levels, unless they suffice;
        `scratch` is device memory for the cells of warps, if these do not fit in shared memory."""
        if self.levels_prepared < level:
            edges = self.graphs.edges
            self.levels_prepared = level + LEVELS_PREPARED
            self.fields |= self.backend.empty_all(
                starts=(self.p + 1, np.int64),
                run_starts=(self.p + 1, np.uint64),
                neighbours=(2 * edges, np.int32),
                best=(2 * edges, np.uint64),
            )
            self.upload_tables(self.graphs.most_degree)
        if scratch is not self.fields["scratch"]:
            self._set(scratch=scratch)

    def upload_tables(self, longest: int) -> None:
        """Upload binomials for rows of up to `longest` neighbours and levels up to `levels_prepared`, followed by the
        critical values of the levels that may be fused."""
        table = graph.binomial_table(round_up(longest, 32), self.levels_prepared)
        device = self.backend.upload(np.concatenate((table.reshape(-1), self.critical_later.view(np.uint64))))
        self.critical = device[table.size :].view(np.float64)
        self._set(binomials=device, widest=table.shape[1] - 1)

    @functools.cached_property
    def critical_later(self) -> np.ndarray:
        """The critical r^2 from level 2 on, (levels,) float64; 0 for a level without degrees of freedom."""
        levels, problem = range(2, FUSED[-1][1] + 1), self.problem
        return np.array([0.0 if problem.obstacle(level) else problem.critical_r_squared(level) for level in levels])

    def tests_before(self, level: int) -> float:
        """Return a forecast of the tests of a level from 2 on: those of the level before, or at level 2 a sixteenth of
        those that it would make if all variables had the mean degree (kernels/fused_levels.cu, tests_expected)."""
        edges, degree = self.graphs.edges, 2 * self.graphs.edges / self.p
        return self.tests if level > 2 else edges * degree * degree / 16

    def run_level_zero(self) -> None:
        """Queue the tests of level 0, which make graph 0 and leave graph 1 without edges."""
        critical = np.float64(self.problem.critical_r_squared(0))
        self.graph = 0
        self.graphs.launch(LEVEL_ONE_KERNELS["pair_scan_zero"], self.search, critical, np.int32(0), np.int32(1))

    def run_level_one(self, start: int, left: int) -> None:
        """Queue the tests of level 1, which add the remaining edges to graph `left`, which has the required ones."""
        if self._in_tiles(start):
            self._run_in_tiles(start, left)
        else:
            self.scan_pairs(start, left)
        _ = self.critical_later  # The host computes and caches these values while the device is busy.

    def scan_pairs(self, start: int, left: int) -> None:
        splits = max(1, min(ceil_div(self.p, 128), MOST_BLOCKS // self.p, 8))  # the blocks of a row
        kernel = self.backend.kernel(*LEVEL_ONE_KERNELS[f"pair_scan_one<{'true' if self.pmax else 'false'}>"])
        critical = np.float64(self.problem.critical_r_squared(1))
        kernel((self.p, splits), (self.threads,), [self.search, critical, np.int32(start), np.int32(left)])

    def list_removed_one(self, before: int, after: int, pairs: np.ndarray, sets: np.ndarray) -> None:
        numbers = np.int32(before), np.int32(after)
        self.graphs.launch(LEVEL_ONE_KERNELS["list_removed_one"], self.search, *numbers, pairs, sets)

    def _in_tiles(self, start: int) -> bool:
        """Return whether tiles are requested, or the scans of a sample of pairs are long."""
        requested, backend, p = LAUNCH["tiles"], self.backend, self.p
        if self.pmax or self.problem.fixed is not None:  # Tiles support neither p-values nor fixed edges.
            return False
        if requested != "auto":
            return bool(requested == "always")
        share = self.graphs.edges / max(1, p * (p - 1) // 2)
        if backend.name not in pair_block.TILED or p < pair_block.TILED_FROM or share * pair_block.GAIN < 1:
            return False
        counts, critical = backend.full(2, 0, np.uint64), np.float64(self.problem.critical_r_squared(1))
        numbers = np.int32(start), np.int32(PROBED)
        self.graphs.launch(LEVEL_ONE_KERNELS["probe_pairs"], self.search, critical, *numbers, counts)
        edges, tests = backend.download(counts).tolist()
        return bool(edges > 0 and share * tests * pair_block.GAIN >= p * edges)

    def _run_in_tiles(self, start: int, left: int) -> None:
        backend, p, problem = self.backend, self.p, self.problem
        members, counters = self.fields["members"], backend.full(graph.COUNTER_SHAPE, 0, np.uint64)
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
        numbers = np.int32(start), np.int32(left)
        self.graphs.launch(LEVEL_ONE_KERNELS["keep_unseparated"], self.search, *numbers, counters)


def cells(level: int, longest: int) -> int:
    """Return a warp's float64 for a prefix and partners, in rows of up to `longest` (side_scan.cuh, cells_of_warp)."""
    return (3 * level - 1) * longest + ceil_div(longest, 2)
