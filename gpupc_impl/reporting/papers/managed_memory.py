"""A model of unified memory beyond the device's memory (Out-of-Core, section 4.1), which hangs some GPUs and is not run
unless the user allows it.

The model follows the kernels of `out-of-core-um` (with ``level_one: pairs``) through levels 0 and 1, notes in which
order they touch the pages of their arrays, and counts the bytes that a driver would move if it keeps the pages that
were used last. The seconds of a level are those of its kernels and of these bytes at rates that `measure_rates`
measures: ``python -m gpupc_impl.reporting.papers.managed_memory`` prints them for the key ``managed_memory`` of a
config. As far as everything fits, the model was compared with runs (docs/out-of-core.md).
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gpupc_impl.reporting.cells import number
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

UM, BLOCK = "out-of-core-um", "out-of-core-block"
LEVELS = (0, 1)

PAGE_BYTES = 1 << 21
"""The bytes that the driver evicts at a time; it may migrate pages of 64 KiB."""

COARSE_BYTES = 8 * PAGE_BYTES
"""The page of the model at full size: its bytes differ by less than 0.5 % from those with pages of 2 MiB."""

TILE = 64
"""The variables on a side of a tile of level 1 (gaussian/kernels/level_one_tile.cu)."""

UPLOAD = -1
"""The phase before level 0, in which the correlation matrix is copied to the device."""

Touch = tuple[int, str, int, int]
"""Phase (a level or `UPLOAD`), array, first row and row after the last."""


@dataclasses.dataclass
class Traffic:
    """What the driver did, in bytes: pages moved to the device and to the host, and pages that were touched first on
    the device, which are new and not moved."""

    to_device: int = 0
    to_host: int = 0
    first_touch: int = 0

    def seconds(self, rates: Mapping[str, float]) -> float:
        """Return the time of these bytes at the rates of `measure_rates`."""
        return sum(moved / (1e9 * rates[f"{name}_gb_s"]) for name, moved in vars(self).items())


def row_bytes(p: int) -> dict[str, int]:
    """Return the bytes of a row of each array of a search with p variables."""
    words = -(-p // 32)
    return {"matrix": 8 * p, "graph": p, "best": 8 * p, "rows": 4 * p, "members": 4 * p, "bits": 4 * words}


def touches(p: int) -> Iterator[Touch]:
    """Yield what the kernels touch if no edge is removed, in the order of their thread blocks, TILE rows at a time.

    The thread blocks that are on the device at once work on neighbouring tiles, so their order is that of the grid as
    long as the rows of these tiles fit into the device.
    """
    bands = [(first, min(first + TILE, p)) for first in range(0, p, TILE)]

    def sweep(level: int, *arrays: str) -> Iterator[Touch]:
        return ((level, array, *band) for band in bands for array in arrays)

    yield from sweep(UPLOAD, "matrix")
    yield from sweep(0, "best")  # filled while level 0 begins
    for first, last in bands:  # both triangles of the graph are written
        yield from ((0, "matrix", first, last), (0, "graph", first, p))
    yield from sweep(0, "graph")  # count_degrees
    yield from sweep(1, "graph", "rows")  # compact
    yield from sweep(1, "members")  # filled
    yield from sweep(1, "matrix", "bits")  # level_zero_block
    for first, last in bands:  # level_one_tile: a row of tiles
        yield from ((1, "members", first, last), (1, "matrix", first, p), (1, "bits", first, p))
    yield from sweep(1, "members")  # rank_members
    yield from sweep(1, "rows", "best", "graph")  # remove_separated, which also counts the degrees that are left


def traffic(p: int, budget_bytes: int, page_bytes: int = PAGE_BYTES) -> dict[int, Traffic]:
    """Return the driver's work in each phase of a search with p variables on a device with so many bytes for it.

    A page that is touched moves to the device; if there is no room, the page that was not used for the longest time
    moves to the host. Every array begins on a page of its own.
    """
    found: dict[int, Traffic] = collections.defaultdict(Traffic)
    resident: collections.OrderedDict[tuple[str, int], None] = collections.OrderedDict()
    evicted: set[tuple[str, int]] = set()
    widths, room = row_bytes(p), max(1, budget_bytes // page_bytes)
    for phase, array, first, last in touches(p):
        moved, width = found[phase], widths[array]
        for place in range(first * width // page_bytes, -(-last * width // page_bytes)):
            page = array, place
            if page in resident:
                resident.move_to_end(page)
                continue
            if len(resident) == room:
                evicted.add(resident.popitem(last=False)[0])
                moved.to_host += page_bytes
            if page in evicted or phase == UPLOAD:
                moved.to_device += page_bytes
            else:
                moved.first_touch += page_bytes
            resident[page] = None
    return dict(found)


@functools.cache
def _traffic(p: int, budget_bytes: int) -> dict[int, Traffic]:
    return traffic(p, budget_bytes, COARSE_BYTES)


def modelled_seconds(p: int, level: int, budget_bytes: int, kernel_seconds: float, rates: Mapping[str, float]) -> float:
    """Return the modelled seconds of level 0 or 1 of a search with p variables.

    Args:
        budget_bytes: the device memory that the search has.
        kernel_seconds: the time of the level's kernels if nothing is moved.
    """
    return kernel_seconds + _traffic(p, budget_bytes)[level].seconds(rates)


Rates = Mapping[str, float] | None
"""The rates of managed memory (`managed_memory.measure_rates`); None if the config has none."""


def modelled_level(um: VerifiedRecord, blocks: Runs, level: int, rates: Rates) -> float | None:
    """Return the modelled seconds of a level of unified memory; None without rates, a budget or times of blocks.

    The kernels of level 1 take as long as those of the fastest layout of blocks, which are the same; level 0 reads the
    matrix once, which takes no time beside the moving of pages.
    """
    times = [seconds for run in blocks if (seconds := run.level_band(1)[1]) is not None]
    megabytes, device = um.params.get("device_mb"), (um.environment.get("device") or {}).get("memory_bytes")
    budget = 1_000_000 * megabytes if megabytes else um.limits.device_memory_bytes or device
    if rates is None or not times or not budget or um.params.get("level_one") != "pairs":
        return None
    kernels = min(times) if level == 1 else 0.0
    return modelled_seconds(um.problem["n_variables"], level, budget, kernels, rates)


def model_note(runs: Runs, rates: Mapping[str, float]) -> str:
    """Return a sentence about the model, with a comparison on the largest data set that fits."""
    given = ", ".join(f"{value:g} ({name.removesuffix('_gb_s').replace('_', ' ')})" for name, value in rates.items())
    note = (
        "Modelled: unified memory beyond the device's memory, by the pages that its kernels touch, a driver that "
        f"evicts the page not used for the longest time, and rates in GB/s of {given}."
    )
    fitting = [run for run in runs if run.method == UM and run.median is not None and run.backend == "cuda"]
    for run in sorted(fitting, key=lambda run: run.problem["n_variables"], reverse=True):
        blocks = [other for other in runs if (other.dataset, other.method) == (run.dataset, BLOCK)]
        pairs = [(modelled_level(run, blocks, level, rates), run.level_band(level)[1]) for level in LEVELS]
        if all(None not in pair for pair in pairs):
            shown = [f"level {level} {number(s)} s ({number(t)} measured)" for level, (s, t) in enumerate(pairs)]
            return f"{note} Where all fits, on {run.dataset}: {', '.join(shown)}."
    return note


def measure_rates(gigabytes: float = 4) -> dict[str, float]:
    """Measure the rates of managed memory on this machine's GPU in GB/s, without using more memory than the device has.

    The keys are ``first_touch_gb_s`` (new pages written by a kernel), ``to_device_gb_s`` (pages of the host read by a
    kernel) and ``to_host_gb_s`` (pages of the device copied to the host's page-locked memory, which no eviction can
    exceed).

    Raises:
        ImportError: CuPy is missing.
        MemoryError: the device or the host has less free memory than twice `gigabytes`.
    """
    import cupy

    runtime, size = cupy.cuda.runtime, int(gigabytes * 1e9) // PAGE_BYTES * PAGE_BYTES
    free, _ = runtime.memGetInfo()
    if 2 * size > free:
        raise MemoryError(f"{2 * size:,} bytes of device memory are needed and {free:,} are free: pass fewer gigabytes")
    total = cupy.ReductionKernel("float64 x", "float64 y", "x", "a + b", "y = a", "0", "total")
    total(cupy.ones(1))  # compiles it

    def rate(action: Callable[[], Any]) -> float:
        runtime.deviceSynchronize()
        start = time.perf_counter()
        action()
        runtime.deviceSynchronize()
        return round(size / (time.perf_counter() - start) / 1e9, 2)

    memory = cupy.cuda.malloc_managed(size)
    array = cupy.ndarray(size // 8, np.float64, memptr=memory)
    on_host = np.ctypeslib.as_array((ctypes.c_double * (size // 8)).from_address(memory.ptr))
    pinned = cupy.cuda.alloc_pinned_memory(size)
    first_touch = rate(lambda: array.fill(1))
    to_host = rate(lambda: runtime.memcpy(pinned.ptr, memory.ptr, size, runtime.memcpyDeviceToHost))
    to_device = []
    for _ in range(2):  # The first migration of a process is slower.
        on_host[:] = 1
        to_device.append(rate(lambda: total(array)))
    return {"first_touch_gb_s": first_touch, "to_device_gb_s": to_device[-1], "to_host_gb_s": to_host}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measures the rates of managed memory for the config's key.")
    parser.add_argument("--gigabytes", type=float, default=4, help="of managed memory (default: 4)")
    rates = measure_rates(parser.parse_args().gigabytes)
    print("managed_memory: {" + ", ".join(f"{name}: {value}" for name, value in rates.items()) + "}")
