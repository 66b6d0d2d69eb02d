"""Lists of the neighbours of each sample in (V_j, S), which permutations of V_i do not change, and the base class of
the selections that read these lists (kernels/lists.cuh, kernels/buckets.cu)."""

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
"""The size in bytes to whose multiples CuPy's memory pool rounds allocations up."""

LIST_ARRAYS = 5
"""The number of arrays that hold the lists."""

LEAST_LISTED = 64
"""The lower bound on the samples whose lists fit in memory at a time."""

FINE_BINADES = 16
"""The number of binades below the largest distance that the fine buckets cover; the first one has all smaller
distances."""


class ListedNeighbours(NeighbourSelection):
    """The base class of selections that list the neighbours of each test and sample by distance in (V_j, S) and in S.

    A list holds the nearest neighbours first, as many as most replicates need. A subclass launches the kernel that
    reads the lists. The kernel `estimate_far` processes the other replicates, those in which V_i is an outlier of the
    sample.
    """

    @property
    def shares(self) -> int:
        """The number of parts into which the work of `estimate_by_buckets` is divided, by default one
        for each multiprocessor."""
        return self.tuning.shares or self.samples.backend.multiprocessors

    @abc.abstractmethod
    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> Filled:
        """Launch the kernel for the replicates from `first` on, and return their `COLUMNS` for `estimate_far`."""

    # --- the lengths of lists ----------------------------------------------------------------------------------------

    def _reach(self, level: int) -> int:
        """Return the lower bound on the neighbours in (V_j, S) that a list holds, which is at least k_CMI.

        Lists hold several times as many neighbours as uniform samples need, and more for values that are not ranks,
        since the density of such samples varies.
        """
        if self.tuning.reach:
            return self.tuning.reach
        guess = self.expected_near(level)
        return min(self.samples.n - 1, (level + 3) * guess // 2 if self.samples.ranks else 10 * guess)

    def _expected_within(self, level: int, dimensions: int) -> float:
        """Return the expected number of neighbours within the reach of a list in `dimensions` of the dimensions of
        (V_j, S), for independent uniform samples."""
        others = self.samples.n - 1
        return others * (self._reach(level) / others) ** (dimensions / (level + 1))

    def _near(self, level: int) -> int:
        """Return the number of samples on either side, in the order of S[0], from which the reach of a list is
        determined: a quarter more than the expected number for uniform samples."""
        return self.tuning.near or max(self._reach(level), math.ceil(1.25 * self._expected_within(level, 1) / 2))

    def _candidates(self, level: int) -> int:
        """Return the number of candidates for which the kernel that makes lists has shared memory: 1.5 times the
        expected number for uniform samples, in the space of the longer list."""
        expected = min(self.samples.n - 1, math.ceil(1.5 * self._expected_within(level, level or 1)))
        limit = min(self.tuning.candidate_bytes, self.samples.shared_limit)
        return min(expected, limit // CANDIDATE_BYTES[self.samples.kind])

    def _remembered(self, level: int) -> int:
        """Return the number of samples whose distances the kernel that makes lists keeps in shared memory: the
        samples that it reads first, or none if these samples do not fit."""
        n, kind = self.samples.n, self.samples.kind
        first = min(2 * self._near(level) + 1, n) if level else n
        room = self.samples.shared_limit - self._candidates(level) * CANDIDATE_BYTES[kind]
        return first if first * DISTANCES_BYTES[kind] <= min(self.tuning.remembered_bytes, room) else 0

    def _fine_buckets(self) -> tuple[int, int]:
        """Return the key at which the fine buckets begin, and the logarithm of their width; the last fine bucket
        contains the largest distance."""
        low, widest = 0, int(self.samples.widest)
        if self.samples.kind != "short":
            low = max(0, widest - (FINE_BINADES << np.finfo(self.samples.dtype).nmant))
        return low, max(0, ((widest - low) // FINE).bit_length())

    # --- memory ------------------------------------------------------------------------------------------------------

    @property
    def _padded(self) -> int:
        """The number of entries for which a list has memory."""
        return round_up(self.samples.n - 1, ENTRIES)

    def _entry_bytes(self, level: int) -> int:
        """Return the bytes of the lists of one sample of one test."""
        return (2 if level else 1) * self._padded * ENTRY_BYTES[self.samples.kind]

    def _sample_bytes(self, level: int) -> int:
        """Return the bytes of the lists of one sample of one test, of their header, of the replicates for
        `estimate_far` and of the arranged values."""
        samples = self.samples
        beside = HEADER_BYTES + 4 * samples.replicates + (level + 1) * samples.dtype.itemsize
        return self._entry_bytes(level) + beside

    def _fixed_bytes(self, level: int) -> int:
        """Return the bytes that do not depend on the number of listed samples: the arranged values of one test,
        counters and rounding."""
        arranged = (level + 1) * self.samples.n * self.samples.dtype.itemsize
        return arranged + 4 * (1 + self.shares) + LIST_ARRAYS * ALLOCATION

    def scratch_bytes(self, level: int, tests: int) -> int:
        listed = min(LEAST_LISTED, self.samples.n * tests) * self._sample_bytes(level)
        return listed + self._fixed_bytes(level)

    def _allocate(self, level: int, listed: int, tests: int) -> dict[str, Any]:
        """Return the arrays of `LISTS` for a number of listed samples, counted over all tests."""
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
        """Make the lists of as many samples at a time as fit in memory, and estimate with these lists."""
        backend, n, values = self.samples.backend, self.samples.n, tests.values
        count = values["count"]
        free = backend.memory_limit - backend.memory_used - self._fixed_bytes(level)
        listed = max(1, min(self.tuning.list_bytes, free) // self._sample_bytes(level))
        listed = min(listed, n * count)
        tests_at_once = max(1, listed // n)
        memory = self._allocate(level, listed, tests_at_once)
        for part in pieces(count, ceil_div(count, ceil_div(count, tests_at_once))):  # The parts have about equal sizes.
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
        """Make the lists of each part of the samples, and estimate the tests with the lists of one part after the
        other."""
        samples, backend, empty = self.samples, self.samples.backend, "false" if level else "true"
        candidates, remembered = self._candidates(level), self._remembered(level)
        shared_bytes = candidates * CANDIDATE_BYTES[samples.kind] + remembered * DISTANCES_BYTES[samples.kind]
        listed_part = None
        for staged, first in self._stages(tests, counts):
            for part in parts:
                lists = self._lists(level, memory, part, candidates, remembered)
                if part != listed_part:  # A single part keeps its lists for all stages.
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
        """Return the struct `LISTS` of a part of the samples."""
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
        """Return the struct `COLUMNS` of the replicates from `first` on, for warps that process `width` replicates
        each."""
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
