"""Workers of a Dask cluster: how the client finds and calls them, and how they exchange arrays with each other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import hashlib
import logging
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import BackendUnavailable, backend_class, open_backend
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.distributed.communicator import Communicator
from gpupc_impl.distributed.team import ClusterFailure, Team, WorkersLost
from gpupc_impl.distributed.worker import Worker
from gpupc_impl.gaussian.problem import GaussianProblem

logger = logging.getLogger("gpupc_impl.distributed")

WORKER_TIMEOUT = 600.0  # seconds for which a cluster may have no worker
MESSAGE_INTERVAL = 30.0  # seconds between messages about the wait for workers
PIECE_BYTES = 1 << 22
HOST_SHARE = 0.6  # of its part of a machine's free memory, which a worker on cores takes in place of device memory
CONTROL_GROUPS = Path("/sys/fs/cgroup")
WORKER_PACKAGES = ("distributed", "engine", "gaussian", "out_of_core")  # whose modules a worker uses
_collecting = threading.Lock()  # a process may have several workers, and a concurrent `gc.collect` does nothing
TAKEN = "another search has taken the workers of the cluster"

# --- on a worker -----------------------------------------------------------------------------------------------------


class ClusterCommunicator(Communicator):
    """The connection of a worker of a Dask cluster, which sends values over Dask's own connections. It has no backend
    until the worker is open, since the others may send values or fail before."""

    def __init__(self, key: str, number: int, addresses: Sequence[str], dask_worker: Any):
        self.key, self.number, self.size = key, number, len(addresses)
        self._addresses, self._dask_worker, self._turn = addresses, dask_worker, 0
        self.is_broken = False
        self._sending: Future[None] | None = None
        self._changed = threading.Condition()
        self._values: dict[tuple[int, int], Any] = {}

    async def put(self, key: str, turn: int, sender: int, value: Any) -> str:
        """Take what another worker has sent, unless that worker is of another search."""
        if key == self.key:
            with self._changed:
                self._values[turn, sender] = value
                self._changed.notify_all()
        return "OK"

    def _take(self, sender: int) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self.is_broken or (self._turn, sender) in self._values)
            self.check()
            return self._values.pop((self._turn, sender))

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        from distributed.protocol import to_serialize

        self._turn += 1
        others = [number for number in range(self.size) if number != self.number]

        async def send() -> None:
            facts = {"key": self.key, "turn": self._turn, "sender": self.number}
            calls = [
                self._dask_worker.rpc(self._addresses[number]).gpupc_put(**facts, value=to_serialize(values[number]))
                for number in others
            ]
            await asyncio.gather(*calls)

        if others:
            try:
                self._sending = asyncio.run_coroutine_threadsafe(send(), self._dask_worker.loop.asyncio_loop)
                self.check()
                self._sending.result()
                self._sending = None
            except (OSError, CancelledError) as error:  # The client finds out who is gone.
                self.abort()
                raise threading.BrokenBarrierError from error
        return [self._take(number) if number in others else values[number] for number in range(self.size)]

    def _sent(self, array: Any) -> np.ndarray:
        # On CPU cores a part would be a view of an array that changes while the message is on its way.
        return np.array(self.backend.download(array))

    def _put(self, to: Any, sent: np.ndarray) -> None:
        """Upload as many rows at a time as the rest of the budget has room for."""
        free = self.backend.memory_limit - self.backend.memory_used
        rows = max(1, min(PIECE_BYTES, free // 2) * len(sent) // max(1, sent.nbytes))
        for piece in mapped_arrays.pieces(len(sent), rows):
            to[piece] = self.backend.upload(sent[piece])

    def abort(self) -> None:
        with self._changed:
            self.is_broken = True
            self._changed.notify_all()
            if self._sending is not None:
                self._sending.cancel()


class Membership:
    """A Dask worker's part in a search. One thread opens the worker and makes the client's calls, one after another."""

    def __init__(self, communicator: ClusterCommunicator, problem: GaussianProblem, *device: Any):
        self.communicator, self.is_taken = communicator, False
        self._problem, self._device = problem, device
        self.thread = ThreadPoolExecutor(1, "gpupc-worker")
        self._worker: Worker | None = None

    def run(self, method: str, arguments: Sequence[Any]) -> tuple[bool, Any]:
        try:
            if self._worker is None:
                self.communicator.backend = open_backend(*self._device)
                self._worker = Worker(self._problem, self.communicator)
            return True, getattr(self._worker, method)(*arguments)
        except BaseException as error:
            self.communicator.abort()
            return False, ClusterFailure(TAKEN) if self.is_taken else error.with_traceback(None)

    def drop(self) -> None:
        """Free the memory of the worker."""
        self._worker = None
        vars(self.communicator).pop("backend", None)
        # A backend and its kernels form a reference cycle, which keeps the memory pool alive until garbage collection.
        with _collecting:
            gc.collect()


@functools.cache
def code_digest() -> str:
    """Return the digest of the kernels and of the modules that fill their arguments, which all machines must share."""
    digest = hashlib.sha256()
    modules = (path for package in WORKER_PACKAGES for path in (PACKAGE_ROOT / package).rglob("*.py"))
    for path in sorted([*PACKAGE_ROOT.rglob("*.cu*"), *modules]):
        digest.update(str(path.relative_to(PACKAGE_ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def free_memory() -> int:
    """Return the free bytes of this machine's memory, or of this process's control group if the group has fewer."""
    import psutil  # which Dask needs as well

    free: int = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for group in (CONTROL_GROUPS / own, *(CONTROL_GROUPS / own).parents):
            with contextlib.suppress(OSError, ValueError):  # a file does not exist, or the limit is "max"
                limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
                counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                used -= int(counts.get("inactive_file", 0))  # pages of files that the system can drop
                free = min(free, limit - used)
    return max(0, free)


async def offer(backend: str, device_memory_limit: int | None, dask_worker: Any = None) -> dict[str, Any]:
    """Return the code, device and memory of a worker, which leaves the search that it may still belong to: ``code``,
    ``machine``, and either ``unavailable`` (the reason) or ``device``, ``gpu`` (None on CPU cores), and ``memory`` (the
    free bytes of the machine; None on a GPU, which has memory of its own)."""
    await leave(dask_worker=dask_worker)
    kind = backend_class(backend)
    offered: dict[str, Any] = {"code": code_digest(), "machine": socket.gethostname()}
    if reason := kind.unavailable():
        return offered | {"unavailable": reason}
    opened = kind(device_memory_limit)
    memory = free_memory() if opened.warp_threads == 1 else None
    return offered | {"device": opened.describe(), "gpu": opened.device_key(), "memory": memory}


async def join(
    key: str, number: int, addresses: Sequence[str], *problem_and_device: Any, dask_worker: Any = None
) -> None:
    """Become a worker of a search, given the arguments of `Membership` after the first."""
    await leave(dask_worker=dask_worker)
    communicator = ClusterCommunicator(key, number, addresses, dask_worker)
    dask_worker.handlers["gpupc_put"] = communicator.put
    dask_worker.gpupc_membership = Membership(communicator, *problem_and_device)


async def call(key: str, method: str, arguments: Sequence[Any], dask_worker: Any = None) -> tuple[bool, Any]:
    """Call a method of the worker; returns whether it succeeded, and its result or its error."""
    if membership := _membership(key, dask_worker):
        return await asyncio.wrap_future(membership.thread.submit(membership.run, method, arguments))
    return False, ClusterFailure(TAKEN)


async def stop(key: str, dask_worker: Any = None) -> None:
    """Make the worker's present call fail, if it waits for other workers."""
    if membership := _membership(key, dask_worker):
        membership.communicator.abort()


async def leave(key: str | None = None, dask_worker: Any = None) -> None:
    """Free the memory of the search with this key; None stands for any search, whose workers are taken thereby."""
    if membership := _membership(key, dask_worker):
        membership.is_taken = key is None
        del dask_worker.gpupc_membership
        dask_worker.handlers.pop("gpupc_put", None)
        membership.communicator.abort()
        await asyncio.wrap_future(membership.thread.submit(membership.drop))  # after its present call
        membership.thread.shutdown(wait=False)


def _membership(key: str | None, dask_worker: Any) -> Membership | None:
    """Return the worker's part in the search with a key, or in any search; None if it has none."""
    membership: Membership | None = getattr(dask_worker, "gpupc_membership", None)
    return membership if membership and key in (None, membership.communicator.key) else None


# --- on the client ---------------------------------------------------------------------------------------------------


class ClusterTeam(Team):
    """Workers of a Dask cluster: all that the cluster has now."""

    def __init__(self, client: Any, problem: GaussianProblem, backend: str, device_memory_limit: int | None):
        self._client, self._key = client, uuid.uuid4().hex
        offers = _offers(client, backend, device_memory_limit)
        self._addresses = sorted(offers)
        self.size, self.devices = len(offers), [offers[address]["device"] for address in self._addresses]
        machines = Counter(each["machine"] for each in offers.values())
        sent = dataclasses.replace(problem, samples=None, correlation=None)
        for number, address in enumerate(self._addresses):
            limit, memory = device_memory_limit, offers[address]["memory"]
            if limit is None and memory is not None:
                limit = int(HOST_SHARE * memory / machines[offers[address]["machine"]])
            self._run(address, join, number, self._addresses, sent, backend, limit)

    def _run(self, address: str, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        try:
            return self._client.run(function, self._key, *arguments, workers=[address])
        except Exception as error:  # a worker's own errors are answers, so this one is of a connection
            raise WorkersLost(f"a worker was lost ({type(error).__name__}: {error})") from error

    def _call(self, number: int, method: Callable[..., Any], *arguments: Any) -> Any:
        address = self._addresses[number]
        succeeded, result = self._run(address, call, method.__name__, arguments)[address]
        if not succeeded:
            raise result
        return result

    def _abort(self) -> None:
        self._on_present(stop)

    def close(self) -> None:
        self._on_present(leave)

    def _on_present(self, function: Callable[..., Any]) -> None:
        with contextlib.suppress(Exception):  # the cluster itself may have failed
            present = set(self._client.scheduler_info(n_workers=-1)["workers"]) & set(self._addresses)
            self._client.run(function, self._key, workers=sorted(present), on_error="ignore")


def _offers(client: Any, backend: str, device_memory_limit: int | None) -> dict[str, dict[str, Any]]:
    """Return the answers of all present workers to `offer`, by address; there is at least one."""
    started = last = time.monotonic()
    while True:
        try:
            offers: dict[str, dict[str, Any]] = client.run(offer, backend, device_memory_limit)
            if offers:
                break
        except Exception as error:
            try:
                client.run_on_scheduler(lambda: None)
            except Exception:
                raise ClusterFailure(f"the cluster failed ({error})") from error
            if not isinstance(error, OSError):  # a worker was not lost meanwhile, but failed
                raise
        now = time.monotonic()
        if now - started >= WORKER_TIMEOUT:
            raise ClusterFailure(f"the cluster has had no worker for {now - started:.0f} s")
        if now - last >= MESSAGE_INTERVAL:
            last = now
            logger.warning("the cluster has 0 workers; one is waited for, %.0f s so far", now - started)
        time.sleep(0.1)
    code = code_digest()
    gpu_users: dict[str, str] = {}
    for address, offered in offers.items():
        if offered["code"] != code:
            raise BackendUnavailable(f"worker {address} has another version of gpupc; install one everywhere")
        if "unavailable" in offered:
            raise BackendUnavailable(f"worker {address} cannot run kernels on {backend}: {offered['unavailable']}")
        if offered["gpu"] is not None and device_memory_limit is None and offered["gpu"] in gpu_users:
            raise InvalidParameter(
                f"workers {gpu_users[offered['gpu']]} and {address} have the same GPU: give each one of its own "
                "(CUDA_VISIBLE_DEVICES), or say what a worker may take of it (device_memory_limit)"
            )
        gpu_users[offered["gpu"]] = address
    return offers


def connected(address: str) -> Any:
    """Return a client of the scheduler at an address, which is a context manager."""
    from distributed import Client

    try:
        return Client(address, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without keys, or an unfinished scheme
        raise InvalidParameter(
            f"parameter client is {address!r}, where no scheduler answers ({error}): give the address of one that "
            "runs, as tcp://HOST:PORT, or leave it out for workers of this process"
        ) from error
