"""A Dask cluster of this machine to which nobody else can connect."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from gpupc_impl.backends import BackendUnavailable, backend_class, resolve_backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import InvalidParameter, needs_package

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def local_cluster(workers: int, backend: str = "auto") -> Iterator[Any]:
    """Yield the client of a new cluster: `workers` processes, one for each of some GPUs, or sharing the cores. They
    communicate by TLS on the loopback interface with a key of their own, as anybody who reaches Dask can run code.
    InvalidParameter is raised if there are fewer GPUs than workers, and BackendUnavailable if this machine cannot run
    kernels on the backend, or lacks the package that makes TLS keys."""
    from distributed import Client, Nanny, Scheduler, Security, SpecCluster

    backend = resolve_backend(backend)
    if reason := backend_class(backend).unavailable() or needs_package("cryptography", "cryptography")():
        raise BackendUnavailable(f"a cluster of this machine cannot be started for {backend}: {reason}")
    if backend == "cuda":
        environments = _gpu_environments(workers)
    else:
        threads = os.environ.get("GPUPC_HOST_THREADS", str(max(1, available_cores() // workers)))
        environments = [{"GPUPC_HOST_THREADS": threads}] * workers
    # By default Dask locks files and imports modules in a folder of the system's temporary one, which another user may
    # have made.
    with tempfile.TemporaryDirectory(prefix="gpupc-", ignore_cleanup_errors=True) as folder:
        security = Security.temporary()
        place = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "local_directory": folder}
        place |= {"protocol": "tls://", "security": security}
        # The search counts its memory itself, so Dask must neither spill nor end a worker.
        options = {**place, "nthreads": 1, "memory_limit": 0, "silence_logs": logging.WARNING}
        specs = dict(enumerate({"cls": Nanny, "options": {**options, "env": each}} for each in environments))
        scheduler = {"cls": Scheduler, "options": {**place, "dashboard": False, "port": 0}}
        with (
            SpecCluster(workers=specs, scheduler=scheduler, security=security, silence_logs=logging.WARNING) as cluster,
            Client(cluster) as client,
        ):
            yield client


def _gpu_environments(workers: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker, by which each worker sees a different GPU."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        devices = visible.split(",")
    else:
        import cupy

        devices = [str(number) for number in range(cupy.cuda.runtime.getDeviceCount())]
    if workers > len(devices):
        raise InvalidParameter(f"workers is {workers}; at most {len(devices)} on this machine, a GPU for each")
    return [{"CUDA_VISIBLE_DEVICES": device, "GPUPC_CUDA_DEVICE": ""} for device in devices[:workers]]
