"""What the workflow's jobs share: they end with Snakemake, and a measurement has cores, and a GPU, to itself.

By default one job measures at a time, and takes all cores. With ``--resources gpu=N timing_slot=N+1`` N jobs measure
methods with kernels, each on a GPU, and one measures references, at the same time. Half of the cores are the
references', a quarter is shared by the GPUs, and the last quarter is left to Snakemake and all other jobs, so that
nothing else runs on the cores of a measurement.
"""

import contextlib
import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

CORES = "GPUPC_WORKFLOW_CORES"  # the environment variable with all cores, where several jobs measure at a time
LOOK_S = 0.2  # the interval in seconds at which a job looks for a free GPU, and whether Snakemake still runs


def end_with_parent() -> None:
    """End this process and its workers as soon as its parent has ended, for example if Snakemake is killed. Otherwise
    the process would continue beside the jobs of the next call, on the same cores and the same files."""

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)  # The guards of the workers notice that their pipes are closed.

    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()


def leave_cores_to_measurements(cores: int, gpus: int) -> None:
    """Move this process, which is Snakemake's main process, and its future jobs to the part of the cores that is left
    by jobs that measure on `gpus` at a time."""
    usable = sorted(os.sched_getaffinity(0))[:cores]
    os.environ[CORES] = json.dumps(usable)
    os.sched_setaffinity(0, parts_of(usable, gpus)[-1])


def parts_of(cores: list[int], gpus: int) -> list[list[int]]:
    """Return the cores of each GPU's measurements, of references, and of all else, shared only if there are too few."""
    sizes = [max(1, len(cores) // 4 // gpus)] * gpus + [max(1, len(cores) // 2)]
    ends = list(itertools.accumulate(sizes, initial=0))
    parts = [cores[start:end] for start, end in itertools.pairwise([*ends, len(cores)])]
    return [part or cores[-1:] for part in parts]


@contextlib.contextmanager
def own_cores(gpus: int, references: bool = False, folder: Path = Path("results")) -> Iterator[None]:
    """Wait for a GPU, and give it and its part of the cores to this process and to the processes that it starts. A
    process that measures `references` needs no GPU, and with 0 GPUs nothing is changed. Snakemake counts how many GPUs
    are in use but does not say which one is free, so each has a lock in the folder."""
    if not gpus:
        yield
        return
    with contextlib.ExitStack() as stack:
        numbers = [gpus] if references else range(gpus)
        locks = {each: stack.enter_context((folder / f".part-{each}.lock").open("ab")) for each in numbers}
        number = None
        while number is None:
            for each, lock in locks.items():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    number = each
                    break
            else:
                time.sleep(LOOK_S)
        # Visible GPUs are counted from 0; if there are fewer, none is visible.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [str(number)] if visible is None else visible.split(",")[number : number + 1]
        os.environ["CUDA_VISIBLE_DEVICES"] = "".join(names).strip()
        if cores := os.environ.get(CORES):
            os.sched_setaffinity(0, parts_of(json.loads(cores), gpus)[number])
        yield
