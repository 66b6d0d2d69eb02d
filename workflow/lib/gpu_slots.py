"""Assigns a GPU and a part of the cores to each of several jobs that measure concurrently on one machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpupc_impl.core.files import open_lock
from workflow.lib.core_sets import lock_one

LOOK_S = 0.2
"""The interval in seconds at which a job looks for a free slot."""


@contextlib.contextmanager
def own_gpu(slots: int, folder: Path = Path("results")) -> Iterator[None]:
    """Assign one of the visible GPUs and an equal part of the cores exclusively to this process.

    Snakemake counts how many jobs may measure at a time but does not assign GPUs, so each GPU has a lock on a file.

    Args:
        slots: the number of jobs that may measure at a time; if it is 1, nothing is changed.
        folder: the folder of the locks.
    """
    if slots == 1:
        yield
        return
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open_lock(folder / f".gpu-{number}.lock")) for number in range(slots)]
        number = lock_one(files, LOOK_S)
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_name(number)
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // (slots + 1))
        os.sched_setaffinity(0, [cores[(number * share + core) % len(cores)] for core in range(share)])
        yield


def visible_name(number: int) -> str:
    """Return the name of visible GPU `number` in ``CUDA_VISIBLE_DEVICES``, counted from 0; empty if there are fewer."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(number) if names is None else "".join(names.split(",")[number : number + 1]).strip()
