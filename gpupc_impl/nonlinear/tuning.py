"""The parameters by which users choose the kernels of the nonlinear family, and the sizes of launches by backend."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

from gpupc_impl.core.registry import Parameter

WARP = 32
REGISTERS_THREADS = 128  # the upper bound on the threads in a block of `estimate_by_registers`

PARAMS = {
    "selection": Parameter(
        "auto",
        "how the k_CMI-th distance is found: among the nearest neighbours by a warp that has their distances in "
        "registers (in buckets where these do not serve the values), in buckets of lists of them, by bisection and "
        "counting, by sorted insertion as in the paper, or by what is fastest on the backend for this k_CMI",
        choices=("auto", "registers", "buckets", "counting", "insertion"),
    ),
    "beta": Parameter(0, "threads a block that permutes (beta); 0: what suits the backend", minimum=0, maximum=1024),
    "gamma": Parameter(0, "threads a block that estimates (gamma); 0: what suits the backend", minimum=0, maximum=512),
}

DEFAULTS = {name: parameter.default for name, parameter in PARAMS.items()}
SEARCH_PARAMS = {**PARAMS, "checkpoint": Parameter("", "file from which a killed search goes on; none by default")}


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The sizes of launches and of memory on a backend, none of which changes an answer; the defaults are for a GPU."""

    # The threads in a block, by kernel.
    nearest: int = 32
    assign: int = 256
    assign_alone: int = 1024  # the same for `assign` if shared memory limits the kernel to few resident blocks
    estimate: int = 128
    lists: int = 128
    buckets: int = 256
    far: int = 128
    registers: int = REGISTERS_THREADS
    insert: int = 128
    transpose: int = 32
    blocks: int = 1 << 14  # the blocks of `estimate` and `estimate_by_insertion` that keep the device busy
    registers_blocks: int = 1 << 13  # those of `estimate_by_registers`; each copies all values to shared memory
    samples: int = 1 << 17  # the number of tests times the number of samples that keep the device busy in one launch
    buffer_bytes: int = 0  # the upper bound on the shared memory in which `estimate` keeps distances
    list_bytes: int = 1 << 31  # the upper bound on the memory that lists of neighbours take at a time
    selection: str = "buckets"  # the meaning of ``auto`` if k_CMI is below `registers_from`, and else ``registers``
    registers_from: float = 40
    reach: int = 0  # the lower bound on the neighbours in a list; 0: the estimate of `selections.ListedNeighbours`
    near: int = 0  # the samples on either side, in the order of S[0], that are read first; 0: an estimate as well
    shares: int = 0  # the parts into which the work of `estimate_by_buckets` is divided; 0: one a multiprocessor

    def with_blocks_of(self, params: Mapping[str, object]) -> Self:
        """Return the tuning with the users' numbers of threads, which are values of `PARAMS`."""
        beta, gamma = int(params["beta"]), int(params["gamma"])
        permuting = dict.fromkeys(("nearest", "assign", "assign_alone"), beta) if beta else {}
        estimating = dict.fromkeys(("estimate", "buckets", "insert"), gamma) if gamma else {}
        if gamma:
            estimating["registers"] = min(max(WARP, whole_warps(gamma)), REGISTERS_THREADS)
        return dataclasses.replace(self, **permuting, **estimating)


TUNING = {
    "cuda": Tuning(),
    # A core runs the threads of a block one after the other, so a block has more than one only where it needs a warp.
    "host": Tuning(
        **dict.fromkeys(("assign", "assign_alone", "estimate", "lists", "far", "transpose"), 1),
        **dict.fromkeys(("buckets", "registers", "insert"), 32),
        blocks=64,
        registers_blocks=2,
        samples=1 << 10,
        buffer_bytes=128 * 1024,
        list_bytes=1 << 22,
        selection="counting",
        registers_from=math.inf,
        shares=3,
    ),
}


def whole_warps(threads: int) -> int:
    """Round a number of threads down to whole warps; a number below a warp is only raised to at least 1."""
    return max(1, threads if threads < WARP else threads // WARP * WARP)
