"""The ways to find the k_CMI-th neighbour of each sample, the values of the parameter `selection`. `buckets` and
`registers` read lists of the neighbours of each sample in (V_j, S), which permutations of V_i do not change."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.engine.budget import Arrays, device_bytes, free_bytes, largest_fitting
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.nonlinear.declarations import (
    BINS,
    CELL_BYTES,
    COLUMNS,
    COUNTING,
    ENTRIES,
    ENTRY_BYTES,
    FINE,
    HEADER_BYTES,
    KEPT_IN_REGISTERS,
    LISTS,
    PANEL,
    REGISTERS_BYTES,
    REGISTERS_END,
    REGISTERS_REPLICATES,
    REGISTERS_ROWS,
    TESTS,
    VECTOR_BYTES,
)
from gpupc_impl.nonlinear.samples import DeviceSamples, Permutations
from gpupc_impl.nonlinear.tuning import TUNING, WARP, Tuning, whole_warps

COUNTING_SPILLED, INSERTION_SPILLED = 16, 4
"""The factors by which there are fewer resident blocks of `counting` and `insertion` if their blocks need global memory
for what else lies in shared memory or registers."""

LEAST_LISTED = 64  # the lower bound on the samples whose lists fit in memory at a time
FINE_BINADES = 16  # below the largest distance that the fine buckets cover; the first has all smaller distances
MOST_COUNTED = 2**16 - 8  # samples that 16-bit counters of buckets count, with the padding of a list
LEAST_SAMPLES = 4  # of a warp of `registers`: with fewer, copying all values to shared memory takes a large share
ROWS_MARGIN = 1.1  # ratio of the neighbours whose distances `registers` keeps to those that uniform samples would need


class NeighbourSelection(abc.ABC):
    """The launches of the kernels that find the distance to the k_CMI-th neighbour of each sample in each replicate,
    and compute the partials of tests from these distances (GPU-CMIknn, Algorithm 4)."""

    name: ClassVar[str]
    fallback: ClassVar[type[NeighbourSelection] | None] = None  # for samples that this selection does not support
    whole: ClassVar[bool] = True  # whether the kernels support short integers for integral values
    by_order: ClassVar[bool] = False  # whether the kernels number samples by their order in S[0], from level 1 on

    def __init__(self, samples: DeviceSamples, tuning: Tuning, racing: bool):
        self.samples, self.tuning = samples, tuning
        self.permutations = Permutations(samples, tuning, self.panel(), self.by_order, racing)  # of the latest batch

    @classmethod
    def serves(cls, samples: DeviceSamples) -> bool:
        """Return whether the selection supports the type and the number of the samples."""
        return True

    @abc.abstractmethod
    def panel(self) -> int:
        """Return the number of replicates whose values the kernels require side by side; 0 if they do not."""

    @abc.abstractmethod
    def scratch_bytes(self, level: int, tests: int) -> int:
        """Return the lower bound on the bytes of device memory with which a number of tests can be estimated."""

    @abc.abstractmethod
    def launch(self, level: int, sets: Filled, tests: Filled) -> None:
        """Compute the partials of tests."""

    def expected_near(self, level: int) -> int:
        """Estimate how many samples are at least as near in (V_j, S) as the k-th nearest in (V_i, V_j, S). For n
        independent uniform samples, the ball that holds k samples in d dimensions holds n (k / n)^((d - 1) / d) samples
        in d - 1 dimensions. Three standard deviations are added to k, to suffice for nearly all replicates."""
        n, k = self.samples.n, self.samples.problem.k_cmi
        share = min(1.0, (k + 3 * math.sqrt(k) + 2) / n)
        return min(n - 1, max(k, math.ceil(n * share ** ((level + 1) / (level + 2)))))


class CountingSelection(NeighbourSelection):
    """Bisection by numbers of distances up to a bound (estimate.cu): a block's threads share samples' replicates."""

    name = "counting"

    def panel(self) -> int:
        return self.samples.stride

    def _workspace_bytes(self, level: int) -> int:
        """Return the bytes of a block's `Workspace` in the kernel, without the buffers of distances."""
        samples, n, key = self.samples, self.samples.n, self.samples.key_dtype.itemsize
        listed = n + 1 + (n + 1) % 2
        size = samples.stride * (8 + key + 4) + 4 * listed + key * (n + 1 + n + (n if level else 0))
        return round_up(size, VECTOR_BYTES)

    def _blocks(self, level: int, tests: int) -> int:
        """Return the number of blocks that share the samples of a test."""
        blocks = self.tuning.blocks
        if self._workspace_bytes(level) > self.samples.shared_limit:
            blocks //= COUNTING_SPILLED
        return max(1, min(self.samples.n, blocks // max(tests, 1)))

    def scratch_bytes(self, level: int, tests: int) -> int:
        size = self._workspace_bytes(level)
        return 0 if size <= self.samples.shared_limit else size * self._blocks(level, tests) * tests

    def launch(self, level: int, sets: Filled, tests: Filled) -> None:
        samples, tuning, count = self.samples, self.tuning, tests.values["count"]
        size, blocks = self._workspace_bytes(level), self._blocks(level, count)
        scratch, capacity, shared = None, 0, size
        if size > samples.shared_limit:
            scratch, shared = samples.backend.empty(size * blocks * count, np.uint8), 0
        elif tuning.buffer_bytes:
            room = min(tuning.buffer_bytes, samples.shared_limit - size)
            capacity = min(samples.n, room // (VECTOR_BYTES * tuning.estimate))
            shared += capacity * VECTOR_BYTES * tuning.estimate
        counting = COUNTING[samples.kind](
            columns=self.permutations.columns,
            sorted=samples.sorted,
            ranks=samples.ranks,
            stride=samples.stride,
            first_length=self.expected_near(level),
            widest=samples.widest,
            capacity=capacity,
            scratch=scratch,
            scratch_bytes=size,
        )
        samples.kernel("estimate", "false" if level else "true")(
            (blocks, count), (tuning.estimate,), [sets, tests, counting], shared_bytes=shared
        )


class InsertionSelection(NeighbourSelection):
    """Sorted insertion (GPU-CMIknn, Algorithm 4; insertion.cu): a thread keeps a sample's k nearest in a replicate."""

    name, whole = "insertion", False

    def panel(self) -> int:
        return 0

    def _spilled_blocks(self) -> int:
        return self.tuning.blocks // INSERTION_SPILLED

    def scratch_bytes(self, level: int, tests: int) -> int:
        k = self.samples.problem.k_cmi
        if k <= KEPT_IN_REGISTERS[-1]:
            return 0
        return self._spilled_blocks() * self.tuning.insert * k * self.samples.key_dtype.itemsize

    def launch(self, level: int, sets: Filled, tests: Filled) -> None:
        samples, k = self.samples, self.samples.problem.k_cmi
        kept = next((capacity for capacity in KEPT_IN_REGISTERS if k <= capacity), 0)
        thread_bytes = 2 * (level + 2) * samples.dtype.itemsize  # Shared memory holds two samples of each thread.
        threads = max(1, min(self.tuning.insert, samples.shared_limit // thread_bytes))
        items = ceil_div(samples.n, threads) * samples.replicates * tests.values["count"]
        blocks = min(items, 2**31 - 1 if kept else self._spilled_blocks())
        scratch = None if kept else samples.backend.empty(blocks * threads * k, samples.key_dtype)
        samples.kernel("estimate_by_insertion", str(kept))(
            (blocks,), (threads,), [sets, tests, self.permutations.rows, scratch], shared_bytes=threads * thread_bytes
        )


class ListedNeighbours(NeighbourSelection):
    """The base class of selections that list the neighbours of each test and sample by distance in (V_j, S) and in S
    (kernels/lists.cuh). A list holds the nearest neighbours first, as many as most replicates need. A subclass launches
    the kernel that reads the lists. `estimate_far` processes the others, in which V_i is an outlier of the sample."""

    by_order = True

    @property
    def shares(self) -> int:
        """The number of parts into which the work of `estimate_by_buckets` is divided."""
        return self.tuning.shares or self.samples.backend.multiprocessors

    @abc.abstractmethod
    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled) -> Filled:
        """Launch the kernel that reads the lists, and return its `COLUMNS` for `estimate_far`."""

    # --- the lengths of lists ----------------------------------------------------------------------------------------
    def _reach(self, level: int) -> int:
        """Return how many neighbours in (V_j, S) a list holds at least, k_CMI or more. Lists hold several times as many
        neighbours as uniform samples need, and more for values that are not ranks, since their density varies."""
        if self.tuning.reach:
            return self.tuning.reach
        guess = self.expected_near(level)
        return min(self.samples.n - 1, (level + 3) * guess // 2 if self.samples.ranks else 10 * guess)

    def _near(self, level: int) -> int:
        """Return the number of samples on either side, in the order of S[0], from which the reach of a list is
        determined: a quarter more than the expected number for independent uniform samples."""
        reach, others = self._reach(level), self.samples.n - 1
        within = others * (reach / others) ** (1 / (level + 1))  # the reach of a list, in one of its dimensions
        return self.tuning.near or max(reach, math.ceil(1.25 * within / 2))

    def _fine_buckets(self) -> tuple[int, int]:
        """Return the fine buckets' first key, and the logarithm of their width; the last has the largest distance."""
        low, widest = 0, int(self.samples.widest)
        if self.samples.kind != "short":
            low = max(0, widest - (FINE_BINADES << np.finfo(self.samples.dtype).nmant))
        return low, max(0, ((widest - low) // FINE).bit_length())

    # --- memory ------------------------------------------------------------------------------------------------------
    @property
    def _padded(self) -> int:
        """The number of entries for which a list has memory."""
        return round_up(self.samples.n - 1, ENTRIES)

    def _arrays(self, level: int, listed: int) -> Arrays:
        """Return the arrays of `LISTS` for a number of listed samples, counted over all tests."""
        samples = self.samples
        entries = listed * (2 if level else 1) * self._padded
        return {
            "entries": (entries * ENTRY_BYTES[samples.kind], np.uint8),
            "headers": (listed * HEADER_BYTES, np.uint8),
            "arranged": ((max(1, listed // samples.n), level + 1, samples.n), samples.dtype),
            "far": (listed * samples.replicates, np.uint32),
            "counters": (1 + self.shares, np.uint32),
        }

    def scratch_bytes(self, level: int, tests: int) -> int:
        return device_bytes(self._arrays(level, min(LEAST_LISTED, self.samples.n * tests)))

    # --- launches ----------------------------------------------------------------------------------------------------
    def launch(self, level: int, sets: Filled, tests: Filled) -> None:
        """Make the lists of as many samples at a time as fit in memory, and estimate with these lists."""
        backend, n, values = self.samples.backend, self.samples.n, tests.values
        count = values["count"]
        room = min(self.tuning.list_bytes, free_bytes(backend))

        def fits(listed: int) -> bool:
            return device_bytes(self._arrays(level, listed)) <= room

        listed = n * count if fits(n * count) else max(1, largest_fitting(1, n * count, fits))
        tests_at_once = max(1, listed // n)
        memory = backend.empty_all(**self._arrays(level, listed))
        for part in pieces(count, ceil_div(count, ceil_div(count, tests_at_once))):  # The parts have about equal sizes.
            some = part.stop - part.start
            own = {name: values[name][part] for name in ("pairs", "partials")}
            some_tests = TESTS(**values | own | {"count": some})
            self.permutations.arrange(sets, some, own["pairs"], sets.values["order"], memory["arranged"])
            for listed_part in pieces(n, min(n, listed // some)):
                self._launch_part(level, sets, some_tests, memory, listed_part)

    def _launch_part(self, level: int, sets: Filled, tests: Filled, memory: Mapping[str, Any], part: slice) -> None:
        """Make the lists of a part of the samples, and estimate the tests with them."""
        samples, backend, empty = self.samples, self.samples.backend, "false" if level else "true"
        fine_low, fine_shift = self._fine_buckets()
        lists = LISTS[samples.kind](
            **memory,
            first=part.start,
            samples=part.stop - part.start,
            near=self._near(level),
            padded=self._padded,
            reach=self._reach(level),
            fine_low=fine_low,
            fine_shift=fine_shift,
            widest=samples.widest,
            replicates=samples.replicates,
            shares=self.shares,
        )
        samples.kernel("list_neighbours", empty)(
            (part.stop - part.start, tests.values["count"]), (self.tuning.lists,), [sets, tests, lists]
        )
        backend.fill(memory["counters"], 0)
        columns = self._estimate(level, sets, tests, lists)
        samples.kernel("estimate_far", empty)(
            (backend.blocks_at_once,), (self.tuning.far,), [sets, tests, lists, columns]
        )

    def _columns(self, width: int, group_pieces: int = 0, test_pieces: int = 0) -> Filled:
        """Return the struct `COLUMNS`, for warps that process `width` replicates each."""
        samples, permutations = self.samples, self.permutations
        return COLUMNS[samples.kind](
            values=permutations.columns,
            rows=permutations.rows,
            sorted=samples.sorted,
            ranks=samples.ranks,
            stride=samples.stride,
            width=width,
            group_pieces=group_pieces,
            test_pieces=test_pieces,
            sample_bytes=permutations.panel * samples.dtype.itemsize,
        )


class BucketSelection(ListedNeighbours):
    """Counting of the distances in buckets along a list: a thread works on one sample in one replicate and has a
    counter in shared memory for each bucket (kernels/buckets.cu)."""

    name, fallback = "buckets", CountingSelection

    def __init__(self, samples: DeviceSamples, tuning: Tuning, racing: bool):
        super().__init__(samples, tuning, racing)
        self._warp_bytes = CELL_BYTES[samples.kind] * BINS * WARP  # shared memory for the counters of a warp
        self._threads = whole_warps(min(tuning.buckets, samples.shared_limit // self._warp_bytes * WARP))

    @classmethod
    def serves(cls, samples: DeviceSamples) -> bool:
        """Return whether the counters of a warp fit in shared memory, and count all samples."""
        counts_all = samples.kind == "double" or samples.n <= MOST_COUNTED
        return counts_all and CELL_BYTES[samples.kind] * BINS * WARP <= samples.shared_limit

    def panel(self) -> int:
        return PANEL

    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled) -> Filled:
        backend, threads = self.samples.backend, self._threads
        blocks = backend.blocks_at_once * max(1, TUNING[backend.name].buckets // threads)
        width = min(PANEL, threads)
        columns = self._columns(width, *self._pieces(width, tests.values["replicates"], lists.values["samples"]))
        shared_bytes = self._warp_bytes * ceil_div(threads, WARP)
        self.samples.kernel("estimate_by_buckets", "false" if level else "true")(
            (blocks,), (threads,), [sets, tests, lists, columns], shared_bytes=shared_bytes
        )
        return columns

    def _pieces(self, width: int, replicates: int, samples: int) -> tuple[int, int]:
        """Return how many pieces of work, one a warp, are in a group of `width` replicates of a test, and in all."""
        groups = ceil_div(replicates, width)
        last_width = replicates - (groups - 1) * width
        warp = min(self._threads, WARP)
        group_pieces, last_pieces = (ceil_div(samples, warp // each) for each in (width, last_width))
        return group_pieces, (groups - 1) * group_pieces + last_pieces


class RegisterSelection(ListedNeighbours):
    """A warp takes a sample in eight replicates of a test at once. It keeps the distances of the sample's neighbours in
    registers, as 16-bit floating-point numbers, and counts those up to a limit (kernels/registers.cu)."""

    name, fallback = "registers", BucketSelection

    @classmethod
    def serves(cls, samples: DeviceSamples) -> bool:
        """Return whether values and counts are exact in 16 bits, and shared memory holds a group of replicates."""
        exact = samples.kind == "short" and max(samples.widest + 1, samples.n) <= REGISTERS_END
        return samples.continuous and exact and REGISTERS_BYTES * (samples.n + 1) <= samples.shared_limit

    def panel(self) -> int:
        return REGISTERS_REPLICATES

    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled) -> Filled:
        n, threads, count = self.samples.n, self.tuning.registers, tests.values["count"]
        enough = ROWS_MARGIN * self.expected_near(level) / WARP
        rows = next((rows for rows in REGISTERS_ROWS if rows >= enough), REGISTERS_ROWS[-1])
        groups = ceil_div(tests.values["replicates"], REGISTERS_REPLICATES)
        most = ceil_div(n, threads // WARP * LEAST_SAMPLES)
        blocks = max(1, min(self.tuning.registers_blocks // (groups * count), most))
        columns = self._columns(REGISTERS_REPLICATES)
        self.samples.kernel("estimate_by_registers", "false" if level else "true", str(rows))(
            (groups * blocks, count), (threads,), [sets, tests, lists, columns], shared_bytes=REGISTERS_BYTES * (n + 1)
        )
        return columns


SELECTIONS: dict[str, type[NeighbourSelection]] = {
    selection.name: selection
    for selection in (RegisterSelection, BucketSelection, CountingSelection, InsertionSelection)
}
