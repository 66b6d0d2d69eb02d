"""What users may choose about the kernels of the nonlinear family, and how large launches are on each backend."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

from gpupc_impl.core.registry import Parameter

WARP = 32

REGISTERS_THREADS = 128
"""Largest block of `estimate_by_registers`."""

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
"""Parameters of every test of the family."""

DEFAULTS = {name: parameter.default for name, parameter in PARAMS.items()}
"""Their default values."""

SEARCH_PARAMS = {
    **PARAMS,
    "stopping": Parameter(
        "never",
        "early: a test ends when no further permutation can change whether its set separates (not by insertion, nor "
        "where p-values are asked for)",
        choices=("never", "early"),
    ),
    "checkpoint": Parameter("", "file from which a killed search goes on; none by default"),
}
"""Parameters of every search."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How work is spread on a backend, by default on a GPU; nothing in it changes an answer.

    Attributes:
        nearest, assign, estimate, lists, buckets, far, registers, insert, transpose: threads of a block, by kernel.
        assign_alone: threads of a block of `assign` where shared memory leaves room for few blocks at once.
        blocks: blocks that keep the device busy in `estimate` and `estimate_by_insertion`.
        registers_blocks: the same in `estimate_by_registers`, whose blocks hold the values of all samples each.
        samples: tests times samples that keep the device busy in one launch.
        buffer_bytes: shared memory in which `estimate` may keep distances.
        list_bytes: upper bound of the memory that lists of neighbours take at a time.
        candidate_bytes: upper bound of shared memory for the samples that may be listed, while lists are made.
        remembered_bytes: upper bound of shared memory for distances meanwhile.
        selection: what ``selection=auto`` means, but for large k_CMI.
        registers_from: the k_CMI from which it means ``registers``.
        reach: neighbours that lists hold at least; 0 for the estimate of `lists.ListedNeighbours`.
        near: samples on either side, in the order of S[0], that are looked at first when lists are made; 0 likewise.
        shares: parts that the work of `estimate_by_buckets` is dealt in; 0 for one for each multiprocessor.
        narrow_samples: samples up to which counters of 16 bits suffice, with the padding of a list.
    """

    nearest: int = 32
    assign: int = 256
    assign_alone: int = 1024
    estimate: int = 128
    lists: int = 128
    buckets: int = 256
    far: int = 128
    registers: int = REGISTERS_THREADS
    insert: int = 128
    transpose: int = 32
    blocks: int = 1 << 14
    registers_blocks: int = 1 << 13
    samples: int = 1 << 17
    buffer_bytes: int = 0
    list_bytes: int = 1 << 31
    candidate_bytes: int = 1 << 15
    remembered_bytes: int = 1 << 14
    selection: str = "buckets"
    registers_from: float = 40
    reach: int = 0
    near: int = 0
    shares: int = 0
    narrow_samples: int = 2**16 - 8

    def with_blocks_of(self, params: Mapping[str, object]) -> Self:
        """The same with the users' numbers of threads, the values of `PARAMS`."""
        beta, gamma = int(params["beta"]), int(params["gamma"])
        permuting = dict.fromkeys(("nearest", "assign", "assign_alone"), beta) if beta else {}
        estimating = dict.fromkeys(("estimate", "buckets", "insert"), gamma) if gamma else {}
        if gamma:
            estimating["registers"] = min(max(WARP, whole_warps(gamma)), REGISTERS_THREADS)
        return dataclasses.replace(self, **permuting, **estimating)


HOST_THREADS = {
    **dict.fromkeys(("assign", "assign_alone", "estimate", "lists", "far", "transpose"), 1),
    **dict.fromkeys(("buckets", "registers", "insert"), 32),
}
"""Threads of a block on cores, which run them one after the other: more than one only where a kernel needs a warp."""

TUNING = {
    "cuda": Tuning(),
    "host": Tuning(
        **HOST_THREADS,
        blocks=64,
        registers_blocks=2,
        samples=1 << 10,
        buffer_bytes=128 * 1024,
        list_bytes=1 << 22,
        candidate_bytes=1 << 12,
        remembered_bytes=1 << 12,
        selection="counting",
        registers_from=math.inf,
        shares=3,
    ),
}
"""By backend."""


def whole_warps(threads: int) -> int:
    """The number of threads rounded down to whole warps; less than a warp stays as it is, but for at least one."""
    return max(1, threads if threads < WARP else threads // WARP * WARP)
