"""What the workflow's jobs share: they end with Snakemake, and a measurement has cores, and a GPU, to itself.

By default one job measures at a time, and takes all cores. With ``--resources gpu=N timing_slot=N`` N jobs measure at a
time. The cores are then divided into N + 1 equal parts: one for each of these jobs, and one for Snakemake and all other
jobs, so that nothing else runs on the cores of a measurement.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

CORES = "GPUPC_WORKFLOW_CORES"
"""The environment variable with all cores of a workflow in which several jobs measure at a time."""

LOOK_S = 0.2
"""The interval in seconds at which a job looks for a free slot, and whether Snakemake still runs."""


def end_with_parent() -> None:
    """End this process and its workers as soon as its parent has ended, for example if Snakemake is killed.

    Otherwise the process would continue beside the jobs of the next call, on the same cores and the same files.
    """

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)  # The guards of the workers notice that their pipes are closed.

    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()


def leave_cores_to_slots(cores: int, slots: int) -> None:
    """Move this process, which is Snakemake's main process, and its future jobs to the part of the cores that is left.

    Args:
        slots: the number of jobs that measure at a time.
    """
    usable = sorted(os.sched_getaffinity(0))[:cores]
    os.environ[CORES] = json.dumps(usable)
    os.sched_setaffinity(0, part_of(usable, slots, slots))


def part_of(cores: list[int], slots: int, number: int) -> list[int]:
    """Return a part of the cores: that of a slot, counted from 0, or for ``number == slots`` what is left."""
    size = max(1, len(cores) // (slots + 1))
    own = cores[number * size : (number + 1) * size] if number < slots else cores[slots * size :]
    return own or cores[-1:]


@contextlib.contextmanager
def own_slot(slots: int, folder: Path = Path("results")) -> Iterator[None]:
    """Wait for a slot, and give its GPU and its cores to this process and to the processes that it starts.

    Snakemake counts how many jobs measure at a time but does not say which GPU is free, so each slot has a lock.

    Args:
        slots: the number of jobs that measure at a time; if it is 1, nothing is changed.
        folder: the folder of the locks.
    """
    if slots == 1:
        yield
        return
    with contextlib.ExitStack() as stack:
        locks = [stack.enter_context((folder / f".slot-{number}.lock").open("ab")) for number in range(slots)]
        number = None
        while number is None:
            for each, lock in enumerate(locks):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    number = each
                    break
            else:
                time.sleep(LOOK_S)
        os.environ["CUDA_VISIBLE_DEVICES"] = name_of_gpu(number)
        if cores := os.environ.get(CORES):
            os.sched_setaffinity(0, part_of(json.loads(cores), slots, number))
        yield


def name_of_gpu(number: int) -> str:
    """Return the name of visible GPU `number` in ``CUDA_VISIBLE_DEVICES``, counted from 0; empty if there are fewer."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(number) if names is None else "".join(names.split(",")[number : number + 1]).strip()
