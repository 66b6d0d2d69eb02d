"""A worker of a search: what it holds, and the steps that the client calls (`search`). Every worker holds all samples
and the edges of a group of rows, and takes a share of the work (docs/design/wide.md). Threads of one process and
processes of a Dask cluster differ in their communicator alone."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, KernelSource
from gpupc_impl.core import mapped_arrays
from gpupc_impl.distributed import filter_plan, products
from gpupc_impl.distributed.communicator import Communicator, Laps
from gpupc_impl.distributed.edge_shards import BLOCK, Share
from gpupc_impl.distributed.filter import FILTER_KERNELS, SEPARATED, FilteredLevels
from gpupc_impl.distributed.row_search import RowSearch
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.gaussian.fixed_order import SQUARES, STANDARDISE, TILE_CONSTANTS, standardised_on_device
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.gathered import GATHERED

MOST_PREFETCHED = 24  # the highest level whose kernels a search requests before level 0


class Worker:
    """A worker of a search. The samples of `problem` are not used: `add_samples` brings them in parts."""

    def __init__(self, problem: GaussianProblem, workers: Communicator):
        self._problem, self._workers, self._backend = problem, workers, workers.backend
        self._laps = Laps(workers)
        self._plan: filter_plan.FilterPlan  # from `prepare` on
        self._arriving: np.ndarray  # until `start`; for samples that arrive, since new pages take longer than copies
        self._rows: Any = None  # (p, m) standardised samples on the device, until `take_graph`
        self._levels: FilteredLevels | None = None
        self._graph: RowSearch  # from `take_graph` on
        self._result: list[Any] = []  # the partners and values of the share's edges

    def prepare(self) -> dict[str, Any]:
        """Plan the search, and let threads compile kernels. Returns ``at_once``, how many variables to send at a time,
        ``plan``, a record's facts about the plan, and ``memory``, the bytes of the device for levels from 2 on."""
        problem, backend = self._problem, self._backend
        m, p = problem.n_samples, problem.n_variables
        if problem.max_level != 0 and backend.warp_threads > 1:
            backend.prefetch(searching(backend.name))
        free = min(self._workers.all_gather(backend.memory_limit - backend.memory_used))
        if (least := filter_plan.least_device_bytes(m, p)) > free:
            raise DeviceMemoryError(
                least,
                backend.memory_used,
                backend.memory_limit,
                f"method 'distributed' needs {least:,} bytes of device memory on every worker for {m:,} samples of "
                f"{p:,} variables, and a worker has {free:,}: give workers more (device_memory_limit), have fewer "
                "workers a machine, or fewer variables",
            )
        at_once = filter_plan.variables_at_once(m, p, free)
        in_parts = products.part_bytes(backend, m, problem.critical_r_squared(0))
        self._plan = filter_plan.choose(m, p, free, in_parts)
        self._arriving, self._rows = np.empty(m * min(at_once, p)), backend.empty((p, m), np.float64)
        self._laps.start()
        return {"at_once": at_once, "plan": dataclasses.asdict(self._plan), "memory": backend.memory_limit}

    def add_samples(self, variables: slice, samples: np.ndarray) -> None:
        """Take the (m, width) samples of some variables, which no other worker gets from the client."""
        part = self._arriving[: samples.size].reshape(samples.shape)
        mapped_arrays.by_pieces(part, lambda rows: np.copyto(part[rows], samples[rows]))
        with self._backend.array_library():
            self._rows[variables] = standardised_on_device(self._backend, part).T

    def start(self, at_once: int, first_levels: bool, level_one: bool) -> None:
        """Get the samples of all variables from the other workers, and allocate the arrays of levels 0 and 1."""
        del self._arriving
        pieces = mapped_arrays.pieces(self._problem.n_variables, at_once)
        self._workers.complete([self._rows], [(k % self._workers.size, part) for k, part in enumerate(pieces)])
        self._laps.lap("samples")
        if first_levels:
            self._levels = FilteredLevels(self._problem, self._workers, self._plan, self._rows, self._laps, level_one)
            self._laps.lap("memory")

    def run_group(self, first: int) -> Share:
        """Run levels 0 and 1 for a group of rows that begins with row `first`."""
        assert self._levels is not None
        if self._result:
            self._result = []
            self._laps.lap("results")
        share, *self._result = self._levels.group(first)
        return share

    def read(self, edges: slice, starts: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of the `Shard` of some edges, given where each of their rows begins, and the last ends."""
        backend, blocks = self._backend, ceil_div(self._problem.n_variables, BLOCK)
        with backend.array_library() as library:  # a device finds the edges that are left faster than a core
            partners, members = (array[edges] for array in self._result)
            is_separated = partners >> 31
            left = library.flatnonzero(is_separated == 0)
            partners &= np.uint32(SEPARATED - 1)  # in place, since memory is short and each edge is read once
            members *= is_separated
            del is_separated
            if blocks > 1:
                of_rows = backend.upload(starts)
                run = library.searchsorted(of_rows, library.arange(len(partners)), side="right")
                run -= 1
                run *= blocks
                run += partners // BLOCK
                # CuPy's bincount takes memory for each bin on each multiprocessor.
                starts = backend.download(library.searchsorted(run, library.arange(blocks * (len(starts) - 1) + 1)))
                del run
            short = [(array % BLOCK).astype(np.uint16) for array in (partners, members)]
            is_far = members >= BLOCK
            far_blocks = (members[is_far] // BLOCK).astype(np.min_scalar_type(blocks - 1))
            return [starts, *backend.download_all([*short, library.packbits(is_far), far_blocks, left])]

    def finish_first_levels(self) -> dict[str, Any]:
        """Drop all arrays but the samples; returns ``seconds`` by step of levels 0 and 1, and ``peak``, the largest
        number of bytes in use on the device."""
        if self._result:
            self._result = []
            self._laps.lap("results")
        self._levels = None
        seconds, self._laps = dict(self._laps.seconds), Laps(self._workers)
        return {"seconds": seconds, "peak": self._backend.memory_peak}

    def take_graph(self, graph: RowGraph) -> None:
        """Begin the levels that are run row by row, with the edges that are left."""
        rows, self._rows = self._rows, None
        with self._backend.array_library():
            samples = self._backend.empty(rows.shape[::-1], np.float64)
            samples[...] = rows.T
            del rows
            self._graph = RowSearch(self._problem, self._workers, samples, self._laps, graph)

    def search_rows(
        self, level: int, rows: np.ndarray, degrees: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray], dict[str, Any]]:
        """Test all sets of (k,) rows at a level, which have (k,) degrees. Returns the counts, and from the first worker
        the pairs and sets, of `RowSearch.level`, and facts as `finish_first_levels` does."""
        self._laps.start()
        with self._backend.array_library() as library:
            counts, *found = self._graph.level(library, level, rows, degrees)
            removed = self._backend.download_all(found) if self._workers.number == 0 else []
        self._laps.lap("results")
        return counts, removed, {"seconds": dict(self._laps.seconds), "peak": self._backend.memory_peak}


@functools.cache
def searching(backend: str) -> tuple[KernelSource, ...]:
    """Return the kernels of all levels of a search on a backend."""
    squares = (kernel._replace(constants=TILE_CONSTANTS[backend]) for kernel in SQUARES)
    return STANDARDISE, *FILTER_KERNELS, *squares, *GATHERED.up_to(MOST_PREFETCHED)
