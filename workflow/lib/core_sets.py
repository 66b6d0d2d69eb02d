"""Lets references run on cores of their own beside the GPU's measurements.

The machine's cores are divided into sets, on each of which one measurement runs at a time: one set for measurements on
the GPU, where nothing else runs, and several for references. A parallel reference takes all sets of references
together. Snakemake itself and all other jobs have the remaining cores. A lock on a file says that a set is taken.
Records name the number of cores and threads of their measurement.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

from gpupc_impl.core.files import open_lock, open_own
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.bench import Bench, Setting

T = TypeVar("T")

LEAST_CORES = 8
"""The lower bound on the number of cores with which they are divided."""

REFERENCE_SETS = 4

PARALLEL = frozenset({"stable-parallel", "discrete-parallel", "cmiknn-parallel"})
"""The references that start a thread for each core."""

VARIABLE = "GPUPC_CORE_SETS"
"""The environment variable with all cores of the workflow, which divides them; its jobs inherit the variable."""

TIMES = Path("results/core_sets.csv")
"""The file with a line for each time that a job had a core set: the set, the job, and when the job asked for the set,
took and released it, in Unix seconds. `workflow.lib.job_times` shows them."""

LOOK_S = 0.05
"""The interval in seconds at which a job looks for a free set."""


def divide(cores: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return the core sets, that of the GPU first, and the cores that remain."""
    size = len(cores) // LEAST_CORES
    sets = [list(cores[start : start + size]) for start in range(0, size * (1 + REFERENCE_SETS), size)]
    return sets, list(cores[size * len(sets) :])


def use_core_sets(cores: int) -> None:
    """Divide the cores for the jobs that this process starts, which is Snakemake's main process."""
    usable = sorted(os.sched_getaffinity(0))[:cores]
    os.environ[VARIABLE] = json.dumps(usable)
    os.sched_setaffinity(0, divide(usable)[1])


def all_cores() -> list[int] | None:
    """Return all cores of a workflow that divides them; None in another one."""
    text = os.environ.get(VARIABLE)
    cores: list[int] | None = json.loads(text) if text else None
    return cores


class Place(enum.Enum):
    """Where settings are measured: on the core set of the GPU, on one of references, or on all of references."""

    GPU = "gpu"
    ONE = "references"
    ALL = "all references"


def place_of(name: str, choice: Mapping[str, Any], cores_of_set: int) -> Place:
    """Return where a setting is measured."""
    method = choice.get("method", name)
    if get_method(method).backends != ("cpu",):
        return Place.GPU
    parallel = method in PARALLEL or choice.get("params", {}).get("workers", 1) > cores_of_set
    return Place.ALL if parallel else Place.ONE


@contextlib.contextmanager
def own_cores(place: Place, job: str, folder: Path = Path("results")) -> Iterator[list[int]]:
    """Wait for the cores of a place, and move this thread to them; yields the cores.

    Processes that the thread starts run there as well.

    Args:
        job: the job's name in `TIMES`.
        folder: the folder of the locks.
    """
    cores = all_cores()
    assert cores is not None
    sets, _ = divide(cores)
    asked = time.time()
    chosen = range(1) if place is Place.GPU else range(1, len(sets))
    before = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open_lock(folder / f".cores-{number}.lock")) for number in chosen]
        name = place.value
        if place is Place.ALL:  # All jobs take the sets in the same order, so no deadlock is possible.
            for file in files:
                lock_one([file], LOOK_S)
            own = [core for number in chosen for core in sets[number]]
        else:
            number = chosen[lock_one(files, LOOK_S)]
            name += "" if place is Place.GPU else f" {number}"
            own = sets[number]
        taken = time.time()
        os.sched_setaffinity(0, own)
        try:
            yield own
        finally:
            os.sched_setaffinity(0, before)
            with open_own(TIMES, append=True) as times:
                times.write(f"{name},{job},{asked:.2f},{taken:.2f},{time.time():.2f}\n".encode())


def lock_one(files: Sequence[IO[bytes]], look_s: float) -> int:
    """Wait for a lock on any of some files; returns the position of the locked file."""
    while True:
        for number, file in enumerate(files):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return number
        time.sleep(look_s)


def measure_parts(
    job: str,
    settings: Mapping[str, Mapping[str, Any]],
    bench_of: Callable[[int | None], Bench],
    measure: Callable[[Mapping[str, Any], Bench], T],
) -> list[T]:
    """Measure settings together or, if the cores are divided, those of each place at the same time.

    While a job waits for the GPU, its process on the GPU starts.

    Args:
        job: as of `own_cores`.
        bench_of: returns a bench with a number of threads; None means as many as the job has.
        measure: is called with settings and the bench on which they are measured.

    Returns:
        what `measure` returned, for each part.
    """
    cores = all_cores()
    if cores is None:
        bench = bench_of(None)
        with bench.open():
            return [measure(settings, bench)]
    size = len(divide(cores)[0][0])
    parts: dict[Place, dict[str, Any]] = {}
    for name, choice in settings.items():
        parts.setdefault(place_of(name, choice, size), {})[name] = choice

    def run(place: Place) -> T:
        if place is not Place.GPU:
            with own_cores(place, job) as own, (bench := bench_of(len(own))).open():
                return measure(parts[place], bench)
        bench = bench_of(size)
        with bench.open():
            bench.start_early(Setting(name, choice.get("method", name)) for name, choice in parts[place].items())
            with own_cores(place, job) as own:
                bench.move(own)
                result = measure(parts[place], bench)
                bench.close()
        return result

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts))
