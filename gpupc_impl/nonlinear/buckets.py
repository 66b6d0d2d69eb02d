"""The selection `buckets`, which counts the distances in buckets along a list of neighbours (kernels/buckets.cu)."""

from gpupc_impl.backends import Filled
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.counting import CountingSelection
from gpupc_impl.nonlinear.lists import ListedNeighbours
from gpupc_impl.nonlinear.permutation import Layout, Permutations
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.sources import BINS, CELL_BYTES, PANEL, WIDE_CELL_BYTES
from gpupc_impl.nonlinear.tuning import TUNING, WARP, Tuning, whole_warps


class BucketSelection(ListedNeighbours):
    """The selection in which a thread works on one sample in one replicate and has a counter in shared memory for each
    bucket."""

    name, fallback = "buckets", CountingSelection

    def __init__(self, samples: DeviceSamples, permutations: Permutations, tuning: Tuning):
        super().__init__(samples, permutations, tuning)
        self._threads = whole_warps(min(tuning.buckets, samples.shared_limit // _warp_bytes(samples, tuning) * WARP))

    @classmethod
    def serves(cls, samples: DeviceSamples, tuning: Tuning) -> bool:
        """Return whether the counters of a warp fit in shared memory."""
        return _warp_bytes(samples, tuning) <= samples.shared_limit

    @classmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        return Layout(panel=PANEL, by_order=True)

    def _estimate(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> Filled:
        backend, threads, wide = self.samples.backend, self._threads, _wide(self.samples, self.tuning)
        blocks = backend.blocks_at_once * max(1, TUNING[backend.name].buckets // threads)
        width = min(PANEL, threads)
        columns = self._columns(first, width, *self._pieces(width, tests.values["replicates"], lists.values["samples"]))
        self.samples.kernel("estimate_by_buckets", "false" if level else "true", "true" if wide else "false")(
            (blocks,),
            (threads,),
            [sets, tests, lists, columns],
            shared_bytes=_warp_bytes(self.samples, self.tuning) * ceil_div(threads, WARP),
        )
        return columns

    def _pieces(self, width: int, replicates: int, samples: int) -> tuple[int, int]:
        """Return the number of pieces of work in a group of `width` replicates of a test, and in all groups.

        A warp processes one piece at a time.
        """
        groups = ceil_div(replicates, width)
        last_width = replicates - (groups - 1) * width
        warp = min(self._threads, WARP)
        group_pieces, last_pieces = (ceil_div(samples, warp // each) for each in (width, last_width))
        return group_pieces, (groups - 1) * group_pieces + last_pieces


def _wide(samples: DeviceSamples, tuning: Tuning) -> bool:
    """Return whether counters have 32 bits, since 16 bits do not suffice for the number of samples."""
    return samples.kind == "float" and samples.n > tuning.narrow_samples


def _warp_bytes(samples: DeviceSamples, tuning: Tuning) -> int:
    """Return the bytes of shared memory for the counters of a warp."""
    return (WIDE_CELL_BYTES if _wide(samples, tuning) else CELL_BYTES[samples.kind]) * BINS * WARP
