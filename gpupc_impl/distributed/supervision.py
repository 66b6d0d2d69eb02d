"""The supervision of a search: its progress, the turns that searches take on a cluster, and lost workers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.views.progress import bar

logger = logging.getLogger("gpupc_impl.distributed")

MESSAGE_INTERVAL = 30.0
"""Seconds between messages about the progress of a level, or about a wait for workers."""

WORKER_TIMEOUT = 600.0
"""Seconds for which a cluster may have no worker."""


class ClusterFailure(RuntimeError):
    """The cluster ended before the search; the message says how to go on."""


class WorkerWatch:
    """Checks from time to time whether a cluster has workers.

    Args:
        title: title of the step that needs workers.
        advice: how to go on after a failure.
    """

    def __init__(self, client: Any, title: str, advice: str):
        self._client, self._title, self._advice = client, title, advice
        self._last_check = self._last_seen = time.monotonic()

    def check(self) -> None:
        """Ask the scheduler for workers, at most every `MESSAGE_INTERVAL` seconds, and log if there is none.

        Raises:
            ClusterFailure: there has been no worker for `WORKER_TIMEOUT` seconds.
        """
        now = time.monotonic()
        if now - self._last_check < MESSAGE_INTERVAL:
            return
        self._last_check = now
        if self._client.scheduler_info(n_workers=-1)["workers"]:
            self._last_seen = now
            return
        seconds = now - self._last_seen
        if seconds >= WORKER_TIMEOUT:
            raise ClusterFailure(f"{self._title}: the cluster has had no worker for {seconds:.0f} s; {self._advice}")
        logger.warning("%s: the cluster has 0 workers; one is waited for, %.0f s so far", self._title, seconds)


@contextlib.contextmanager
def turn(client: Any) -> Iterator[None]:
    """Hold a lock of the cluster while a search runs: other searches wait, since each plans with the whole memory of
    the workers.

    A client that dies loses its turn after `distributed.scheduler.locks.lease-timeout`, which is 30 s by default.

    Raises:
        ClusterFailure: the scheduler died.
    """
    from distributed import Semaphore

    turns = Semaphore(1, "gpupc-search", scheduler_rpc=client.scheduler, loop=client.loop)
    try:
        while not turns.acquire(MESSAGE_INTERVAL):
            logger.warning("before level 0: another search is at work on the cluster; its end is waited for")
    except OSError as error:
        raise ClusterFailure(f"before level 0: the cluster failed ({error}); start one, and search again") from error
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the cluster itself may have failed
            turns.release()
            client.loop.add_callback(turns.refresh_callback.stop)  # Dask would refresh until the client ends


def run_on_workers(client: Any, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Run a function on all present workers, and return the results by address.

    Raises:
        ClusterFailure: a worker was lost during the call.
    """
    try:
        results: dict[str, Any] = client.run(function, *arguments)
        return results
    except OSError as error:
        raise ClusterFailure(f"before level 0: a worker was lost ({error}); search again") from error


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
