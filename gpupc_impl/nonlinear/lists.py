"""Lists of the neighbours of each sample, which do not depend on the permutation, and selections that read them
(kernels/lists.cuh, kernels/buckets.cu)."""

import abc
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.core.mapped import pieces
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.nonlinear.permutation import ARRANGED_SAMPLES
from gpupc_impl.nonlinear.selection import NeighbourSelection
from gpupc_impl.nonlinear.sources import (
    CANDIDATE_BYTES,
    COLUMNS,
    DISTANCES_BYTES,
    ENTRIES,
    ENTRY_BYTES,
    FINE,
    HEADER_BYTES,
    LISTS,
    TESTS,
)

ALLOCATION = 512
"""CuPy's memory pool hands out multiples of this many bytes."""

LIST_ARRAYS = 5
"""Number of arrays that hold the lists."""

LEAST_LISTED = 64
"""Lower bound of the samples whose lists fit in memory at a time."""

FINE_BINADES = 16
"""Binades below the largest distance that the fine buckets tell apart; smaller distances fall into the first."""


class ListedNeighbours(NeighbourSelection):
    """For each test and sample the neighbours are listed by their distance in (V_j, S) and in S, nearest first.

    Lists reach as far as most replicates need them, and a kernel that a subclass launches works down them. Replicates
    for which they end too early, those in which V_i is an outlier, are left to `estimate_far`.
    """

    @property
    def shares(self) -> int:
        """Parts that the work of `estimate_by_buckets` is dealt in: one for each multiprocessor."""
        return self.tuning.shares or self.samples.backend.multiprocessors

    @abc.abstractmethod
    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> Filled:
        """Launch the kernel for the replicates from `first` on; returns their `COLUMNS` for `estimate_far`."""

    # --- how far lists reach -----------------------------------------------------------------------------------------

    def _reach(self, level: int) -> int:
        """Neighbours in (V_j, S) that lists hold at least, k_CMI or more: several times as many as uniform samples
        need, and more for values that are not ranks, whose density varies."""
        if self.tuning.reach:
            return self.tuning.reach
        guess = self.expected_near(level)
        return min(self.samples.n - 1, (level + 3) * guess // 2 if self.samples.ranks else 10 * guess)

    def _expected_within(self, level: int, dimensions: int) -> float:
        """How many independent uniform samples are within the reach of the lists in some dimensions of (V_j, S)."""
        others = self.samples.n - 1
        return others * (self._reach(level) / others) ** (dimensions / (level + 1))

    def _near(self, level: int) -> int:
        """Samples on either side, in the order of S[0], that should suffice to find how far lists reach: a quarter
        more than of uniform samples."""
        return self.tuning.near or max(self._reach(level), math.ceil(1.25 * self._expected_within(level, 1) / 2))

    def _candidates(self, level: int) -> int:
        """Samples for which there is shared memory while lists are made: 1.5 times as many as uniform samples would
        fill it with, in the space of the longer list."""
        expected = min(self.samples.n - 1, math.ceil(1.5 * self._expected_within(level, level or 1)))
        limit = min(self.tuning.candidate_bytes, self.samples.shared_limit)
        return min(expected, limit // CANDIDATE_BYTES[self.samples.kind])

    def _remembered(self, level: int) -> int:
        """Samples whose distances are kept in shared memory while lists are made: those looked at first, or none."""
        n, kind = self.samples.n, self.samples.kind
        first = min(2 * self._near(level) + 1, n) if level else n
        room = self.samples.shared_limit - self._candidates(level) * CANDIDATE_BYTES[kind]
        return first if first * DISTANCES_BYTES[kind] <= min(self.tuning.remembered_bytes, room) else 0

    def _fine_buckets(self) -> tuple[int, int]:
        """Key where the fine buckets begin, and logarithm of their width; they reach to the largest distance."""
        low, widest = 0, int(self.samples.widest)
        if self.samples.kind != "short":
            low = max(0, widest - (FINE_BINADES << np.finfo(self.samples.dtype).nmant))
        return low, max(0, ((widest - low) // FINE).bit_length())

    # --- memory ------------------------------------------------------------------------------------------------------

    @property
    def _padded(self) -> int:
        """Entries that a list has room for."""
        return round_up(self.samples.n - 1, ENTRIES)

    def _entry_bytes(self, level: int) -> int:
        """Memory of the lists of one sample of one test."""
        return (2 if level else 1) * self._padded * ENTRY_BYTES[self.samples.kind]

    def _sample_bytes(self, level: int) -> int:
        """The same with what is kept beside the lists: header, replicates left to `estimate_far`, arranged values."""
        samples = self.samples
        beside = HEADER_BYTES + 4 * samples.replicates + (level + 1) * samples.dtype.itemsize
        return self._entry_bytes(level) + beside

    def _fixed_bytes(self, level: int) -> int:
        """Memory that does not grow with the samples listed: one test's arranged values, counters and rounding."""
        arranged = (level + 1) * self.samples.n * self.samples.dtype.itemsize
        return arranged + 4 * (1 + self.shares) + LIST_ARRAYS * ALLOCATION

    def scratch_bytes(self, level: int, tests: int) -> int:
        listed = min(LEAST_LISTED, self.samples.n * tests) * self._sample_bytes(level)
        return listed + self._fixed_bytes(level)

    def _allocate(self, level: int, listed: int, tests: int) -> dict[str, Any]:
        """The arrays of `LISTS` for a number of listed samples, counted over all tests."""
        samples = self.samples
        return samples.backend.empty_all(
            entries=(listed * self._entry_bytes(level), np.uint8),
            headers=(listed * HEADER_BYTES, np.uint8),
            arranged=((tests, level + 1, samples.n), samples.dtype),
            far=(listed * samples.replicates, np.uint32),
            counters=(1 + self.shares, np.uint32),
        )

    # --- launches ----------------------------------------------------------------------------------------------------

    def launch(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        """Make the lists of as many samples at a time as there is memory for, and estimate with them."""
        backend, n, values = self.samples.backend, self.samples.n, tests.values
        count = values["count"]
        free = backend.memory_limit - backend.memory_used - self._fixed_bytes(level)
        listed = max(1, min(self.tuning.list_bytes, free) // self._sample_bytes(level))
        listed = min(listed, n * count)
        tests_at_once = max(1, listed // n)
        memory = self._allocate(level, listed, tests_at_once)
        for part in pieces(count, ceil_div(count, ceil_div(count, tests_at_once))):  # parts of about equal size
            some = part.stop - part.start
            own = {name: values[name][part] for name in ("pairs", "partials")}
            if counts is not None:
                own["open"] = values["open"][part]
            some_tests = TESTS(**values | own | {"count": some})
            self.samples.kernel("arrange")(
                (ceil_div(n, ARRANGED_SAMPLES), some), (self.tuning.lists,), [sets, some_tests, memory["arranged"]]
            )
            some_counts = None if counts is None else counts[part]
            self._launch_part(level, sets, some_tests, some_counts, memory, list(pieces(n, min(n, listed // some))))

    def _launch_part(
        self, level: int, sets: Filled, tests: Filled, counts: Any, memory: Mapping[str, Any], parts: list[slice]
    ) -> None:
        """Estimate tests with lists of some parts of the samples, one after the other."""
        samples, backend, empty = self.samples, self.samples.backend, "false" if level else "true"
        candidates, remembered = self._candidates(level), self._remembered(level)
        shared_bytes = candidates * CANDIDATE_BYTES[samples.kind] + remembered * DISTANCES_BYTES[samples.kind]
        listed_part = None
        for staged, first in self._stages(tests, counts):
            for part in parts:
                lists = self._lists(level, memory, part, candidates, remembered)
                if part != listed_part:  # a stage begins with the lists that the one before ended with, if all fit
                    samples.kernel("list_neighbours", empty)(
                        (part.stop - part.start, tests.values["count"]),
                        (self.tuning.lists,),
                        [sets, staged, lists],
                        shared_bytes=shared_bytes,
                    )
                    listed_part = part
                backend.fill(memory["counters"], 0)
                columns = self._estimate(level, sets, staged, lists, first)
                if self.counts_far:
                    self.far_replicates += int(backend.download(memory["counters"])[0])
                samples.kernel("estimate_far", empty)(
                    (backend.blocks_at_once,), (self.tuning.far,), [sets, staged, lists, columns]
                )

    def _lists(self, level: int, memory: Mapping[str, Any], part: slice, candidates: int, remembered: int) -> Filled:
        """The lists of some samples as kernels take them."""
        fine_low, fine_shift = self._fine_buckets()
        return LISTS[self.samples.kind](
            **memory,
            first=part.start,
            samples=part.stop - part.start,
            near=self._near(level),
            padded=self._padded,
            reach=self._reach(level),
            fine_low=fine_low,
            fine_shift=fine_shift,
            widest=self.samples.widest,
            candidates=candidates,
            remembered=remembered,
            replicates=self.samples.replicates,
            shares=self.shares,
        )

    def _columns(self, first: int, width: int, group_pieces: int = 0, test_pieces: int = 0) -> Filled:
        """The replicates from the first on, for warps that work on `width` of them each."""
        samples, permutations = self.samples, self.permutations
        return COLUMNS[samples.kind](
            values=permutations.columns_from(first),
            rows=permutations.rows_from(first),
            sorted=samples.sorted,
            ranks=samples.ranks,
            stride=samples.stride,
            width=width,
            group_pieces=group_pieces,
            test_pieces=test_pieces,
            sample_bytes=permutations.layout.panel * samples.dtype.itemsize,
        )
