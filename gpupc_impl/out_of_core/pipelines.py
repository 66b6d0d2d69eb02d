"""Two pipelines that alternate between blocks, so that one block is transferred while another is computed.

A pipeline has a stream. For each block the pipeline extracts the block from the host's data, transfers it, computes,
transfers the result back, and merges the result into the host's data (Out-of-Core, section 4.2 and Fig. 1). Every step
is timed.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Event, KernelSource
from gpupc_impl.core import watching
from gpupc_impl.core.files import write_csv
from gpupc_impl.engine.device_memory import allocated_bytes

STEPS = ("extract", "transfer", "kernel", "merge")
COLUMNS = ("level", "block", "step", "stream", "start_s", "end_s")


class Timeline:
    """The start and the end of each step of each block, in seconds since this object was created.

    Args:
        keep: whether `save` writes the single steps; otherwise only their sums are kept.
    """

    def __init__(self, backend: Backend, keep: bool):
        self._rows: list[tuple] | None = [] if keep else None
        stream = backend.stream()
        self._origin = stream.record()
        self._origin.synchronize()
        self._clock = time.perf_counter()
        self._busy: dict[str, float] = defaultdict(float)  # seconds by step since the last `take_busy`

    def now(self) -> float:
        return time.perf_counter() - self._clock

    def add(self, level: int, block: int, step: str, stream: int, start: float, end: float) -> None:
        self._busy[step] += end - start
        if self._rows is not None:
            self._rows.append((level, block, step, stream, start, end))

    @contextlib.contextmanager
    def step(self, level: int, block: int, step: str, stream: int) -> Iterator[None]:
        """Measure a step of the host."""
        start = self.now()
        yield
        self.add(level, block, step, stream, start, self.now())

    def add_events(self, level: int, block: int, step: str, stream: int, start: Event, end: Event) -> None:
        """Add a step of the device that happened between two events."""
        self.add(level, block, step, stream, *(event.seconds_since(self._origin) for event in (start, end)))

    def take_busy(self) -> dict[str, float]:
        """The seconds of each step since the last call; since steps overlap, their sum may exceed the elapsed time."""
        busy, self._busy = self._busy, defaultdict(float)
        return {step: busy[step] for step in STEPS}

    def save(self, path: str | Path) -> None:
        """Write the steps as CSV, ordered by their start."""
        rows = [
            dict(zip(COLUMNS, (*labels, f"{start:.6f}", f"{end:.6f}"), strict=True))
            for *labels, start, end in sorted(self._rows or (), key=lambda row: row[-2])
        ]
        write_csv(path, rows, COLUMNS)


class Pipeline:
    """One stream, its staging areas on the host with device memory of the same sizes, and the block in progress.

    Args:
        staging_bytes: pinned host memory, which is allocated with the first areas. Since pinning is slow, the memory is
            kept from level to level, and replaced only if the areas need more.
    """

    def __init__(self, backend: Backend, number: int, timeline: Timeline, staging_bytes: int = 0):
        self.backend, self.number, self.timeline = backend, number, timeline
        self.stream = backend.stream()
        self._staging_bytes = staging_bytes
        self._staging: np.ndarray | None = None
        self._areas: dict[str, tuple[np.ndarray, Any]] = {}
        self.bytes_up = self.bytes_down = 0
        self._level = self._block = 0
        self._steps: list[tuple[str, Event, Event]] = []
        self._merge: Callable[[], None] | None = None

    def allocate(self, sizes: Mapping[str, int], host_only: Sequence[str] = ()) -> None:
        """Replace the areas; no block may be in progress.

        Args:
            sizes: bytes by the area's name.
            host_only: areas without device memory of their own, because their content is copied to other device arrays.
        """
        needed = sum(map(allocated_bytes, sizes.values()))
        if self._staging is None or len(self._staging) < needed:
            self._areas, self._staging = {}, None
            self._staging = self.backend.host_empty(max(needed, self._staging_bytes), np.uint8)
        self._areas, start = {}, 0
        for name, nbytes in sizes.items():
            device = None if name in host_only else self.backend.empty(nbytes, np.uint8)
            self._areas[name] = self._staging[start : start + nbytes], device
            start += allocated_bytes(nbytes)

    def area(self, name: str, shape: Sequence[int], dtype: Any, offset: int = 0) -> tuple[np.ndarray, Any]:
        """A part of an area as an array on the host and as an array on the device (None for an area in `host_only`)."""
        dtype = np.dtype(dtype)
        end = offset + math.prod(shape) * dtype.itemsize
        host, device = self._areas[name]
        host = host[offset:end].view(dtype).reshape(shape)
        return host, None if device is None else device[offset:end].view(dtype).reshape(shape)

    def reset(self) -> None:
        """Drop the block, the counts and the device memory; all queued work must be complete."""
        self._steps.clear()
        self._merge = None
        self._areas = {}
        self.bytes_up = self.bytes_down = 0

    def begin(self, level: int, block: int) -> None:
        """Finish the block in progress and begin another."""
        self.finish()
        self._level, self._block = level, block

    def extracting(self) -> contextlib.AbstractContextManager[None]:
        """Measure the host's work that prepares the block."""
        return self.timeline.step(self._level, self._block, "extract", self.number)

    def upload(self, *copies: tuple[Any, np.ndarray]) -> None:
        """Queue copies ``(device, host)``."""
        with self._timed("transfer"):
            for device, host in copies:
                self.stream.copy(device, host)
                self.bytes_up += host.nbytes

    def download(self, *copies: tuple[np.ndarray, Any]) -> None:
        """Queue copies ``(host, device)``."""
        with self._timed("transfer"):
            for host, device in copies:
                self.stream.copy(host, device)
                self.bytes_down += host.nbytes

    def launch(
        self, source: KernelSource, grid: Sequence[int], block: Sequence[int], arguments: list, shared_bytes: int = 0
    ) -> None:
        """Queue a kernel, which is compiled at its first use."""
        kernel = self.backend.kernel(*source)
        with self._timed("kernel"):
            kernel(grid, block, arguments, shared_bytes, self.stream)

    def merge_with(self, merge: Callable[[], None]) -> None:
        """Set the function that merges the block's result once it is on the host."""
        self._merge = merge

    def finish(self) -> None:
        """Wait for the block in progress and merge its result."""
        if not self._steps:
            return
        self._steps[-1][-1].synchronize()
        for step, start, end in self._steps:
            self.timeline.add_events(self._level, self._block, step, self.number, start, end)
        self._steps.clear()
        merge, self._merge = self._merge, None
        if merge is not None:
            with self.timeline.step(self._level, self._block, "merge", self.number):
                merge()

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = self.stream.record()
        yield
        self._steps.append((step, start, self.stream.record()))


class Pipelines:
    """The two pipelines, which alternate."""

    def __init__(self, backend: Backend, timeline: Timeline, staging_bytes: int):
        self.timeline = timeline
        self.both = tuple(Pipeline(backend, number, timeline, staging_bytes) for number in range(2))
        self._turn = self._level = 0
        self.blocks = 0

    def begin_level(self, level: int) -> None:
        self._level, self.blocks = level, 0

    @property
    def bytes_up(self) -> int:
        return sum(pipeline.bytes_up for pipeline in self.both)

    @property
    def bytes_down(self) -> int:
        return sum(pipeline.bytes_down for pipeline in self.both)

    def next(self) -> Pipeline:
        """The pipeline for the next block; its block in progress is finished first."""
        pipeline = self.both[self._turn]
        self._turn = 1 - self._turn
        pipeline.begin(self._level, self.take_number())
        return pipeline

    def take_number(self) -> int:
        """The number of the next block, for a block in one of the two pipelines or in a third pipeline."""
        self.blocks += 1
        watching.advance(self.blocks, unit="blocks")
        return self.blocks - 1

    def allocate(self, sizes: Mapping[str, int], host_only: Sequence[str] = ()) -> None:
        """Allocate the areas of both pipelines (see `Pipeline.allocate`)."""
        for pipeline in self.both:
            pipeline.allocate(sizes, host_only)

    def finish(self) -> None:
        """Finish the blocks of both pipelines, the older one first."""
        for pipeline in (self.both[self._turn], self.both[1 - self._turn]):
            pipeline.finish()

    def abandon(self) -> None:
        """Wait for the device, also after an error, so that its memory can be freed."""
        for pipeline in self.both:
            with contextlib.suppress(Exception):
                pipeline.stream.synchronize()
            pipeline.reset()
