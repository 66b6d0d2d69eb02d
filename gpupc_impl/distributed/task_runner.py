"""Runs the tasks of a level on a cluster, except tasks whose shards exist already, and records their seconds and
bytes."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.distributed import shards, supervision
from gpupc_impl.distributed.spec import SearchSpec
from gpupc_impl.distributed.supervision import ClusterFailure, WorkerWatch
from gpupc_impl.views.progress import bar

logger = logging.getLogger("gpupc_impl.distributed")


class TaskRunner:
    """Runs tasks of one search.

    Attributes:
        levels: the facts that are recorded of each step: tasks, seconds and, by worker, seconds and bytes.

    Args:
        folder: the folder of shards that the user named; empty for a temporary folder.
        show_progress: whether the runner may show a progress bar.
        backend: the client's backend, whose clock leaves out the time for which workers waited for compilers.
    """

    def __init__(self, client: Any, spec: SearchSpec, folder: str, show_progress: bool, backend: Backend):
        self._client, self._spec, self._show_progress, self._backend = client, spec, show_progress, backend
        self._advice = "search again, with folder=... to keep finished shards"
        if folder:
            self._advice = f"search again with folder={folder!r}, which makes only the missing shards"
        self._numbers: dict[str, str] = {}  # numbers of workers by name
        self.levels: list[dict[str, Any]] = []

    def run(
        self,
        title: str,
        function: Callable[..., Any],
        tasks: Sequence[tuple],
        paths: Sequence[Path],
        preferred: Sequence[str | None],
        check: Callable[[int, dict[str, Any], dict[str, Any]], None],
    ) -> list[dict[str, Any]]:
        """Run tasks, and return their outcomes in their order.

        Args:
            title: title of the step in messages.
            function: the function that a task calls with the spec and the task's arguments.
            tasks: the arguments of each task.
            paths: the shard of each task, all in one folder.
            check: raises ValueError if the outcome and the arrays in a shard, by the number of its task, cannot be
                the result of the task.
            preferred: the address of the worker that should run each task; another, idle worker may run the task.

        Raises:
            ClusterFailure: the scheduler or too many workers were lost.
        """
        from distributed import KilledWorker

        outcomes = _read_outcomes(paths, self._spec.identity, check)
        missing = [k for k, outcome in enumerate(outcomes) if outcome is None]
        logger.info("%s: %d tasks, %d of them done before", title, len(tasks), len(tasks) - len(missing))
        started = time.perf_counter()
        futures = {}
        for n, k in enumerate(missing):
            where = {} if preferred[k] is None else {"workers": preferred[k], "allow_other_workers": True}
            futures[self._client.submit(function, self._spec, *tasks[k], pure=False, priority=-n, **where)] = k
        task_error: BaseException | None = None
        try:
            with contextlib.closing(self._completed(title, list(futures), len(tasks))) as completed:
                for future, outcome in completed:
                    if future.status == "error":
                        task_error = outcome[1].with_traceback(outcome[2])
                        raise task_error
                    if isinstance(outcome, BaseException):  # the task was lost with the scheduler
                        raise outcome
                    outcomes[futures.pop(future)] = outcome
        except (CancelledError, KilledWorker, OSError) as error:
            if error is task_error and not isinstance(error, KilledWorker):  # the task failed, as on a full disk
                error.add_note(f"{title}: a task failed on a worker; {self._advice}")
                raise
            reason = f"the cluster failed ({type(error).__name__}: {error})"
            raise ClusterFailure(f"{title}: {reason}; {self._advice}") from error
        finally:
            if futures:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(futures))
        self._record(title, outcomes, len(missing), time.perf_counter() - started)
        return outcomes

    def _completed(self, title: str, futures: list[Any], total: int) -> Iterator[tuple[Any, Any]]:
        """Yield futures and their results in the order of completion; a progress bar and messages show their number."""
        from distributed import as_completed

        completed = as_completed(futures, loop=self._client.loop, with_results=True, raise_errors=False)
        watch = WorkerWatch(self._client, title, self._advice)
        started = last_message = time.perf_counter()
        done = 0
        wanted = None if self._show_progress else False
        with bar(wanted, total, title, " tasks", done=total - len(futures)) as shown:
            while not completed.is_empty():
                if completed.has_ready():
                    yield next(completed)
                    done += 1
                    shown.update()
                    now = time.perf_counter()
                    if now - last_message >= supervision.MESSAGE_INTERVAL:
                        last_message = now
                        remaining = (now - started) * (len(futures) - done) / done
                        logger.info("%s: %d of %d tasks, about %.0f s left", title, done, len(futures), remaining)
                else:
                    time.sleep(0.005)
                watch.check()

    def _record(self, title: str, outcomes: list[dict[str, Any]], made: int, seconds: float) -> None:
        """Record the seconds and bytes of a level's tasks."""
        workers: dict[str, dict[str, Any]] = {}
        compile_seconds: Counter[str] = Counter()
        task_seconds = []
        for outcome in outcomes:
            if "made" not in outcome:  # The outcome was read from its shard.
                continue
            facts = outcome["made"]
            # Workers are recorded by number, since a name may be an address.
            number = self._numbers.setdefault(outcome["worker"], str(len(self._numbers)))
            worker = workers.setdefault(number, {"tasks": 0, "bytes": 0, "seconds": Counter()})
            worker["tasks"] += 1
            worker["bytes"] += outcome["bytes"]
            worker["seconds"].update(facts["seconds"])
            compile_seconds[number] += facts["compile_seconds"]
            for name in ("panels_made", "panels_held", "peak_device_bytes"):
                worker[name] = max(worker.get(name, 0), facts[name])
            task_seconds.append(sum(facts["seconds"].values()))
        for worker in workers.values():
            worker["seconds"] = dict(worker["seconds"])
        self._backend.compile_seconds += (waited := max(compile_seconds.values(), default=0.0))
        self.levels.append(
            {
                "step": title,
                "tasks": len(outcomes),
                "made": made,
                "seconds": max(0.0, seconds - waited),
                "task_seconds": task_seconds,
                "workers": workers,
            }
        )


def _read_outcomes(
    paths: Sequence[Path], search: str, check: Callable[[int, dict[str, Any], dict[str, Any]], None]
) -> list[Any]:
    """Return the outcome in each intact shard, or None; the shards' folder is created if it does not exist.

    The function lists the folder, since a network file system may cache for long that a single file was missing.
    """
    names = {}
    for folder in {path.parent for path in paths}:
        folder.mkdir(exist_ok=True)
        names[folder] = set(os.listdir(folder))
    return [
        shards.read(path, search, functools.partial(check, k)) if path.name in names[path.parent] else None
        for k, path in enumerate(paths)
    ]
