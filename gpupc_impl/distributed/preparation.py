"""The client's work before level 0: it asks workers about their code and memory, and writes the numbers for them."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, BackendUnavailable
from gpupc_impl.core import mapped
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.distributed import machine, worker
from gpupc_impl.distributed.correlations import standardised
from gpupc_impl.distributed.panel_plan import PanelPlan
from gpupc_impl.distributed.shards import ShardFolder
from gpupc_impl.distributed.supervision import WorkerWatch, run_on_workers
from gpupc_impl.gaussian.problem import GaussianProblem


def ask_workers(
    client: Any, backend: str, device_memory_limit: int | None, host_memory_limit: int
) -> dict[str, dict[str, Any]]:
    """Return the answer of each worker to `worker.probe`, by address.

    In an answer, device_memory and host_memory are the bytes that the search may take on the worker's device, and
    beside that in the worker's process.

    Args:
        backend: where workers run kernels.
        host_memory_limit: upper bound on the host memory of a worker in bytes; 0 stands for its share of free memory.

    Raises:
        BackendUnavailable: a worker has other code, or cannot run kernels on the backend.
        InvalidParameter: two workers have the same GPU.
        ClusterFailure: there is no worker for `WORKER_TIMEOUT` seconds.
    """
    watch = WorkerWatch(client, "before level 0", "start workers, and search again")
    while not (offers := run_on_workers(client, worker.probe, backend, device_memory_limit)):
        time.sleep(0.1)
        watch.check()
    machines = Counter(offer["machine"] for offer in offers.values())
    code = machine.code_digest()
    gpu_users: dict[str, str] = {}
    for address, offer in offers.items():
        if offer["code"] != code:
            raise BackendUnavailable(f"worker {address} has another version of gpupc; install one everywhere")
        if "unavailable" in offer:
            raise BackendUnavailable(f"worker {address} cannot run kernels on {backend}: {offer['unavailable']}")
        if offer["gpu"] is not None and device_memory_limit is None and offer["gpu"] in gpu_users:
            raise InvalidParameter(
                f"workers {gpu_users[offer['gpu']]} and {address} have the same GPU: give each one of its own "
                "(CUDA_VISIBLE_DEVICES), or say what a worker may take of it (device_memory_limit)"
            )
        gpu_users[offer["gpu"]] = address
        free = offer["host_memory"] // machines[offer["machine"]]
        share = int(machine.MEMORY_SHARE * free)
        if offer["on_host"]:
            own = machine.host_device_bytes(free)
            offer["device_memory"] = own if device_memory_limit is None else device_memory_limit
            share //= 4
        offer["host_memory"] = host_memory_limit or share
    return offers


def write_numbers(
    problem: GaussianProblem, backend: Backend, folder: ShardFolder, plan: PanelPlan, fingerprinted: bool
) -> None:
    """Write the files that workers map: the standardised samples or the problem's matrix, and fixed pairs.

    Args:
        backend: where samples are standardised.
        fingerprinted: whether the folder outlives the search and must therefore name the problem. The fingerprint
            reads all data, so a thread computes it during the writing.

    Raises:
        InvalidProblem: the folder cannot be written, or belongs to another search.
    """
    folder.make()

    def claim() -> None:
        fingerprint = problem.fingerprint if fingerprinted else None
        folder.claim({"fingerprint": fingerprint, "rows": plan.rows})

    with ThreadPoolExecutor(1) as thread, write_whole(folder.numbers) as file:
        claimed = thread.submit(claim)
        if folder.is_claimed():  # a folder of another search is refused before work, and keeps its files
            claimed.result()
        if problem.samples is None:
            np.save(file, problem.correlation)
        else:
            out = mapped.new_npy(file, problem.samples.shape)
            standardised(backend, problem.samples, out)
            out.flush()
        claimed.result()
    if problem.fixed is not None:
        for path, pairs in zip(folder.fixed, (problem.fixed.required, problem.fixed.forbidden), strict=True):
            with write_whole(path) as file:
                np.save(file, pairs)
