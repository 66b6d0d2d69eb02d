"""Two streams through which blocks go in turn, so that a block is transferred while another is computed.

Each lane does extraction (host), transfer, kernel and transfer back for its block, and merges the block's result into
the host's data when the lane is needed again (Out-of-Core, section 4.2 and Fig. 1). Every step is timed.
"""

from __future__ import annotations

import contextlib
import csv
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends.base import Backend, Event
from gpupc_impl.core.files import write_whole

STEPS = ("extract", "transfer", "kernel", "merge")
COLUMNS = ("level", "block", "step", "stream", "start_s", "end_s")


class Timeline:
    """When each step of each block was at work, in seconds since this object was made.

    Args:
        keep: whether the single steps are kept for `save`; their sums always are.
    """

    def __init__(self, backend: Backend, keep: bool):
        self._rows: list[tuple] | None = [] if keep else None
        stream = backend.stream()
        self._origin = stream.record()
        self._origin.synchronize()
        self._clock = time.perf_counter()
        self.busy: dict[str, float] = defaultdict(float)  # by step, since `take_busy`

    def now(self) -> float:
        return time.perf_counter() - self._clock

    def add(self, level: int, block: int, step: str, stream: int, start: float, end: float) -> None:
        self.busy[step] += end - start
        if self._rows is not None:
            self._rows.append((level, block, step, stream, start, end))

    def add_events(self, level: int, block: int, step: str, stream: int, start: Event, end: Event) -> None:
        self.add(level, block, step, stream, *(event.seconds_since(self._origin) for event in (start, end)))

    def take_busy(self) -> dict[str, float]:
        """Seconds of each step since the last call; they overlap, so their sum may exceed what has passed."""
        busy, self.busy = self.busy, defaultdict(float)
        return {step: busy[step] for step in STEPS}

    def save(self, path: str | Path) -> None:
        """Write the steps as CSV, in order of their start."""
        with write_whole(Path(path)) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for *what, start, end in sorted(self._rows or (), key=lambda row: row[-2]):
                writer.writerow((*what, f"{start:.6f}", f"{end:.6f}"))


class Buffer:
    """A staging area on the host, and device memory of its size unless what is staged goes elsewhere."""

    def __init__(self, backend: Backend, nbytes: int, on_device: bool = True):
        self.host = backend.host_empty(nbytes, np.uint8)
        self.device = backend.empty(nbytes, np.uint8) if on_device else None

    def pair(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> tuple[np.ndarray, Any]:
        """The same part of both, as arrays."""
        dtype = np.dtype(dtype)
        end = offset + math.prod(shape) * dtype.itemsize
        host = self.host[offset:end].view(dtype).reshape(shape)
        return host, None if self.device is None else self.device[offset:end].view(dtype).reshape(shape)


class Lane:
    """One stream with its buffers and the block that is in it."""

    def __init__(self, backend: Backend, number: int, timeline: Timeline):
        self.backend, self.number, self.timeline = backend, number, timeline
        self.stream = backend.stream()
        self.buffers: dict[str, Buffer] = {}
        self.bytes_up = self.bytes_down = 0
        self._level = self._block = 0
        self._steps: list[tuple[str, Event, Event]] = []
        self._merge: Callable[[], None] | None = None

    def add_buffer(self, name: str, nbytes: int, on_device: bool = True) -> None:
        self.buffers[name] = Buffer(self.backend, nbytes, on_device)

    def begin(self, level: int, block: int) -> None:
        """Finish the block that is in the lane and make room for another."""
        self.finish()
        self._level, self._block = level, block

    @contextlib.contextmanager
    def extracting(self) -> Iterator[None]:
        """Host work that prepares the block."""
        start = self.timeline.now()
        yield
        self.timeline.add(self._level, self._block, "extract", self.number, start, self.timeline.now())

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

    def launch(self, kernel: Any, grid: Sequence[int], block: Sequence[int], args: list, shared_bytes: int = 0) -> None:
        with self._timed("kernel"):
            kernel(grid, block, args, shared_bytes, self.stream)

    def merge_with(self, merge: Callable[[], None]) -> None:
        """What to do with the block's result once it is on the host."""
        self._merge = merge

    def finish(self) -> None:
        """Wait for the block and merge its result."""
        if not self._steps:
            return
        self._steps[-1][-1].synchronize()
        for step, start, end in self._steps:
            self.timeline.add_events(self._level, self._block, step, self.number, start, end)
        self._steps.clear()
        merge, self._merge = self._merge, None
        if merge is not None:
            start = self.timeline.now()
            merge()
            self.timeline.add(self._level, self._block, "merge", self.number, start, self.timeline.now())

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = self.stream.record()
        yield
        self._steps.append((step, start, self.stream.record()))


class Lanes:
    """The two lanes, taken in turn."""

    def __init__(self, backend: Backend, timeline: Timeline):
        self.both = tuple(Lane(backend, number, timeline) for number in range(2))
        self._turn = 0
        self._blocks = 0

    @property
    def blocks(self) -> int:
        """How many blocks were begun since `allocate`."""
        return self._blocks

    @property
    def bytes_up(self) -> int:
        return sum(lane.bytes_up for lane in self.both)

    @property
    def bytes_down(self) -> int:
        return sum(lane.bytes_down for lane in self.both)

    def next(self, level: int) -> Lane:
        """The lane for the next block, emptied."""
        lane = self.both[self._turn]
        self._turn = 1 - self._turn
        lane.begin(level, self.take_number())
        return lane

    def take_number(self) -> int:
        """The number of the next block, in these lanes or in one beside them."""
        self._blocks += 1
        return self._blocks - 1

    def allocate(self, **sizes: int) -> None:
        """Buffers of each lane, by name, in place of those it had."""
        self._reset()
        for lane in self.both:
            for name, nbytes in sizes.items():
                lane.add_buffer(name, nbytes)

    def finish(self) -> None:
        """Finish both lanes, the older block first."""
        for lane in (self.both[self._turn], self.both[1 - self._turn]):
            lane.finish()

    def _reset(self) -> None:
        """Forget buffers and counts; nothing may be under way."""
        self._blocks = 0
        for lane in self.both:
            lane.buffers = {}
            lane.bytes_up = lane.bytes_down = 0

    def abandon(self) -> None:
        """Wait for the device, so that its memory may go, whatever has become of the blocks."""
        for lane in self.both:
            with contextlib.suppress(Exception):
                lane.stream.synchronize()
            lane._steps.clear()
            lane._merge = None
        self._reset()
