"""Dask clusters: the one of this machine that is started where none is given, and what is asked of any."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpupc_impl.backends import BackendUnavailable, backend_class
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import InvalidParameter, Parameter, needs_package
from gpupc_impl.distributed._plan import THREADS

MEMORY_SHARE = 0.8
"""Of what a GPU has free, or of a machine's memory that its workers share; the rest is for what is not counted."""


GROUPS = Path("/sys/fs/cgroup")
"""Linux's control groups (version 2)."""

ROOMS = ("distributed", "engine", "gaussian", "out_of_core")
"""Folders of the package whose modules a search uses on a worker."""


def missing() -> str | None:
    """What to say where Dask is not installed."""
    if needs_package("distributed", "distributed")() is None:
        return None
    return "the package distributed (Dask) is not installed; pip install 'gpupc[distributed]'"


class ClientAddress(str):
    """The address of a scheduler, or no text for a cluster of this machine; `client` is one that a user gave."""

    client: Any = None


class ClientParameter(Parameter):
    """A parameter that takes a Dask client, None, or the address of a scheduler."""

    def parse(self, name: str, value: Any) -> ClientAddress:
        if isinstance(value, ClientAddress):
            return value
        if value is None or isinstance(value, str):
            return ClientAddress(value or "")
        if not hasattr(value, "scheduler_info"):
            raise InvalidParameter(
                f"parameter {name} is {value!r}; it must be a distributed.Client or the address of a scheduler"
            )
        address = ClientAddress("given")
        address.client = value
        return address


class FolderParameter(Parameter):
    """A parameter that takes a folder, or None for a temporary one."""

    def parse(self, name: str, value: Any) -> Any:
        return super().parse(name, "" if value is None else os.fspath(value) if isinstance(value, Path) else value)


@contextlib.contextmanager
def open_client(address: ClientAddress, backend: str, workers: int) -> Iterator[Any]:
    """A client: the one that is given, of the scheduler at an address, or of a cluster of this machine.

    Args:
        workers: of a cluster of this machine; 0: one a GPU, or one for all cores.

    Raises:
        InvalidParameter: more workers are asked for than there are GPUs, or of a cluster that is given; or no scheduler
            answers at the address.
        BackendUnavailable: this machine cannot run kernels there.
    """
    from distributed import Client

    if address and workers:
        raise InvalidParameter(
            f"parameter workers is {workers}, and a client is given, whose cluster has its own workers: leave one out"
        )
    if address.client is not None:
        yield address.client
    elif address:
        with _connect(address) as client:
            yield client
    else:
        if reason := backend_class(backend).unavailable():
            raise BackendUnavailable(
                f"workers of a cluster of this machine cannot run kernels on {backend}: {reason}; give the client of "
                "another cluster (client=...), or another backend (workers_on=...)"
            )
        with _local_cluster(backend, workers) as cluster, Client(cluster) as client:
            yield client


def _connect(address: str) -> Any:
    """A client of the scheduler at an address."""
    from distributed import Client

    try:
        return Client(address)
    except (OSError, ValueError) as error:
        raise InvalidParameter(
            f"parameter client is {str(address)!r}, where no scheduler answers ({error}): give the address of one that "
            "runs, as tcp://HOST:PORT, or leave it out for a cluster of this machine"
        ) from error


def _local_cluster(backend: str, workers: int) -> Any:
    """A cluster of this machine: a process a GPU, or processes that share the cores; one of the latter is this one."""
    from distributed import LocalCluster

    # Memory is counted by the search, so Dask neither spills nor ends a worker; nothing listens beyond this machine.
    common: dict[str, Any] = {"memory_limit": 0, "dashboard_address": "127.0.0.1:0", "threads_per_worker": THREADS}
    if backend == "cuda":
        return _gpu_cluster(workers, common)
    workers = workers or 1
    if workers == 1:
        return LocalCluster(n_workers=1, processes=False, **common)
    threads = os.environ.get("GPUPC_HOST_THREADS", str(max(1, available_cores() // workers)))
    return LocalCluster(n_workers=workers, processes=True, env={"GPUPC_HOST_THREADS": threads}, **common)


def _gpu_cluster(workers: int, common: dict[str, Any]) -> Any:
    from distributed import Nanny, Scheduler, SpecCluster

    devices = _visible_devices()
    workers = workers or len(devices)
    if workers > len(devices):
        raise InvalidParameter(
            f"parameter workers is {workers}; at most {len(devices)} on this machine, a GPU for each: leave it out"
        )
    specs = {
        number: {
            "cls": Nanny,
            "options": {
                "nthreads": common["threads_per_worker"],
                "memory_limit": 0,
                "dashboard_address": None,
                "host": "127.0.0.1",
                "env": {"CUDA_VISIBLE_DEVICES": device, "GPUPC_CUDA_DEVICE": ""},  # the first that it sees
            },
        }
        for number, device in enumerate(devices[:workers])
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "dashboard": False, "host": "127.0.0.1"}}
    return SpecCluster(workers=specs, scheduler=scheduler, silence_logs=logging.WARNING)


def _visible_devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    import cupy

    return [str(number) for number in range(cupy.cuda.runtime.getDeviceCount())]


@functools.cache
def code() -> str:
    """Digest of the kernels and of what makes their arguments: what the client and all workers must have alike."""
    digest = hashlib.sha256()
    modules = (path for room in ROOMS for path in (PACKAGE_ROOT / room).rglob("*.py"))
    for path in sorted([*PACKAGE_ROOT.rglob("*.cu*"), *modules]):
        digest.update(str(path.relative_to(PACKAGE_ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def host_device_bytes(free: int) -> int:
    """What a worker on CPU cores may take in place of a device's memory, of free bytes of its machine."""
    return int(0.75 * MEMORY_SHARE * free)


def free_memory() -> int:
    """Bytes of this machine's memory that are free for this process: within its control group, where it has one."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for group in (GROUPS / own, *(GROUPS / own).parents):
            with contextlib.suppress(OSError, ValueError):  # no such file, or the limit is "max"
                free = min(free, int((group / "memory.max").read_text()) - _in_use(group))
    return max(0, free)


def _in_use(group: Path) -> int:
    """Bytes of a control group, without pages of files that can be dropped."""
    counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int((group / "memory.current").read_text()) - int(counts.get("inactive_file", 0))
