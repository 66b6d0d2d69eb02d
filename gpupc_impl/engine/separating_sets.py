"""Separating sets that stay on the device until the search ends, and come down as one list in its final order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.result import SeparatingSets

SOURCE = "engine/kernels/separating_sets.cu"
KERNELS = ("merge_sets",)
THREADS = 256
MOST_BLOCKS = 1 << 16


@dataclasses.dataclass(frozen=True)
class LevelSets:
    """What one level removed, on the device.

    Attributes:
        pairs: (k, 2) int32, i < j, ascending.
        members: (k, level) int32, ascending in a row.
    """

    pairs: Any
    members: Any

    @property
    def level(self) -> int:
        return int(self.members.shape[1])


def download_sets(backend: Backend, adjacency: np.ndarray, levels: list[LevelSets]) -> SeparatingSets:
    """The separating sets of all levels, merged on the device.

    Args:
        adjacency: (p, p) bool, the skeleton.
        levels: those that removed anything, ascending.
    """
    if not levels:
        return SeparatingSets.from_levels(adjacency, [])
    *few, most = sorted(levels, key=lambda found: len(found.pairs))
    if not few:
        return SeparatingSets(
            adjacency, backend.download(most.pairs), most.level, backend.download(most.members).reshape(-1)
        )
    first, *others = few
    offsets = np.arange(len(first.pairs) + 1, dtype=np.int64) * first.level
    pairs, offsets, members = first.pairs, backend.upload(offsets), first.members
    for level in (*others, most):
        pairs, offsets, members = _merged(backend, pairs, offsets, members, level)
    return SeparatingSets(adjacency, *(backend.download(array) for array in (pairs, offsets, members)))


def _merged(backend: Backend, pairs: Any, offsets: Any, members: Any, level: LevelSets) -> tuple[Any, Any, Any]:
    """A list and one level's, on the device."""
    count, count_level = len(pairs), len(level.pairs)
    out = (
        backend.empty((count + count_level, 2), np.int32),
        backend.empty(count + count_level + 1, np.int64),
        backend.empty(members.size + level.members.size, np.int32),
    )
    blocks = min(-(-(count + count_level + 1) // THREADS), MOST_BLOCKS)
    threads = THREADS if backend.warp_threads > 1 else 1
    backend.kernel(SOURCE, "merge_sets")(
        (blocks,),
        (threads,),
        [
            *(pairs, offsets, members, np.int64(count)),
            *(level.pairs, level.members, np.int64(count_level), np.int32(level.level)),
            *out,
        ],
    )
    return out
