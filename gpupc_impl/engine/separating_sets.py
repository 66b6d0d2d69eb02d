"""Separating sets that stay on the device until the search ends, and come down as one list in its final order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.backends.arguments import Filled, Pointer, Struct
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.integers import ceil_div

SOURCE = "engine/kernels/separating_sets.cu"
KERNELS = ("merge_sets",)
THREADS = 256
MOST_BLOCKS = 1 << 16

LIST = Struct(
    "SetList",
    pairs=Pointer(np.int32),
    offsets=Pointer(np.int64),
    members=Pointer(np.int32),
    count=np.int64,
    size=np.int64,
)
LISTS = Struct("SetLists", **dict.fromkeys("abcdef", LIST))
"""What one launch merges."""


@dataclasses.dataclass(frozen=True)
class LevelSets:
    """Removed pairs with their separating sets, on the device.

    Attributes:
        pairs: (k, 2) int32, i < j, ascending.
        members: int32: of one level (k, level), ascending in a row; of several one after the other.
        offsets, sizes: (k + 1,) int64 and (k,) uint8 of several levels: where each set begins, and how many members it
            has; None of one level.
    """

    pairs: Any
    members: Any
    offsets: Any = None
    sizes: Any = None

    @property
    def struct(self) -> Filled:
        size = 0 if self.offsets is not None else self.members.shape[1]
        return LIST(pairs=self.pairs, offsets=self.offsets, members=self.members, count=len(self.pairs), size=size)


def download_result(backend: Backend, entries: Any, levels: Sequence[LevelSets]) -> tuple[np.ndarray, SeparatingSets]:
    """The skeleton and the separating sets of all levels, merged on the device, in host memory.

    Args:
        entries: (p, p) uint8 on the device, the skeleton's adjacency matrix.
        levels: those that removed anything, ascending.
    """
    if not levels:
        adjacency = backend.download(entries).view(bool)
        return adjacency, SeparatingSets.from_levels(adjacency, [])
    lists = sorted(levels, key=lambda found: len(found.pairs))  # the long ones are copied once
    while len(lists) > 1:
        lists = [_merged(backend, lists[: len(LISTS.fields)]), *lists[len(LISTS.fields) :]]
    (whole,) = lists
    parts = [entries, whole.pairs, whole.members, *([] if whole.sizes is None else [whole.sizes])]
    adjacency, pairs, members, *sizes = backend.download_all(parts)
    adjacency = adjacency.view(bool)
    size_of = sizes[0] if sizes else whole.members.shape[1]
    return adjacency, SeparatingSets(adjacency, pairs, size_of, members.reshape(-1))


def _merged(backend: Backend, lists: Sequence[LevelSets]) -> LevelSets:
    """A few lists as one."""
    count, size = sum(len(found.pairs) for found in lists), sum(found.members.size for found in lists)
    out = LevelSets(
        **backend.empty_all(
            pairs=((count, 2), np.int32),
            members=(size, np.int32),
            offsets=(count + 1, np.int64),
            sizes=(count, np.uint8),
        )
    )
    # Made here: a struct keeps its bytes by backend, and a backend with it.
    nothing = LIST(pairs=None, offsets=None, members=None, count=0, size=0)
    structs = [found.struct for found in lists] + [nothing] * (len(LISTS.fields) - len(lists))
    given = LISTS(**dict(zip(LISTS.fields, structs, strict=True)))
    threads = THREADS if backend.warp_threads > 1 else 1
    blocks = min(ceil_div(count, threads), MOST_BLOCKS if threads > 1 else backend.blocks_at_once)
    backend.kernel(SOURCE, "merge_sets", (LISTS,))(
        (blocks,), (threads,), [given, out.pairs, out.offsets, out.sizes, out.members]
    )
    return out
