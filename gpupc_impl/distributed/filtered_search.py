"""A search on devices of this process, which decide levels 0 and 1 by matrix products of samples (filter.py)."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import LevelOutcome, stop_reason
from gpupc_impl.core.registry import Run
from gpupc_impl.distributed import filter_plan
from gpupc_impl.distributed.address_space import empty_graph
from gpupc_impl.distributed.communicator import Communicator, communicators, further_backends, on_all
from gpupc_impl.distributed.correlations import correlate_squares
from gpupc_impl.distributed.device import prefetch_all
from gpupc_impl.distributed.filter import FilteredLevels
from gpupc_impl.distributed.filter_kernels import COUNTS
from gpupc_impl.distributed.row_search import RowDevice, search_rows
from gpupc_impl.distributed.row_shards import RowShards
from gpupc_impl.distributed.row_tasks import check_fit
from gpupc_impl.distributed.shards import ShardFolder
from gpupc_impl.distributed.sparse_search import SparseSearch
from gpupc_impl.distributed.spec import RowGroup
from gpupc_impl.engine.graph import NO_KEY, binomial_table
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.gaussian.problem import GaussianProblem

logger = logging.getLogger("gpupc_impl.distributed")

STEPS_OF_LEVEL_ZERO = (
    "samples",
    "memory",
    *(f"level 0: {step}" for step in ("products", "counts", "edges", "exchange")),
)

OCTAVES = 3
"""Rows whose numbers of sets differ by less than a factor of 2^OCTAVES are tested in one launch, so that all its thread
blocks have about the same work."""

SHARED_PRODUCTS = 1e13
"""The multiply-adds of all products, n p^2, from which a search takes all GPUs if no number of workers is requested. On
two H100, a search with 4e11 took longer than on one of them, and one with 9e13 about half as long."""


class RowTester(RowDevice):
    """A device of a search from level 2 on.

    Args:
        samples: (p, m) standardised, on the device.
    """

    def __init__(self, problem: GaussianProblem, device: Communicator, samples: Any):
        self._device, self.backend, self.budget = device, device.backend, device.backend.memory_limit
        self.p, self.samples_held = problem.n_variables, problem.n_samples
        self.residual_tolerance, self.pivot_tolerance = problem.residual_tolerance, problem.pivot_tolerance
        self.seconds: Counter[str] = Counter()
        self._samples = self.backend.empty((self.samples_held, self.p), np.float64)
        with self.backend.array_library():
            self._samples[...] = samples.T
        self._last_lap = time.perf_counter()

    def square_correlations(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        return correlate_squares(self.backend, self._samples, variables, sizes)

    def lap(self, step: str) -> None:
        self._device.check()  # A level has no other calls that fail on all devices.
        self.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last_lap
        self._last_lap = now


class FilteredSearch(SparseSearch):
    """One search on devices of this process, which is used as a context manager.

    Args:
        backends: the devices, at least one.

    Attributes:
        report: the facts that are recorded: sizes, seconds and counts by step.

    Raises:
        InvalidParameter: pmax is requested.
        InvalidProblem: the folder cannot be written, or is for another search.
        DeviceMemoryError: the device does not hold the neighbours of a variable.
    """

    def __init__(self, problem: GaussianProblem, run: Run, backends: Sequence[Backend]):
        super().__init__(problem, run)
        self.report: dict[str, Any] = {
            "workers": len(backends),
            "devices": [backend.describe() for backend in backends],
            "levels": [],
        }
        self._devices = communicators(backends)
        self._samples: list[Any] = []  # the samples on each device
        self._testers: list[RowTester] = []
        self._first_outcomes: list[LevelOutcome] = []

    def __enter__(self) -> FilteredSearch:
        return self

    def __exit__(self, *error: Any) -> None:
        further = [device.backend for device in self._devices[1:]]  # The caller frees the memory of the first device.
        self._samples, self._testers = [], []
        self._devices.clear()  # An error may refer to this list, and devices to the arrays that they exchanged last.
        for backend in further:
            backend.release_memory()

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            self._first_outcomes = self._first_levels()
        return self._first_outcomes[level] if level < len(self._first_outcomes) else self._later_level(level)

    def _first_levels(self) -> list[LevelOutcome]:
        started, problem, devices = time.perf_counter(), self.problem, self._devices
        self._adjacency = empty_graph(self.p)  # allocated before any work, so that a failure costs nothing
        with_level_one = stop_reason(problem, 1, max(self.p - 1, 2)) is None
        for device in devices:
            if with_level_one and device.backend.warp_threads > 1:
                prefetch_all(device.backend)
        results = self._open_shards()
        first = results.resume()

        def run_levels(device: Communicator) -> FilteredLevels:
            levels = FilteredLevels(problem, device, with_level_one, show=self.run.progress is not None)
            counted = np.zeros(3, np.int64)
            for group in levels.groups(first):
                made = sum(device.all_gather(levels.counts - counted)) * (device.number == 0)
                results.write(device.backend, group, dict(zip(COUNTS, made, strict=True)), levels.plan.read)
                counted = levels.counts.copy()
                del group
            return levels

        # The number of NumPy's threads is a setting of the process, so the context that ends last has to be that of
        # this thread.
        with devices[0].backend.array_library():
            of_devices = on_all(devices, run_levels)
        levels, seconds = of_devices[0], of_devices[0].seconds
        degrees = results.degrees + sum(each.backend.download(each.degrees) for each in of_devices)
        self._samples = [each.release() for each in of_devices]
        self._shards = results
        self._keep_edges(results.left())
        elapsed = time.perf_counter() - started
        zero_seconds = sum(taken for step, taken in seconds.items() if step in STEPS_OF_LEVEL_ZERO)
        self.report |= {
            "plan": dataclasses.asdict(levels.plan),
            "seconds": dict(seconds),
            "counts": dict(results.counts),
            "shard_bytes": results.bytes_written,
            "kept_bytes": results.bytes_kept,
            "peak_device_bytes": self._peak(),
        }
        logger.info("levels 0 and 1: %.1f s, %s", elapsed, {name: round(each, 2) for name, each in seconds.items()})
        counts = results.counts
        max_degree = problem.most_tested_degree(degrees)
        zero = LevelOutcome(int(degrees.sum()) // 2, max_degree, problem.tests_of_level_zero, seconds=zero_seconds)
        if results.levels == 1:  # Level 1 then runs row by row, like later levels.
            return [zero]
        tests, undefined = counts["tests"], counts["undefined"]
        one = LevelOutcome(*self._count(), tests, undefined=undefined, seconds=elapsed - zero_seconds)
        return [zero, one]

    def _open_shards(self) -> RowShards:
        """Return the shards in the folder of the search, or in a temporary one."""
        named = self.params["folder"]
        owner = None if named else tempfile.TemporaryDirectory(prefix="gpupc-")
        folder = ShardFolder(Path(owner.name if owner else named).absolute())
        folder.make()
        identity = uuid.uuid4().hex
        if owner is None:
            identity = self.problem.fingerprint
            folder.claim({"fingerprint": identity, "rows": 0})
        return RowShards(folder, identity, self.p, owner, writers=len(self._devices))

    def _peak(self) -> int:
        return max(device.backend.memory_peak for device in self._devices)

    def _later_level(self, level: int) -> LevelOutcome:
        """Run a level row by row."""
        started = time.perf_counter()
        assert self._edges is not None
        while self._samples:
            device, samples = self._devices[len(self._testers)], self._samples.pop(0)
            self._testers.append(RowTester(self.problem, device, samples))
            del samples
        degrees = np.bincount(self._edges.reshape(-1), minlength=self.p)
        active = degrees > level
        # A row without tests has none at later levels either, and matters only as the other end of an edge.
        is_tested = active[self._edges[:, 0]] | active[self._edges[:, 1]]
        self._settled.append(self._edges[~is_tested])
        self._edges = self._edges[is_tested]
        graph, rows = RowGraph.from_pairs(self._edges, self.p), np.flatnonzero(active)
        budget = min(tester.budget for tester in self._testers)
        check_fit(self.problem, degrees, active, level, self.problem.n_samples, budget)
        sets = binomial_table(int(degrees.max()), level)[level, degrees[rows]].astype(np.float64)
        launch = np.log2(sets * degrees[rows]).astype(int) // OCTAVES
        keys, totals = np.full(len(graph.neighbours), NO_KEY, np.uint64), Counter[str]()

        def search_share(device: Communicator) -> Counter[str]:
            totals = Counter[str]()
            for number in np.unique(launch)[::-1]:
                own = rows[launch == number][device.number :: device.size]
                if len(own):
                    slots = graph.row_slots(own)
                    group = RowGroup("", own, degrees[own], graph.neighbours[slots], np.empty(0, np.int64))
                    tester, critical = self._testers[device.number], self.problem.critical_r_squared(level)
                    counts, arrays = search_rows(tester, level, critical, group)
                    keys[slots] = arrays["keys"]
                    totals.update(counts)
            return totals

        for counts in on_all(self._devices, search_share):
            totals.update(counts)
        outcome = self._remove(*graph.separated(keys, level), totals)
        seconds = time.perf_counter() - started
        step = {"level": level, "rows": len(rows), "seconds": seconds, "device_seconds": dict(self._testers[0].seconds)}
        self.report["levels"].append(step)
        self.report["peak_device_bytes"] = self._peak()
        message = "level %d: %.1f s, %s rows of up to %d neighbours, %s tests; %s edges are left"
        numbers = level, seconds, f"{len(rows):,}", degrees.max(), f"{totals['tests']:,}", f"{outcome.edges:,}"
        logger.info(message, *numbers)
        return outcome


def filtering_devices(problem: GaussianProblem, run: Run) -> list[Backend]:
    """Return the devices of this process that can run a search of samples without fixed pairs by themselves; none if a
    cluster has to run it."""
    params, backend = run.params, run.backend
    assert backend is not None
    if params["folder"] and ShardFolder(Path(params["folder"])).rows_claimed():  # The folder has shards of a cluster.
        return []
    if params["client"] or params["panel"] or params["workers_on"] not in ("auto", backend.name):
        return []
    if problem.samples is None or problem.fixed is not None or problem.residual_tolerance == 0.0:
        return []
    least = filter_plan.least_device_bytes(problem.n_samples, problem.n_variables)
    if least > backend.memory_limit - backend.memory_used:
        return []
    workers = params["workers"]
    if not workers and problem.n_samples * problem.n_variables**2 < SHARED_PRODUCTS:
        return [backend]
    others = (each for each in further_backends(backend, workers) if least <= each.memory_limit - each.memory_used)
    devices = [backend, *itertools.islice(others, workers - 1 if workers else None)]
    return devices if len(devices) >= workers else []
