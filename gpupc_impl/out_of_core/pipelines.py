"""Two pipelines that alternate between blocks, so that one block is transferred while another is computed. A pipeline
has a stream. For each block it extracts the block from the host's data, transfers it, computes, transfers the result
back, and merges the result into the host's data (Out-of-Core, section 4.2 and Fig. 1). Every step is timed."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Event, KernelSource
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.files import write_csv
from gpupc_impl.engine.budget import Arrays, allocated_bytes, array_bytes, device_bytes

STEPS = ("extract", "transfer", "kernel", "merge")
COLUMNS = ("level", "block", "step", "stream", "start_s", "end_s")


class Timeline:
    """The start and the end of each step of each block, in seconds since this object was created."""

    def __init__(self, backend: Backend):
        self._steps: list[tuple] = []
        self._taken = 0  # the steps that `take_busy` has summed
        self.origin = backend.stream().record()
        self.origin.synchronize()
        self._clock = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._clock

    def add(self, labels: tuple[int, int, str, int], start: float, end: float) -> None:
        """Add a step; `labels` are its level, block, step and stream."""
        self._steps.append((*labels, start, end))

    def take_busy(self) -> dict[str, float]:
        """The seconds of each step since the last call; since steps overlap, their sum may exceed the elapsed time."""
        busy = dict.fromkeys(STEPS, 0.0)
        for _, _, step, _, start, end in self._steps[self._taken :]:
            busy[step] += end - start
        self._taken = len(self._steps)
        return busy

    def save(self, path: str | Path) -> None:
        """Write the steps as CSV, ordered by their start."""
        rows = [
            dict(zip(COLUMNS, (*labels, f"{start:.6f}", f"{end:.6f}"), strict=True))
            for *labels, start, end in sorted(self._steps, key=lambda step: step[-2])
        ]
        write_csv(path, rows, COLUMNS)


class Pipeline:
    """One stream, its staging areas in pinned host memory with as much device memory, and the block in progress."""

    def __init__(self, backend: Backend, number: int, timeline: Timeline):
        self.backend, self.number, self.timeline = backend, number, timeline
        self.stream = backend.stream()
        self._staging = np.empty(0, np.uint8)
        self._areas: dict[str, tuple[np.ndarray, Any]] = {}
        self.bytes_up = self.bytes_down = 0
        self._level = self._block = 0
        self._steps: list[tuple[str, Event, Event]] = []
        self._merge: Callable[[], None] | None = None

    def allocate(self, arrays: Arrays) -> None:
        """Replace the areas by those with room for these arrays; no block may be in progress. Since pinning is slow,
        staging memory is kept from level to level, and replaced only if the areas need more."""
        needed = device_bytes(arrays)
        self._areas = {}
        if len(self._staging) < needed:
            self._staging = np.empty(0, np.uint8)
            self._staging = self.backend.host_empty(needed, np.uint8)
        start = 0
        for name, array in arrays.items():
            nbytes = array_bytes(*array)
            self._areas[name] = self._staging[start : start + nbytes], self.backend.empty(nbytes, np.uint8)
            start += allocated_bytes(nbytes)

    def area(self, name: str, shape: Sequence[int], dtype: Any, offset: int = 0) -> tuple[np.ndarray, Any]:
        """A part of an area as an array on the host and as an array on the device."""
        end = offset + math.prod(shape) * np.dtype(dtype).itemsize
        host, device = (side[offset:end].view(dtype).reshape(shape) for side in self._areas[name])
        return host, device

    def abandon(self) -> None:
        """Wait for the device, also after an error, and drop the block, the counts and the device memory."""
        with contextlib.suppress(Exception):
            self.stream.synchronize()
        self._steps.clear()
        self._merge = None
        self._areas = {}
        self.bytes_up = self.bytes_down = 0

    def begin(self, level: int, block: int) -> None:
        """Finish the block in progress and begin another."""
        self.finish()
        self._level, self._block = level, block

    @contextlib.contextmanager
    def on_host(self, step: str) -> Iterator[None]:
        start = self.timeline.now()
        yield
        self.timeline.add((self._level, self._block, step, self.number), start, self.timeline.now())

    def upload(self, *copies: tuple[Any, np.ndarray]) -> None:
        """Queue copies ``(device, host)``."""
        with self._on_device("transfer"):
            for device, host in copies:
                self.stream.copy(device, host)
                self.bytes_up += host.nbytes

    def download(self, merge: Callable[[], None], *copies: tuple[np.ndarray, Any]) -> None:
        """Queue copies ``(host, device)`` of the block's result; `finish` calls `merge` once they are on the host."""
        self._merge = merge
        with self._on_device("transfer"):
            for host, device in copies:
                self.stream.copy(host, device)
                self.bytes_down += host.nbytes

    def launch(
        self, source: KernelSource, grid: Sequence[int], block: Sequence[int], arguments: list, shared_bytes: int = 0
    ) -> None:
        """Queue a kernel, which is compiled at its first use."""
        kernel = self.backend.kernel(*source)
        with self._on_device("kernel"):
            kernel(grid, block, arguments, shared_bytes, self.stream)

    def finish(self) -> None:
        """Wait for the block in progress and merge its result."""
        if not self._steps:
            return
        self._steps[-1][-1].synchronize()
        for step, *events in self._steps:
            start, end = (event.seconds_since(self.timeline.origin) for event in events)
            self.timeline.add((self._level, self._block, step, self.number), start, end)
        self._steps.clear()
        merge, self._merge = self._merge, None
        if merge is not None:
            with self.on_host("merge"):
                merge()

    @contextlib.contextmanager
    def _on_device(self, step: str) -> Iterator[None]:
        start = self.stream.record()
        yield
        self._steps.append((step, start, self.stream.record()))


class Pipelines:
    """The two pipelines, which alternate, and a third one (`pairs`) for blocks of pairs that stay on the device."""

    def __init__(self, backend: Backend, timeline: Timeline):
        self._all = tuple(Pipeline(backend, number, timeline) for number in range(3))
        self.both, self.pairs = self._all[:2], self._all[2]
        self._turn = self._level = 0
        self.blocks = 0

    def begin_level(self, level: int) -> None:
        self._level, self.blocks = level, 0

    @property
    def moved(self) -> dict[str, int]:
        return {name: sum(getattr(pipeline, name) for pipeline in self._all) for name in ("bytes_up", "bytes_down")}

    def next(self) -> Pipeline:
        """The one of the two pipelines that takes the next block."""
        pipeline = self.both[self._turn]
        self._turn = 1 - self._turn
        return self.begin(pipeline)

    def begin(self, pipeline: Pipeline) -> Pipeline:
        """Begin the next block in a pipeline; its block in progress is finished first."""
        self.blocks += 1
        progress_watcher.advance(self.blocks, unit="blocks")
        pipeline.begin(self._level, self.blocks - 1)
        return pipeline

    def allocate(self, arrays: Arrays) -> None:
        for pipeline in self.both:
            pipeline.allocate(arrays)

    def finish(self) -> None:
        """Finish the blocks of both pipelines, the older one first."""
        for pipeline in (self.both[self._turn], self.both[1 - self._turn]):
            pipeline.finish()

    def abandon(self) -> None:
        for pipeline in self._all:
            pipeline.abandon()
