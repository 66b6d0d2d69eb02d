"""Bit planes: each category of a variable has n bits, of which bit k tells whether sample k has that category.

The count in a table's cell is the number of bits that are set in the planes of all its categories. A plane takes an
eighth of the memory of 8-bit codes, and one popcount instruction counts 64 samples.
"""

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter
from gpupc_impl.discrete.declarations import PACK_PLANES
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.engine import bit_graph
from gpupc_impl.integers import ceil_div, round_up

COUNTING = Parameter(
    "bit-planes",
    "how tables are counted: samples (the paper's), or bit-planes, small ones by bits that categories have in common",
    choices=("bit-planes", "samples"),
)

MAX_PLANES = 32
"""Upper bound on the categories of a variable that has planes."""

PLANE_CELLS = {"cuda": 64, "host": 2048}
"""Upper bound on the cells of a table that is counted by planes, by backend: larger tables are faster counted by
samples."""

ROW_ALIGNMENT = 1024
"""Samples to a multiple of which the codes of a variable are padded, so that kernels may read many samples at a
time."""


def padded_length(n: int) -> int:
    """Return the number of a variable's codes with their padding."""
    return round_up(n, ROW_ALIGNMENT)


class Planes:
    """The planes of a problem's variables.

    Attributes:
        cells: upper bound on the cells of a table that is counted by planes; 0 if all tables are counted sample by
            sample.
        counts: (p,) int64: the number of planes of each variable, if there is memory for planes.
        first: (p,) int32: the number of each variable's first plane, -1 without planes.
        words: 64-bit words of a plane.
        bits: (planes, words) uint64 on the device; None before `pack`, and where there is no memory for planes.
    """

    def __init__(self, problem: DiscreteProblem, backend: Backend, counting: str, code: str):
        self.cells = PLANE_CELLS[backend.name] if counting == "bit-planes" else 0
        categories = problem.categories.astype(np.int64)
        self.counts = np.where((categories <= MAX_PLANES) & (self.cells > 0), categories, 0)
        self.first = np.where(self.counts > 0, np.cumsum(self.counts) - self.counts, -1).astype(np.int32)
        self.words = padded_length(problem.n_samples) // 64
        self.bits: Any = None
        self._backend, self._code, self._p = backend, code, problem.n_variables

    def bytes_within(self, free: int) -> int:
        """Return the device memory for all planes in bytes; 0, for no planes, where that is more than half of the
        `free` bytes."""
        needed = 8 * int(self.counts.sum()) * self.words
        return needed if needed <= free // 2 else 0

    def pack(self, data: Filled) -> Filled:
        """Make the planes of the samples if there is memory for these; returns the `DATA` with its planes."""
        backend = self._backend
        if not self.bytes_within(backend.memory_limit - backend.memory_used):
            return data
        self.bits = backend.empty((int(self.counts.sum()), self.words), np.uint64)
        data = data.struct(**{**data.values, "planes": self.bits})
        gpu = backend.warp_threads > 1
        block = bit_graph.WARPS * backend.warp_threads if gpu else 1
        width = ceil_div(self.words, bit_graph.WARPS) if gpu else 1
        arguments = [data, np.int32(self._p), self.bits]
        backend.kernel(*PACK_PLANES[self._code])((width, min(self._p, MAX_GRID_Y)), (block,), arguments)
        return data
