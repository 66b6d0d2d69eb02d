"""Separating sets that stay in shards until a caller reads them."""

from __future__ import annotations

import abc
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from gpupc_impl.core.result import NO_PAIRS, SeparatingSets
from gpupc_impl.distributed import shards
from gpupc_impl.distributed.panel_plan import PanelPlan, count_bits
from gpupc_impl.distributed.shards import ShardFolder
from gpupc_impl.distributed.spec import RowGroup
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.engine.row_graph import SECOND_SIDE
from gpupc_impl.integers import ceil_div

BLOCK = ("edges", "left", "members")
"""Arrays of a block's shard: bits of the pairs that are edges after level 0, bits of the pairs that are edges after
level 1, and, row by row, the members of the sets of the pairs that level 1 separates."""


def check_block(plan: PanelPlan, i: int, j: int, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Check the invariants of the shard of a block that an earlier search wrote.

    Raises:
        ValueError: an invariant does not hold.
    """
    check_counts(outcome, ("tests", "undefined"))
    edges, left, members = (arrays[name] for name in BLOCK)
    rows, columns = (len(range(plan.p)[plan.panel(each)]) for each in (i, j))
    for bits in (edges, left):
        if bits.dtype != np.uint32 or bits.shape != (rows, ceil_div(columns, 32)):
            raise ValueError(f"its bits are {bits.dtype} {bits.shape} for {rows} x {columns} pairs")
    pairs = np.unpackbits(edges.view(np.uint8), axis=1, bitorder="little")
    if (left & ~edges).any() or pairs[:, columns:].any() or (i == j and np.tril(pairs[:, :rows]).any()):
        raise ValueError("it has edges that no level can have left")
    removed = plan.pairs(i, j, edges & ~left)
    if members.shape != (len(removed),) or members.dtype.kind not in "iu":
        raise ValueError(f"it has {members.dtype} {members.shape} members for {len(removed)} pairs")
    if not ((members >= 0) & (members < plan.p)).all() or (removed == members[:, None]).any():
        raise ValueError("a pair is separated by one of its own, or by no variable")
    if i == j:
        degrees = arrays["degrees"]
        if degrees.shape != (rows,) or degrees.dtype != np.int32 or not ((degrees >= 0) & (degrees < plan.p)).all():
            raise ValueError("its degrees are none")


def check_rows(level: int, group: RowGroup, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Check the invariants of the shard of a group of rows that an earlier search wrote.

    Raises:
        ValueError: an invariant does not hold.
    """
    check_counts(outcome, ("tests", "undefined", "pseudo_inverses"))
    keys = arrays["keys"]
    if keys.dtype != np.uint64 or keys.shape != group.neighbours.shape:
        raise ValueError(f"its keys are {keys.dtype} {keys.shape} for {len(group.neighbours)} slots")
    is_set = keys != NO_KEY
    is_set[group.required] = False
    rows, near, keys = np.repeat(group.rows, group.degrees)[is_set], group.neighbours[is_set], keys[is_set]
    owners = np.where(keys & SECOND_SIDE, np.maximum(rows, near), np.minimum(rows, near))
    order = np.argsort(group.rows)
    index = order[np.minimum(np.searchsorted(group.rows[order], owners), len(order) - 1)]
    if (group.rows[index] != owners).any() or (keys & ~SECOND_SIDE >= special.comb(group.degrees[index], level)).any():
        raise ValueError("a key names no set of a row of the group")


def check_counts(outcome: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that an outcome has counts of these names.

    Raises:
        ValueError: a count is not a whole number of at least 0.
    """
    if any(type(outcome[name]) is not int or outcome[name] < 0 for name in names):
        raise ValueError("its counts are no whole numbers of at least 0")


class FirstShards(abc.ABC):
    """The shards of levels 0 and 1.

    Attributes:
        folder: the folder of the shards.
    """

    folder: ShardFolder

    @abc.abstractmethod
    def removed(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the (k, 2) pairs that level 1 removed, and the (k, 1) members of their sets."""

    @abc.abstractmethod
    def member(self, i: int, j: int) -> int | None:
        """Return the variable that separated two variables, i < j, at level 1; None if level 1 did not separate the
        pair."""


class BlockShards(FirstShards):
    """The shards of all blocks of levels 0 and 1.

    Args:
        owner: the temporary folder of the shards, if there is one; the folder is deleted with this object.
    """

    def __init__(self, folder: ShardFolder, plan: PanelPlan, owner: tempfile.TemporaryDirectory | None = None):
        self.folder, self.plan, self._owner = folder, plan, owner
        self._last: tuple[tuple[int, int], tuple[np.ndarray, ...]] | None = None  # the block read last

    def _read(self, i: int, j: int, *names: str) -> Iterator[np.ndarray]:
        return (shards.read_array(self.folder.block(i, j), name) for name in names)

    def left(self, i: int, j: int) -> np.ndarray:
        """Return (k, 2) int32: the edges of a block after level 1."""
        return self.plan.pairs(i, j, *self._read(i, j, "left"))

    def degrees(self, i: int) -> np.ndarray:
        """Return (rows,) int32: the degrees of a panel's variables after level 0."""
        return next(self._read(i, i, "degrees"))

    def removed(self) -> tuple[np.ndarray, np.ndarray]:
        pairs, members = [NO_PAIRS], [np.empty(0, np.int32)]
        for i, j in self.plan.blocks():
            edges, left, block_members = self._read(i, j, *BLOCK)
            pairs.append(self.plan.pairs(i, j, edges & ~left))
            members.append(block_members.astype(np.int32, copy=False))
        return np.concatenate(pairs), np.concatenate(members)[:, None]

    def member(self, i: int, j: int) -> int | None:
        rows = self.plan.rows
        block = i // rows, j // rows
        last = self._last  # a local reference, since other threads may replace it
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
    """Separating sets, of which those of level 1, which are by far the most, stay in shards.

    Reading a single set reads its shard. An operation on all sets (`pairs`, `members`, a comparison, a file) reads
    them into memory once, up to 20 bytes a pair.

    Args:
        later: pairs and sets of each level from 2 on, in memory.
    """

    def __init__(self, adjacency: np.ndarray, blocks: FirstShards, later: list[tuple[np.ndarray, np.ndarray]]):
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
