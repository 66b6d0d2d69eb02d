"""The selection `counting`: bisection by the number of distances up to a bound (kernels/estimate.cu)."""

from typing import Any

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.integers import round_up
from gpupc_impl.nonlinear.permutation import Layout
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.selection import NeighbourSelection
from gpupc_impl.nonlinear.sources import COUNTING, VECTOR_BYTES

SPILLED_SHARE = 16
"""The factor by which there are fewer resident blocks if each has its workspace in global memory."""


class CountingSelection(NeighbourSelection):
    """The selection in which each block has some samples of a test, and its threads share the replicates."""

    name = "counting"

    @classmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        return Layout(panel=samples.stride)

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
            blocks //= SPILLED_SHARE
        return max(1, min(self.samples.n, blocks // max(tests, 1)))

    def scratch_bytes(self, level: int, tests: int) -> int:
        size = self._workspace_bytes(level)
        return 0 if size <= self.samples.shared_limit else size * self._blocks(level, tests) * tests

    def launch(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        samples, tuning, count = self.samples, self.tuning, tests.values["count"]
        size, blocks = self._workspace_bytes(level), self._blocks(level, count)
        scratch, capacity, shared = None, 0, size
        if size > samples.shared_limit:
            scratch, shared = samples.backend.empty(size * blocks * count, np.uint8), 0
        elif tuning.buffer_bytes:
            room = min(tuning.buffer_bytes, samples.shared_limit - size)
            capacity = min(samples.n, room // (VECTOR_BYTES * tuning.estimate))
            shared += capacity * VECTOR_BYTES * tuning.estimate
        for staged, first in self._stages(tests, counts):
            counting = COUNTING[samples.kind](
                columns=self.permutations.columns_from(first),
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
                (blocks, count), (tuning.estimate,), [sets, staged, counting], shared_bytes=shared
            )
