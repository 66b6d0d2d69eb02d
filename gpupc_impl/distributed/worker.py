"""The functions that Dask runs on a worker: those that begin and end a search, and the tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, backend_class
from gpupc_impl.distributed import device, machine, panel_plan, shards
from gpupc_impl.distributed.row_search import search_rows
from gpupc_impl.distributed.spec import RowGroup, SearchSpec
from gpupc_impl.distributed.worker_search import search_block
from gpupc_impl.distributed.worker_state import WorkerState

Result = TypeVar("Result")

MOST_SENT = 1 << 14
"""Upper bound on the remaining pairs of a block that a task's outcome brings to the client; more pairs are read from
the block's shard."""

ATTEMPTS = 20
"""Upper bound on the checks, with pauses of 10 ms, whether a backend has been freed and whether there is memory.

Dask may refer to an error, and thereby to the frames of a task, for a short time.
"""

_opening = threading.Lock()
"""The lock for the creation of a state, since one process may have several workers."""


class StateHolder:
    """The one state that a worker has in memory, and the number of tasks that use it.

    A task of another search waits until the tasks that use the state have ended, even if their client has died, and
    then replaces the state.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state: WorkerState | None = None
        self._users = 0
        self._is_over = False

    def take(self, spec: SearchSpec) -> WorkerState:
        """Return the state of the search; each call must be followed by `give_back`."""
        with self._changed:
            self._changed.wait_for(lambda: self._belongs_to(spec.key) or not self._users)
            if not self._belongs_to(spec.key):
                self._drop()
                with _opening:
                    self._state = WorkerState(spec)
            assert self._state is not None
            self._users += 1
            return self._state

    def give_back(self) -> None:
        with self._changed:
            self._users -= 1
            if self._is_over and not self._users:
                self._drop()
            self._changed.notify_all()

    def forget(self, key: str | None = None) -> None:
        """Drop the state of the search with this key (None: of any search) as soon as no task uses the state."""
        with self._changed:
            if key is None or self._belongs_to(key):
                self._is_over = True
                if not self._users:
                    self._drop()

    def _belongs_to(self, key: str) -> bool:
        return self._state is not None and self._state.spec.key == key

    def _drop(self) -> None:
        self._is_over = False
        if self._state is None:
            return
        backend, self._state = weakref.ref(self._state.backend), None
        # A backend and its kernels form a reference cycle, which keeps the memory pool alive until garbage collection.
        for _ in range(ATTEMPTS):
            gc.collect()
            if backend() is None:
                break
            time.sleep(0.01)  # gc.collect() does nothing while another thread runs it


def _holder(worker: Any) -> StateHolder:
    holder: StateHolder = worker.__dict__.setdefault("_gpupc_state_holder", StateHolder())
    return holder


async def probe(backend: str, device_memory_limit: int | None, dask_worker: Any = None) -> dict[str, Any]:
    """Return the code, device and memory of a worker; the state of an earlier search is dropped first.

    Returns:
        code, machine, and either unavailable (the reason) or describe, gpu (None on CPU cores), host_memory,
        device_memory and on_host.
    """
    await asyncio.to_thread(_holder(dask_worker).forget)
    if backend != "host":
        gc.collect()  # frees arrays of tasks that outlived their search
    kind = backend_class(backend)
    offer: dict[str, Any] = {"code": machine.code_digest(), "machine": socket.gethostname()}
    if reason := kind.unavailable():
        return offer | {"unavailable": reason}
    opened = kind(device_memory_limit)
    offer |= {"describe": opened.describe(), "gpu": opened.device_key(), "host_memory": machine.free_memory()}
    return offer | {"device_memory": opened.memory_limit, "on_host": opened.warp_threads == 1}


async def prepare(spec: SearchSpec, dask_worker: Any = None) -> None:
    """Bring the numbers to the worker's device.

    The function runs in a thread beside the event loop, since it may have to wait for another search.
    """
    await asyncio.to_thread(_with_state, dask_worker, spec, lambda state: device.prefetch(state.backend, 1))


async def forget(key: str, dask_worker: Any = None) -> None:
    """Drop the worker's state of a search."""
    await asyncio.to_thread(_holder(dask_worker).forget, key)


def _with_state(worker: Any, spec: SearchSpec, work: Callable[[WorkerState], Result]) -> Result:
    """Call a function with the search's state, and return the result."""
    holder = _holder(worker)
    state = holder.take(spec)
    try:
        return work(state)
    finally:
        del state  # No reference is left when another search replaces the state.
        holder.give_back()


def _with_room(work: Callable[[], Result]) -> Result:
    """Call a function, again if memory is short, and return the result.

    Dask's profiler refers to the frames of tasks for a short time, and so keeps the arrays of an ended task alive.
    """
    for _ in range(ATTEMPTS):
        with contextlib.suppress(DeviceMemoryError):
            return work()
        time.sleep(0.01)
    return work()


def block_task(spec: SearchSpec, i: int, j: int) -> dict[str, Any]:
    """Run the task that writes the shard of a block of levels 0 and 1."""
    from distributed import get_worker

    def work(state: WorkerState) -> dict[str, Any]:
        with state.lock:
            state.begin()
            counts, arrays = _with_room(lambda: search_block(state, i, j))
            facts = state.facts()
        arrays["members"] = arrays["members"].astype(np.uint16 if spec.plan.p <= 1 << 16 else np.int32, copy=False)
        left = spec.plan.pairs(i, j, arrays["left"]) if panel_plan.count_bits(arrays["left"]) <= MOST_SENT else None
        sent = {"left": left, "degrees": arrays.get("degrees")}
        return _write(spec, spec.shards.block(i, j), counts, arrays, facts) | sent

    return _with_state(get_worker(), spec, work)


def rows_task(spec: SearchSpec, level: int, critical: float, group: RowGroup) -> dict[str, Any]:
    """Run the task that writes the shard of a group of rows at a level from 2 on."""
    from distributed import get_worker

    def work(state: WorkerState) -> dict[str, Any]:
        device.prefetch(state.backend, level)
        with state.lock:
            state.begin()
            state.drop_panels()
            counts, arrays = _with_room(lambda: search_rows(state, level, critical, group))
            facts = state.facts()
        return _write(spec, spec.shards.rows(level, group.name), counts, arrays, facts)

    return _with_state(get_worker(), spec, work)


def _write(
    spec: SearchSpec, path: Path, counts: dict[str, Any], arrays: Mapping[str, np.ndarray], facts: dict[str, Any]
) -> dict[str, Any]:
    """Write a shard, and return the task's outcome: the shard's counts, and the worker, seconds and bytes of the
    task."""
    from distributed import get_worker

    started = time.perf_counter()
    size = shards.write(path, spec.identity, counts, arrays)
    facts["seconds"]["write"] = time.perf_counter() - started
    return {**counts, "worker": str(get_worker().name), "bytes": size, "made": facts}
