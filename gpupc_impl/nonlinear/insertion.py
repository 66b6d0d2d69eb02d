"""The selection `insertion`, by sorted insertion as in the paper (GPU-CMIknn, Algorithm 4; kernels/insertion.cu)."""

from typing import Any

from gpupc_impl.backends import Filled
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.permutation import Layout
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.selection import NeighbourSelection
from gpupc_impl.nonlinear.sources import KEPT_IN_REGISTERS

SPILLED_SHARE = 4
"""The factor by which there are fewer resident blocks if the nearest distances are kept in global memory."""


class InsertionSelection(NeighbourSelection):
    """The selection in which each thread has a sample in a replicate and keeps its k nearest distances in order.

    All permutations are evaluated, since this selection does not support early stopping.
    """

    name, whole = "insertion", False

    @classmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        return Layout()

    def _spilled_blocks(self) -> int:
        return self.tuning.blocks // SPILLED_SHARE

    def scratch_bytes(self, level: int, tests: int) -> int:
        k = self.samples.problem.k_cmi
        if k <= KEPT_IN_REGISTERS[-1]:
            return 0
        return self._spilled_blocks() * self.tuning.insert * k * self.samples.key_dtype.itemsize

    def launch(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
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
