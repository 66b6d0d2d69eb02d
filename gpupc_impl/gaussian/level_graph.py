"""The graph of a search that runs level by level. Launches and allocations take longer than the tests of a small
problem. The graph of a small problem is therefore updated by one launch a level, without allocations: the graphs of all
levels are kept, and one launch at the end lists all separating sets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.graph import (
    BINOMIALS,
    CONSTANTS,
    COUNTER_SHAPE,
    ROW_THREADS,
    ROWS,
    TALLIES,
    TALLY_CONSTANTS,
    DeviceGraph,
    binomial_table,
)
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.integers import round_up

KEPT_BYTES = 32 << 20  # the upper bound on the memory that the graphs of all levels may take
MOST_DEGREE = 255  # of a variable after level 0, since a byte holds the level that removed an edge
LEVELS = Struct(  # kernels/level_graph.cu declares this struct.
    "Levels",
    adjacency=Pointer(np.uint8),
    best=Pointer(np.uint64),
    neighbours=Pointer(np.int32),
    degrees=Pointer(np.int32),
    kept=Pointer(np.int32),
    kept_degrees=Pointer(np.int32),
    removed_at=Pointer(np.uint8),
    removed=Pointer(np.int32),
    members=Pointer(np.int32),
    counters=Pointer(np.uint64),
    binomial=BINOMIALS,
    p=np.int32,
    stride=np.int32,
    ranks_whole_row=np.bool_,
)
KERNELS = {
    name: KernelSource("gaussian/kernels/level_graph.cu", name, (LEVELS,), {**CONSTANTS, **TALLY_CONSTANTS})
    for name in ("begin_level_one", "end_level", "list_levels")
}


@dataclasses.dataclass
class KeptLevels:
    """The graphs at the start of levels from 1 on, up to the largest degree after level 0 minus one."""

    argument: Filled  # the `LEVELS` that kernels take
    rows: Filled  # the `ROWS` of the present level
    counters: Any  # tallies, summed over all levels, and the sum and maximum of degrees, on the device
    on_host: np.ndarray  # into which the counters are copied
    tallies: np.ndarray  # after the last level
    pairs: int = 0  # removed so far
    members: int = 0  # of the separating sets of these pairs


class LevelGraph(DeviceGraph):
    """A graph that keeps the graphs of all levels if they take little memory."""

    kept: KeptLevels | None = None  # None before level 1, and if the graphs are not kept

    def keep_levels(self, ranks_whole_row: bool) -> None:
        """Queue the compaction for level 1, and keep the graphs of all levels from then on if they are small."""
        p, stride = self.p, self.max_degree
        if self.fixed is not None or stride > MOST_DEGREE or 4 * p * stride * (stride + 1) + p * p > KEPT_BYTES:
            return
        rows = {"neighbours": ((p, stride), np.int32), "degrees": (p, np.int32)}
        arrays = self.backend.empty_all(
            **rows,
            kept=((stride - 1, p, stride), np.int32),
            kept_degrees=((stride - 1, p), np.int32),
            removed_at=((p, p), np.uint8),
            removed=(p, np.int32),
            members=(p, np.int32),
            counters=(COUNTER_SHAPE, np.uint64),
        )
        widest = round_up(stride, 32)  # Rounding lets similar problems share a cached table.
        table = self.backend.upload(binomial_table(widest, widest - 1))
        shared = {"binomial": BINOMIALS(table=table, max_n=widest), "p": p, "stride": stride}
        argument = LEVELS(adjacency=self.edges, best=self.best, ranks_whole_row=ranks_whole_row, **shared, **arrays)
        self._launch_kept("begin_level_one", [argument])
        present = ROWS(**shared, **{name: arrays[name] for name in rows})
        on_host = self.backend.host_empty(COUNTER_SHAPE, np.uint64)
        self.kept = KeptLevels(argument, present, arrays["counters"], on_host, np.zeros(TALLIES, np.uint64))

    def end_level(self, level: int, meanwhile: Callable[[], None]) -> LevelOutcome:
        """Remove the edges that a level separated; `meanwhile` is called while the device is busy."""
        kept = self.kept
        assert kept is not None
        self._launch_kept("end_level", [kept.argument, np.int32(level)])
        meanwhile()
        counters = self.backend.download(kept.counters, out=kept.on_host)
        doubled, self.max_degree = counters[level & 1, TALLIES : TALLIES + 2].tolist()
        removed, self.edges_left = self.edges_left - doubled // 2, doubled // 2
        kept.pairs += removed
        kept.members += removed * level
        before, kept.tallies = kept.tallies, counters[:, :TALLIES].sum(axis=0)
        tests, undefined, pseudo_inverses = (kept.tallies - before).tolist()
        return LevelOutcome(
            self.edges_left, self.max_degree, tests, undefined=undefined, pseudo_inverses=pseudo_inverses
        )

    def kept_sets(self) -> list[LevelSets]:
        """Return at most one list, on the device, which has the separating sets of all levels."""
        kept = self.kept
        assert kept is not None
        if not kept.pairs:
            return []
        shapes = {"pairs": ((kept.pairs, 2), np.int32), "sizes": (kept.pairs, np.uint8)}
        lists = self.backend.empty_all(**shapes, members=(kept.members, np.int32))
        self._launch_kept("list_levels", [kept.argument, *(lists[name] for name in ("pairs", "sizes", "members"))])
        return [LevelSets(**lists)]

    def _launch_kept(self, kernel: str, arguments: list[Any]) -> None:
        self.backend.kernel(*KERNELS[kernel])((self.p,), (ROW_THREADS,), arguments)
