"""Separating sets that stay on the device until the search ends, then downloaded as one list in final order."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.integers import ceil_div

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
LISTS = Struct("SetLists", **dict.fromkeys("abcdef", LIST))  # the lists that one launch merges
SOURCE = "engine/kernels/separating_sets.cu"
CONSTANTS = {"LISTS": len(LISTS.fields)}
KERNELS = {"merge_sets": KernelSource(SOURCE, "merge_sets", (LISTS,), CONSTANTS)}


@dataclasses.dataclass(frozen=True)
class LevelSets:
    """Removed pairs with their separating sets, on the device."""

    pairs: Any  # (k, 2) int32, i < j, ascending
    members: Any  # int32, ascending in a set: (k, level) sets of one level, or set after set of several levels
    offsets: Any = None  # (k + 1,) int64: where each set begins, if the sets are of several levels; else None
    sizes: Any = None  # (k,) uint8: how many members each set has, if the sets are of several levels; else None

    @property
    def struct(self) -> Filled:
        size = 0 if self.offsets is not None else self.members.shape[1]
        return LIST(pairs=self.pairs, offsets=self.offsets, members=self.members, count=len(self.pairs), size=size)

    def download(self, backend: Backend) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs and the sets of one level, in host memory."""
        pairs, members = backend.download_all([self.pairs, self.members])
        return pairs, members


def download_result(backend: Backend, entries: Any, levels: Sequence[LevelSets]) -> tuple[np.ndarray, SeparatingSets]:
    """Merge the lists of all levels that removed anything, ascending, on the device; return the skeleton, whose (p, p)
    uint8 adjacency matrix is `entries`, and its separating sets in host memory."""
    if not levels:
        adjacency = backend.download(entries).view(bool)
        return adjacency, SeparatingSets.from_levels(adjacency, [])
    # The longest lists are merged last, so that they are copied only once.
    lists = sorted(levels, key=lambda level: len(level.pairs))
    while len(lists) > 1:
        lists = [_merged(backend, lists[: len(LISTS.fields)]), *lists[len(LISTS.fields) :]]
    (whole,) = lists
    parts = [entries, whole.pairs, whole.members, *([] if whole.sizes is None else [whole.sizes])]
    adjacency, pairs, members, *sizes = backend.download_all(parts)
    adjacency = adjacency.view(bool)
    size_of = sizes[0] if sizes else whole.members.shape[1]
    return adjacency, SeparatingSets(adjacency, pairs, size_of, members.reshape(-1))


def _merged(backend: Backend, lists: Sequence[LevelSets]) -> LevelSets:
    """Merge at most as many lists as `LISTS` has fields."""
    count, size = sum(len(each.pairs) for each in lists), sum(each.members.size for each in lists)
    merged = LevelSets(
        **backend.empty_all(
            pairs=((count, 2), np.int32),
            members=(size, np.int32),
            offsets=(count + 1, np.int64),
            sizes=(count, np.uint8),
        )
    )
    # It is no constant of the module, as structs cache bytes by backend, which they would keep alive.
    empty = LIST(pairs=None, offsets=None, members=None, count=0, size=0)
    structs = [each.struct for each in lists] + [empty] * (len(LISTS.fields) - len(lists))
    argument = LISTS(**dict(zip(LISTS.fields, structs, strict=True)))
    threads = THREADS if backend.warp_threads > 1 else 1
    blocks = min(ceil_div(count, threads), MOST_BLOCKS if threads > 1 else backend.blocks_at_once)
    backend.kernel(*KERNELS["merge_sets"])(
        (blocks,), (threads,), [argument, merged.pairs, merged.offsets, merged.sizes, merged.members]
    )
    return merged
