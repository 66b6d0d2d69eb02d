"""Dask clusters: the parameters that name one, and the cluster of this machine that is started by default."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpupc_impl.backends import BackendUnavailable, backend_class
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import InvalidParameter, Parameter, needs_package
from gpupc_impl.distributed.panel_plan import THREADS

LOOPBACK = "127.0.0.1"


def missing() -> str | None:
    """Return the reason why the method cannot run if Dask is not installed, otherwise None."""
    if needs_package("distributed", "distributed")() is None:
        return None
    return "the package distributed (Dask) is not installed; pip install distributed cryptography"


class ClientAddress(str):
    """The address of a scheduler, or empty for a cluster of this machine.

    Attributes:
        client: the `distributed.Client` that a user passed, if any.
    """

    client: Any = None


class ClientParameter(Parameter):
    """A parameter that takes a Dask client, the address of a scheduler, or None."""

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
    """A parameter that takes the path of a folder, or None for a temporary folder."""

    def parse(self, name: str, value: Any) -> Any:
        return super().parse(name, "" if value is None else os.fspath(value) if isinstance(value, Path) else value)


@contextlib.contextmanager
def open_client(address: ClientAddress, backend: str, workers: int) -> Iterator[Any]:
    """Yield the client that the user passed, or a client of the scheduler at the address or of a new cluster of this
    machine.

    Args:
        backend: where the workers run kernels.
        workers: the number of workers of a new cluster; 0 stands for one worker for each GPU, or one for all cores.

    Raises:
        InvalidParameter: there are fewer GPUs than workers; or `workers` is set for a cluster that runs already; or no
            scheduler answers at the address.
        BackendUnavailable: this machine cannot run kernels on the backend, or lacks the package that makes TLS keys.
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
        with (
            tempfile.TemporaryDirectory(prefix="gpupc-", ignore_cleanup_errors=True) as folder,
            _local_cluster(backend, workers, folder) as cluster,
            Client(cluster) as client,
        ):
            yield client


def _connect(address: str) -> Any:
    """Return a client of the scheduler at an address."""
    from distributed import Client

    try:
        return Client(address)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without keys, or an unfinished scheme
        raise InvalidParameter(
            f"parameter client is {str(address)!r}, where no scheduler answers ({error}): give the address of one that "
            "runs, as tcp://HOST:PORT, or leave it out for a cluster of this machine"
        ) from error


def _local_cluster(backend: str, workers: int, folder: str) -> Any:
    """Return a cluster of this machine: a process for each GPU, or processes that share the cores.

    A single worker on CPU cores runs in this process. Anybody who can connect to a scheduler or a worker can run code
    in it. A cluster within this process therefore listens on no port, and processes of a cluster communicate by TLS
    with a key that no other process has. The web pages about the state of the cluster are on the loopback interface.

    Args:
        folder: an empty folder of the caller alone, in which Dask locks files and from which it imports modules. By
            default Dask does so in a folder of the system's temporary one, which another user may have made.
    """
    from distributed import LocalCluster, Nanny, Scheduler, Security, SpecCluster

    # The search counts its memory itself, so Dask must neither spill nor end a worker.
    if backend == "cuda":
        environments = _gpu_environments(workers)
    elif workers > 1:
        threads = os.environ.get("GPUPC_HOST_THREADS", str(max(1, available_cores() // workers)))
        environments = [{"GPUPC_HOST_THREADS": threads}] * workers
    else:
        pages = {"dashboard_address": f"{LOOPBACK}:0", "worker_dashboard_address": f"{LOOPBACK}:0"}
        own = {"local_directory": folder, "scheduler_kwargs": {"local_directory": folder}}
        return LocalCluster(
            1, processes=False, protocol="inproc://", threads_per_worker=THREADS, memory_limit=0, **pages, **own
        )
    if reason := needs_package("cryptography", "cryptography")():
        raise BackendUnavailable(f"processes of a cluster cannot be kept from strangers: {reason}")
    place = {
        "host": LOOPBACK,
        "dashboard_address": f"{LOOPBACK}:0",
        "protocol": "tls://",
        "local_directory": folder,
    }
    place["security"] = security = Security.temporary()
    options = {**place, "nthreads": THREADS, "memory_limit": 0, "silence_logs": logging.WARNING}
    specs = {
        number: {"cls": Nanny, "options": {**options, "env": environment}}
        for number, environment in enumerate(environments)
    }
    scheduler = {"cls": Scheduler, "options": {**place, "dashboard": False, "port": 0}}
    return SpecCluster(workers=specs, scheduler=scheduler, security=security, silence_logs=logging.WARNING)


def _gpu_environments(workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker, by which each worker sees a different GPU."""
    devices = _visible_devices()
    workers = workers or len(devices)
    if workers > len(devices):
        raise InvalidParameter(
            f"parameter workers is {workers}; at most {len(devices)} on this machine, a GPU for each: leave it out"
        )
    return [{"CUDA_VISIBLE_DEVICES": device, "GPUPC_CUDA_DEVICE": ""} for device in devices[:workers]]


def _visible_devices() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    import cupy

    return [str(number) for number in range(cupy.cuda.runtime.getDeviceCount())]
