"""The graph of a search on a device from level to level: compaction, removal of edges, lists of separating sets.
Methods share it whose kernels store the best key of each separated edge (cuPC, Algorithm 2 and section 3.3)."""

import dataclasses
import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import MAX_SETS, LevelOutcome
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.integers import ceil_div

SOURCE = "engine/kernels/graph.cu"
ROW_THREADS = 128  # in a block that processes one row
NO_KEY = np.uint64(2**64 - 1)  # the key of an edge that no set has separated
REQUIRED_KEY = np.uint64(0)  # the smallest key, so that a required edge counts as separated already and is never tested
REMOVED_KEY = np.uint64(0)  # the key of the empty set, for a pair that is removed at level 0
CONSTANTS = {"ROW_THREADS": ROW_THREADS, "REQUIRED_KEY": int(REQUIRED_KEY), "MOST_SETS": MAX_SETS}  # of graph.cu
TALLY_CONSTANTS = {"COUNTER_STRIPES": 64, "COUNTER_STRIDE": 8}  # of kernels/tally.cuh: the layout of counters
COUNTER_SHAPE = tuple(TALLY_CONSTANTS.values())
TALLIES = 3  # counters in each stripe; in the first, the sum and the maximum of the degrees follow them
LEVELS_AHEAD = 7  # the number of levels after the present one for which the table of binomials suffices

# The structs of combinations.cuh, rows.cuh and keys.cuh.
BINOMIALS = Struct("Binomials", table=Pointer(np.uint64), max_n=np.int32)
ROWS = Struct(
    "Rows", neighbours=Pointer(np.int32), degrees=Pointer(np.int32), binomial=BINOMIALS, p=np.int32, stride=np.int32
)
BEST_KEYS = Struct("BestKeys", keys=Pointer(np.uint64), p=np.int32, first_come=np.bool_)

KERNELS = {
    name: KernelSource(SOURCE, name, structs, CONSTANTS)
    for name, structs in {
        "count_degrees": (),
        "compact": (),
        "remove_separated": (ROWS,),
        "list_separated": (ROWS,),
        "mark_pairs<unsigned char>": (),
        "mark_pairs<unsigned long long>": (),
    }.items()
}
CPP_TYPES = {np.uint8: "unsigned char", np.uint64: "unsigned long long"}


@dataclasses.dataclass(frozen=True)
class Rows:
    """A'_G, the compacted graph at the start of a level (cuPC, section 3.3), on the device."""

    p: int
    level: int
    max_degree: int  # the largest number of neighbours, which is the length of a row
    neighbours: Any  # (p, max_degree) int32; row i begins with the neighbours of Vi, ascending
    degrees: Any  # (p,) int32: the number of neighbours of each variable
    binomials: Any  # the `binomial_table`
    widest: int  # the length of the longest row for which the table suffices

    @functools.cached_property
    def argument(self) -> Filled:
        """The `ROWS` that kernels take."""
        return ROWS(
            neighbours=self.neighbours,
            degrees=self.degrees,
            binomial=BINOMIALS(table=self.binomials, max_n=self.widest),
            p=self.p,
            stride=self.max_degree,
        )


class DeviceGraph:
    """The edges of a graph of p variables, and the best key found for each edge (keys.cuh). A table of binomials is
    made for `levels_ahead` later levels; with 0, it takes the least device memory. `degrees`, (p,) int32 on the device,
    and `edges_left` are as of the last count; the degree of a variable with required edges alone is 0."""

    def __init__(self, backend: Backend, p: int, fixed: FixedPairs | None = None, levels_ahead: int = LEVELS_AHEAD):
        self.backend, self.p, self.fixed, self._levels_ahead = backend, p, fixed, levels_ahead
        self.edges = backend.empty((p, p), np.uint8)  # undefined until level 0 has run
        self.best = backend.full((p, p), NO_KEY, np.uint64)  # both triangles hold the same keys
        numbers = backend.empty_all(**dict.fromkeys(("degrees", "degrees_after", "removed"), (p, np.int32)))
        self.degrees, self._degrees_after, self._removed = numbers.values()
        self._binomials, self._widest, self._deepest = None, 0, 0
        self.edges_left, self.max_degree = p * (p - 1) // 2, p - 1
        self.begun = False  # whether level 0 has run

    def best_keys(self, first_come: bool) -> Filled:
        """Return the `BEST_KEYS` that kernels take."""
        return BEST_KEYS(keys=self.best, p=self.p, first_come=first_come)

    def adjacency(self) -> np.ndarray:
        """Return the adjacency matrix, (p, p) bool in host memory; it is the complete graph if no level has run."""
        if not self.begun:
            return ~np.eye(self.p, dtype=bool)
        return self.backend.download(self.edges).astype(bool)

    def apply_fixed(self) -> None:
        """Queue the removal of forbidden edges and the restoration of required ones after level 0."""
        if self.fixed is not None:
            mark_pairs(self.backend, self.fixed.forbidden, np.uint8(0), self.edges)
            mark_pairs(self.backend, self.fixed.required, np.uint8(1), self.edges)

    def restart(self, edges: np.ndarray, fixed: FixedPairs) -> None:
        """Replace the graph by the edges of a (p, p) bool matrix, and the required edges by those of `fixed`."""
        self.edges = None  # This frees memory for the new edges.
        self.edges, self.fixed = self.backend.upload(edges.view(np.uint8)), fixed
        self.count()

    def count(self) -> LevelOutcome:
        """Count the edges that level 0 or `restart` left; updates `degrees`, `edges_left` and `max_degree`."""
        counters = self.backend.full(COUNTER_SHAPE, 0, np.uint64)
        self._launch("count_degrees", [self.edges, np.int32(self.p), self._degrees_after, counters[0, TALLIES:]])
        return self._read(counters)

    def _read(self, counters: Any) -> LevelOutcome:
        """Wait for the counters of a level and return them; updates the attributes of the last count."""
        totals = self.backend.download(counters).sum(axis=0).tolist()
        tests, undefined, pseudo_inverses, doubled, self.max_degree = totals[: TALLIES + 2]
        self.edges_left, tested = doubled // 2, self.max_degree
        self.degrees, self._degrees_after = self._degrees_after, self.degrees
        if self.fixed is not None:
            self.degrees, tested = tested_degrees(self.backend, self.degrees, self.fixed)
        return LevelOutcome(self.edges_left, tested, tests, undefined=undefined, pseudo_inverses=pseudo_inverses)

    def compact(self, level: int) -> Rows:
        """Return the graph's rows, for a level from 1 on."""
        neighbours = self.backend.empty((self.p, self.max_degree), np.int32)
        self._launch("compact", [self.edges, np.int32(self.p), neighbours, np.int32(self.max_degree)])
        if level > self._deepest or self.max_degree > self._widest:
            self._binomials = None  # This frees memory for the new table.
            self._widest, self._deepest = self.max_degree, level + self._levels_ahead
            self._binomials = self.backend.upload(binomial_table(self._widest, self._deepest))
        self._mark_required(REQUIRED_KEY)
        return Rows(self.p, level, self.max_degree, neighbours, self.degrees, self._binomials, self._widest)

    def remove_separated(
        self, rows: Rows, counters: Any, ranks_whole_row: bool
    ) -> tuple[LevelOutcome, LevelSets | None]:
        """Remove the edges with a key; return the outcome of the level, without pairs and sets, and the removed pairs
        with their separating sets on the device. Only the counters are waited for: the removed edges are as many as the
        graph has lost. The counters, `COUNTER_SHAPE` uint64 on the device, have the kernel's tallies; `ranks_whole_row`
        says whether ranks number subsets of the whole row, or those without the edge's other end."""
        self._mark_required(NO_KEY)
        counted = [self._removed, self._degrees_after, counters[0, TALLIES:]]
        self._launch("remove_separated", [rows.argument, self.best, self.edges, *counted])
        before, outcome = self.edges_left, self._read(counters)
        removed = before - self.edges_left
        if not removed:
            return outcome, None
        shapes = {"pairs": ((removed, 2), np.int32), "members": ((removed, rows.level), np.int32)}
        lists = LevelSets(**self.backend.empty_all(**shapes))
        arguments = [np.int32(rows.level), np.bool_(ranks_whole_row), self.best, self._removed]
        self._launch("list_separated", [rows.argument, *arguments, lists.pairs, lists.members])
        return outcome, lists

    def _mark_required(self, key: np.uint64) -> None:
        if self.fixed is not None:
            mark_pairs(self.backend, self.fixed.required, key, self.best)

    def _launch(self, kernel: str, arguments: list[Any]) -> None:
        self.backend.kernel(*KERNELS[kernel])((self.p,), (ROW_THREADS,), arguments)


def mark_pairs(backend: Backend, pairs: np.ndarray, value: np.uint8 | np.uint64, matrix: Any) -> None:
    """Queue writing a value into cells [i, j] and [j, i] of a (p, p) matrix on the device, for (k, 2) pairs."""
    count = len(pairs)
    if count:
        kernel = backend.kernel(*KERNELS[f"mark_pairs<{CPP_TYPES[type(value)]}>"])
        numbers = np.int32(count), np.int32(len(matrix)), value
        kernel((ceil_div(count, ROW_THREADS),), (ROW_THREADS,), [backend.upload(pairs), *numbers, matrix])


def tested_degrees(backend: Backend, degrees: Any, fixed: FixedPairs) -> tuple[Any, int]:
    """Return the degrees, (p,) int32 on the device, 0 for variables with required edges alone, and their largest."""
    on_host = backend.download(degrees)
    on_host[fixed.without_tests(on_host)] = 0
    return backend.upload(on_host), int(on_host.max(initial=0))


@functools.lru_cache(maxsize=32)
def binomial_table(max_n: int, level: int) -> np.ndarray:
    """Return C(m, k) at row k, column m: (level + 1, max_n + 1) uint64, saturated at 2^62 (combinations.cuh)."""
    table = np.zeros((level + 1, max_n + 1), np.uint64)
    table[0] = 1
    for k in range(1, level + 1):
        # By the hockey-stick identity, C(m, k) is the sum of C(q, k - 1) over q < m. Sums above 2^62 may overflow; the
        # same sums in float64 show where.
        sums = np.cumsum(table[k - 1, :-1])
        saturated = np.cumsum(table[k - 1, :-1].astype(np.float64)) > MAX_SETS * (1 + 1e-9)
        table[k, 1:] = np.where(saturated, np.uint64(MAX_SETS), sums)
    table.setflags(write=False)  # Callers share it.
    return table
