"""The search of the cuPC paper on a device, but for the kernel of a level's tests and its launch, in which its four
methods differ. Between levels, engine/graph.py updates the graph, or level_graph.py a small one."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine import graph, separating_sets
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.engine.tier_parts import TierSearch
from gpupc_impl.gaussian import level_graph
from gpupc_impl.gaussian.fixed_order import device_correlation
from gpupc_impl.gaussian.level_kernels import FIRST_LEVELS, LEVELS_AHEAD, LevelKernels, levels_at_first
from gpupc_impl.gaussian.partial_correlation import LargestPValues
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

INVERSE = {
    "inverse": Parameter(
        "cholesky",
        "inverse of M2: Cholesky's where the problem allows it; or always Algorithm 7's pseudo-inverse, another test",
        choices=("cholesky", "pseudo"),
    )
}

OWN_LEVELS = 16  # the levels beyond this one have only general kernels, by which deep searches take a sixth longer
MOST_THREADS = 512  # the upper bound on the threads in a block of a level's kernel
LEVEL_ZERO = KernelSource("gaussian/kernels/level_zero.cu", "level_zero")
SEARCH = Struct(  # kernels/search.cuh declares this struct.
    "Search",
    C=Pointer(np.float64),
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
    best=graph.BEST_KEYS,
    min_r_squared=Pointer(np.uint64),
    counters=Pointer(np.uint64),
    level=np.int32,
)

CONSTANTS = {**graph.TALLY_CONSTANTS, "MOST_SETS": graph.CONSTANTS["MOST_SETS"], "MOST_THREADS": MOST_THREADS}


@dataclasses.dataclass(frozen=True)
class LevelKernel:
    """The kernel that makes the tests of a level from 1 on: its ``.cu`` file, relative to the package (`source`), and
    its name without the type of the level. Ranks number the subsets of the whole row (`ranks_whole_row`), or those of
    the row without the edge's other end. `grid` and `block` are ``(p, max_degree, level, params) -> (x, y)``, the
    numbers of blocks, and of threads in a block."""

    source: str
    name: str
    grid: Callable[[int, int, int, dict], tuple[int, int]]
    block: Callable[[int, int, int, dict], tuple[int, int]]
    ranks_whole_row: bool = False

    def __post_init__(self) -> None:
        _LEVEL_KERNELS[self.name] = self

    @functools.cached_property
    def of_levels(self) -> LevelKernels:
        return LevelKernels(
            lambda size: KernelSource(self.source, f"{self.name}<{size}>", (graph.ROWS, SEARCH), CONSTANTS),
            own_levels=OWN_LEVELS,
        )

    def kernels(
        self, backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
    ) -> Sequence[KernelSource]:
        return _first_kernels(self, levels_at_first(backend, max_level))

    def solve(self, problem: GaussianProblem, run: Run) -> Skeleton:
        if run.params.get("inverse") == "pseudo":
            problem = problem.by_pseudo_inverse
            run = dataclasses.replace(run, facts={**run.facts, "problem": problem.facts()})
        search = GaussianSearch(problem, run, self).in_parts()
        return pc_stable(problem, search, facts=dict(run.facts), progress=run.progress)


@functools.cache
def _first_kernels(kernel: LevelKernel, last: int) -> tuple[KernelSource, ...]:
    between = (graph.KERNELS[name] for name in ("count_degrees", "compact", "remove_separated", "list_separated"))
    of_small, merging = level_graph.KERNELS.values(), separating_sets.KERNELS.values()
    return LEVEL_ZERO, *of_small, *between, *merging, *kernel.of_levels.needed(last)


def with_numbers(filled: Filled, **numbers: float) -> Filled:
    """Return a struct with other numbers, changed in the cached bytes, since encoding outlasts many kernels."""
    struct, encoded = filled.struct, {}
    for address, before in filled.encoded.items():
        after = bytearray(before)
        for name, number in numbers.items():
            part, start = struct.fields[name].encode(number, address), struct.offsets[name]
            after[start : start + len(part)] = part
        encoded[address] = bytes(after)
    return Filled(struct, {**filled.values, **numbers}, encoded)


_LEVEL_KERNELS: dict[str, LevelKernel] = {}


def all_kernels(max_level: int) -> list[KernelSource]:
    import gpupc_impl.core.registry as registry
    from gpupc_impl.gaussian import pair_scan, single_tests

    registry.methods()  # The import of a method registers its kernel.
    own = [source for kernel in _LEVEL_KERNELS.values() for source in kernel.of_levels.up_to(max_level)]
    between = *graph.KERNELS.values(), *level_graph.KERNELS.values()
    listed = *single_tests.KERNELS.up_to(max_level), *single_tests.VOTES, single_tests.BEST_MEMBERS
    return [LEVEL_ZERO, *between, *own, *listed, *pair_scan.all_kernels(max_level)]


class GaussianSearch(LevelSearch):
    """One search on one backend. Separating sets stay on the device until the search ends, and are merged there, if
    `sets_on_device`; otherwise those of each level are downloaded at its end, and no table of binomials is made for
    later levels, which takes less device memory."""

    sets_on_device = True

    def __init__(self, problem: GaussianProblem, run: Run, level_kernel: LevelKernel):
        self.problem, self.run, self.level_kernel = problem, run, level_kernel
        self.backend: Backend = run.backend
        p = self.p = problem.n_variables
        self.correlation = device_correlation(self.backend, problem)
        levels_ahead = graph.LEVELS_AHEAD if self.sets_on_device else 0
        self.graph = level_graph.LevelGraph(self.backend, p, problem.fixed, levels_ahead)
        self.largest_p = LargestPValues(problem) if run.pmax else None
        self._removed: list[LevelSets] = []
        self._prepared: Filled | None = None

    def run_level(self, level: int) -> LevelOutcome:
        return self._level_zero() if level == 0 else self._level(level)

    def adjacency(self) -> np.ndarray:
        return self._result[0]

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets | None:
        return self._result[1]

    @functools.cached_property
    def _result(self) -> tuple[np.ndarray, SeparatingSets | None]:
        if not (self.graph.begun and self.sets_on_device):
            return self.graph.adjacency(), None
        if self.graph.kept is not None:
            return download_result(self.backend, self.graph.edges, self.graph.kept_sets())
        self.graph.best = None  # This frees memory for the merged list.
        return download_result(self.backend, self.graph.edges, self._removed)

    def pmax(self) -> np.ndarray | None:
        return None if self.largest_p is None else self.largest_p.values

    def in_parts(self) -> LevelSearch:
        """Return this search, or one in parts (engine/tier_parts.py) if the problem's tiers limit separating sets."""
        if self.problem.tiers is None:
            return self
        self.sets_on_device = False
        return TierSearch(self.problem, self)

    def run_part(self, level: int, edges: np.ndarray, fixed: FixedPairs) -> LevelOutcome:
        self.problem = dataclasses.replace(self.problem, fixed=fixed)
        self.graph.restart(edges, fixed)
        return self._level(level)

    def adjacency_now(self) -> np.ndarray:
        return self.graph.adjacency()

    def _level_zero(self) -> LevelOutcome:
        p, problem = self.p, self.problem
        tiles = ceil_div(p, 32)
        arguments = [self.correlation, np.int32(p), np.float64(problem.critical_r_squared(0)), self.graph.edges]
        self.backend.kernel(*LEVEL_ZERO)((tiles, tiles), (32, 32), arguments)
        self.graph.begun = True
        self.graph.apply_fixed()
        if self.largest_p is not None:
            self.largest_p.begin()
        return dataclasses.replace(self.graph.count(), tests=problem.tests_of_level_zero)

    def _level(self, level: int) -> LevelOutcome:
        backend, p, kernels = self.backend, self.p, self.level_kernel.of_levels
        if level == 1 and self.sets_on_device and self.largest_p is None and backend.device_memory_limit is None:
            self.graph.keep_levels(self.level_kernel.ranks_whole_row)
        kept = self.graph.kept
        rows = self.graph.compact(level) if kept is None else None
        search = self._prepared or self._search(level)
        row_bytes = 4 * self.graph.max_degree
        use_shared = row_bytes <= backend.max_shared_bytes
        shape = (p, self.graph.max_degree, level, dict(self.run.params))
        backend.kernel(*kernels.choose(backend, level))(
            self.level_kernel.grid(*shape),
            self.level_kernel.block(*shape),
            [kept.rows if rows is None else rows.argument, search, np.bool_(use_shared)],
            shared_bytes=row_bytes if use_shared else 0,
        )
        if level >= FIRST_LEVELS and (level - FIRST_LEVELS) % LEVELS_AHEAD == 0:  # A request takes as long as a launch.
            backend.prefetch(kernels.ahead(level + 1, self.problem.max_level))
        if rows is None:
            return self.graph.end_level(level, functools.partial(self._prepare, search, level + 1))
        return self._end_level(level, rows, search.values["min_r_squared"], search.values["counters"])

    def _search(self, level: int) -> Filled:
        backend, problem, kept = self.backend, self.problem, self.graph.kept
        min_r_squared = None
        if self.largest_p is not None:
            min_r_squared = backend.full((self.p, self.p), graph.NO_KEY, np.uint64)
        return SEARCH(
            C=self.correlation,
            critical_r_squared=problem.critical_r_squared(level),
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
            best=self.graph.best_keys(self.run.separating_sets == "first-come"),
            min_r_squared=min_r_squared,
            counters=backend.full(graph.COUNTER_SHAPE, 0, np.uint64) if kept is None else kept.counters,
            level=level,
        )

    def _prepare(self, search: Filled, level: int) -> None:
        """Prepare the `SEARCH` of a level that may follow, from that of the level before."""
        if self.problem.obstacle(level) is None:
            critical = self.problem.critical_r_squared(level)
            self._prepared = with_numbers(search, critical_r_squared=critical, level=level)

    def _end_level(self, level: int, rows: graph.Rows, min_r_squared: Any, counters: Any) -> LevelOutcome:
        backend, pairs, sets = self.backend, np.empty((0, 2), np.int32), np.empty((0, level), np.int32)
        outcome, removed = self.graph.remove_separated(rows, counters, self.level_kernel.ranks_whole_row)
        if removed is not None and self.sets_on_device:
            self._removed.append(removed)
        if removed is not None and (self.largest_p is not None or not self.sets_on_device):
            pairs, sets = removed.download(backend)
        if self.largest_p is not None:
            self.largest_p.update(level, backend.download(min_r_squared), pairs, sets)
        return dataclasses.replace(outcome, pairs=pairs, sets=sets)
