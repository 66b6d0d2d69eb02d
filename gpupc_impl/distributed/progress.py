"""The steps of a search: their durations on a worker, and their progress on a terminal or in the log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

from gpupc_impl.distributed.communicator import Communicator
from gpupc_impl.views.progress import bar

logger = logging.getLogger("gpupc_impl.distributed")

MESSAGE_INTERVAL = 30.0  # seconds between messages about the progress of a level, or about a wait for workers


class Laps:
    """The durations of a worker's steps."""

    def __init__(self, communicator: Communicator):
        self._communicator = communicator
        self.seconds: Counter[str] = Counter()
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begin the next step now."""
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the previous call to a step."""
        self._communicator.check()
        self._communicator.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now


@contextlib.contextmanager
def stage(show: bool, log: Callable[..., None], title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show the progress of a stage by a bar or by messages; yields a function of the number of completed units."""
    started = last = time.perf_counter()
    done = 0
    with bar(None if show else False, total, title, unit) as shown:

        def update(units: int) -> None:
            nonlocal done, last
            done, now = done + units, time.perf_counter()
            shown.update(units)
            if now - last >= MESSAGE_INTERVAL:
                last = now
                left = (now - started) * (total - done) / done
                log("%s: %d of %d%s, about %.0f s left", title, done, total, unit, left)

        yield update
