"""The selection `registers`: a warp keeps the distances of a sample's neighbours in registers
(kernels/registers.cu)."""

from gpupc_impl.backends import Filled
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.buckets import BucketSelection
from gpupc_impl.nonlinear.lists import ListedNeighbours
from gpupc_impl.nonlinear.permutation import Layout
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.sources import (
    REGISTERS_BYTES,
    REGISTERS_END,
    REGISTERS_REPLICATES,
    REGISTERS_ROWS,
    registers_kernel,
)
from gpupc_impl.nonlinear.tuning import WARP, Tuning

LEAST_SAMPLES = 4
"""The lower bound on the samples of a warp; with fewer, copying the values of all samples to shared memory would take a
large share of the time."""

ROWS_MARGIN = 1.1
"""The ratio of the neighbours whose distances are kept to those that uniform samples would need."""


class RegisterSelection(ListedNeighbours):
    """The selection in which each warp has a sample in eight replicates and keeps distances as 16-bit floating-point
    numbers."""

    name, fallback = "registers", BucketSelection

    @classmethod
    def serves(cls, samples: DeviceSamples, tuning: Tuning) -> bool:
        """Return whether values and counts of samples are exact in 16 bits, and shared memory holds the values of all
        samples in a group of replicates."""
        exact = samples.kind == "short" and max(samples.widest + 1, samples.n) <= REGISTERS_END
        return samples.continuous and exact and REGISTERS_BYTES * (samples.n + 1) <= samples.shared_limit

    @classmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        return Layout(panel=REGISTERS_REPLICATES, by_order=True)

    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> Filled:
        n, threads, count = self.samples.n, self.tuning.registers, tests.values["count"]
        enough = ROWS_MARGIN * self.expected_near(level) / WARP
        rows = next((rows for rows in REGISTERS_ROWS if rows >= enough), REGISTERS_ROWS[-1])
        groups = ceil_div(tests.values["replicates"], REGISTERS_REPLICATES)
        most = ceil_div(n, threads // WARP * LEAST_SAMPLES)
        blocks = max(1, min(self.tuning.registers_blocks // (groups * count), most))
        columns = self._columns(first, REGISTERS_REPLICATES)
        self.samples.backend.kernel(*registers_kernel(level, rows))(
            (groups * blocks, count), (threads,), [sets, tests, lists, columns], shared_bytes=REGISTERS_BYTES * (n + 1)
        )
        return columns
