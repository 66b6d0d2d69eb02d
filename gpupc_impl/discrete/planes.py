"""Bit planes: for each category of a variable n bits, of which bit k tells whether sample k has that category.

A cell of a table is the number of bits that the planes of its categories have in common. A plane takes an eighth of the
memory of 8-bit codes, and one popcount instruction counts 64 samples.
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
"""Variables with more categories have no planes."""

PLANE_CELLS = {"cuda": 64, "host": 2048}
"""Upper bound on the cells of a table that is counted by planes, by backend: samples are faster for larger ones."""

ROW_ALIGNMENT = 1024
"""The codes of a variable are padded to a multiple of this many samples, so that kernels may read many at a time."""


def padded_length(n: int) -> int:
    """The samples of a variable with their padding."""
    return round_up(n, ROW_ALIGNMENT)


class Planes:
    """The planes of a problem's variables.

    Attributes:
        cells: upper bound on the cells of a table that is counted by planes; 0 where all are counted by samples.
        counts: (p,) int64: the planes that each variable has, where there is memory for any.
        first: (p,) int32: the number of each variable's first plane, -1 without planes.
        words: 64-bit words of a plane.
        bits: (planes, words) uint64 on the device; None before `pack`, and where there is no memory for them.
    """

    def __init__(self, problem: DiscreteProblem, backend: Backend, counting: str):
        self.cells = PLANE_CELLS[backend.name] if counting == "bit-planes" else 0
        categories = problem.categories.astype(np.int64)
        self.counts = np.where((categories <= MAX_PLANES) & (self.cells > 0), categories, 0)
        self.first = np.where(self.counts > 0, np.cumsum(self.counts) - self.counts, -1).astype(np.int32)
        self.words = padded_length(problem.n_samples) // 64
        self.bits: Any = None
        self._backend, self._code, self._p = backend, problem.codes.dtype.name, problem.n_variables

    def bytes_within(self, free: int) -> int:
        """Device memory for all planes: 0 where it would be more than half of the `free` bytes."""
        needed = 8 * int(self.counts.sum()) * self.words
        return needed if needed <= free // 2 else 0

    def pack(self, data: Filled) -> Filled:
        """Make the planes of the samples where there is memory for them; returns the `DATA` with its planes."""
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
