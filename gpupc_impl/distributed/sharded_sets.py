"""Separating sets that stay in shards until they are needed."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.core.result import NO_PAIRS, SeparatingSets
from gpupc_impl.distributed import shards
from gpupc_impl.distributed.panel_plan import PanelPlan, count_bits
from gpupc_impl.distributed.shards import ShardFolder

BLOCK = ("edges", "left", "members")
"""Arrays of a block's shard: bits of the pairs that are edges after level 0, bits of those that still are after level
1, and the members of the sets that separate the others, row by row."""


class BlockShards:
    """The shards of all blocks of levels 0 and 1.

    Args:
        owner: the temporary folder that holds the shards, if they are in one; it is deleted with this object.
    """

    def __init__(self, folder: ShardFolder, plan: PanelPlan, owner: tempfile.TemporaryDirectory | None = None):
        self.folder, self.plan, self._owner = folder, plan, owner
        self._last: tuple[tuple[int, int], tuple[np.ndarray, ...]] | None = None  # the block read last

    def _read(self, i: int, j: int, *names: str) -> Iterator[np.ndarray]:
        return (shards.read_array(self.folder.block(i, j), name) for name in names)

    def left(self, i: int, j: int) -> np.ndarray:
        """(k, 2) int32: the edges of a block after level 1."""
        return self.plan.pairs(i, j, *self._read(i, j, "left"))

    def degrees(self, i: int) -> np.ndarray:
        """(rows,) int32: the degrees of a panel's variables after level 0."""
        return next(self._read(i, i, "degrees"))

    def removed(self) -> tuple[np.ndarray, np.ndarray]:
        """(k, 2) pairs that level 1 removed, and the (k, 1) members of their sets."""
        pairs, members = [NO_PAIRS], [np.empty(0, np.int32)]
        for i, j in self.plan.blocks():
            edges, left, block_members = self._read(i, j, *BLOCK)
            pairs.append(self.plan.pairs(i, j, edges & ~left))
            members.append(block_members.astype(np.int32, copy=False))
        return np.concatenate(pairs), np.concatenate(members)[:, None]

    def member(self, i: int, j: int) -> int | None:
        """The variable that separated two variables, i < j, at level 1; None if none did."""
        rows = self.plan.rows
        block = i // rows, j // rows
        last = self._last  # a copy, since other threads may read other blocks meanwhile
        if last is None or last[0] != block:
            self._last = last = block, tuple(self._read(*block, *BLOCK))
        edges, left, members = last[1]
        removed = edges & ~left
        row, word, bit = i % rows, j % rows // 32, j % 32
        if not removed[row, word] >> np.uint32(bit) & np.uint32(1):
            return None
        bits_below = removed[row, word : word + 1] & np.uint32((1 << bit) - 1)
        before = [removed[:row].reshape(-1), removed[row, :word], bits_below]
        return int(members[sum(map(count_bits, before))])


class ShardedSets(SeparatingSets):
    """Separating sets of which those of level 1, by far the most, stay in shards.

    Reading a single set reads its shard. An operation on all sets (`pairs`, `members`, a comparison, a file) reads
    them into memory once, up to 20 bytes a pair.

    Args:
        later: pairs and sets of each level from 2 on, in memory.
    """

    def __init__(self, adjacency: np.ndarray, blocks: BlockShards, later: list[tuple[np.ndarray, np.ndarray]]):
        self._adjacency, self.gaps = adjacency, NO_PAIRS
        self._blocks, self._later = blocks, later
        self._later_sets = SeparatingSets.from_levels(adjacency, later)

    @functools.cached_property
    def _loaded(self) -> SeparatingSets:
        return SeparatingSets.from_levels(self._adjacency, [self._blocks.removed(), *self._later])

    @property
    def pairs(self) -> np.ndarray:
        return self._loaded.pairs

    @property
    def members(self) -> np.ndarray:
        return self._loaded.members

    @property
    def _sizes(self) -> Any:
        return self._loaded._sizes

    def with_gaps(self, gaps: np.ndarray) -> ShardedSets:
        sets = ShardedSets(self._adjacency, self._blocks, self._later)
        sets.gaps = gaps
        return sets

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, ...]:
        if members := self._later_sets[pair]:
            return members
        i, j = sorted(map(int, pair))
        if self._is_gap(i, j):
            raise KeyError(pair)
        member = self._blocks.member(i, j)
        return () if member is None else (member,)

    def __repr__(self) -> str:
        return f"ShardedSets({len(self)} pairs, in {self._blocks.folder.path})"

    def __reduce__(self) -> tuple[Any, ...]:
        loaded = self._loaded
        return SeparatingSets, (self._adjacency, loaded.pairs, loaded._sizes, loaded.members, self.gaps)
