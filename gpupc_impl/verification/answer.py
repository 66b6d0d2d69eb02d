"""The answer of one setting, and the test from scratch by which it is judged."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.family import get_family
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import NO_PAIRS, Skeleton
from gpupc_impl.core.tiers import allowed_sets
from gpupc_impl.measurement.record import Record

_KEPT = np.iinfo(np.int16).max


class Answer:
    """A setting's skeleton, its record, and the problem with the conventions that this setting used."""

    def __init__(self, problem: Problem, record: Record, skeleton: Skeleton):
        self.record, self.skeleton = record, skeleton
        facts = record.problem or {}
        conventions = {key: facts.get(key, getattr(problem, key)) for key in problem.PARAMETERS}
        changed = {key: value for key, value in conventions.items() if value != getattr(problem, key)}
        self.problem = dataclasses.replace(problem, **changed) if changed else problem
        if facts.get("fingerprint") != self.problem.fingerprint:
            raise ValueError(
                f"the record of {record.setting!r} on {record.dataset!r} was made from another problem; "
                "measure it again"
            )
        self.canonical, self.random = record.canonical, record.random
        self.retest = get_family(self.problem.family).retest(self.problem)
        self.sizes, fixed = skeleton.sepsets.sizes(), self.problem.fixed
        self.gaps = NO_PAIRS if fixed is None else fixed.forbidden

    @functools.cached_property
    def marks(self) -> dict[tuple[int, int, str], float | None] | None:
        """The marks of a whole graph (`core.whole_graphs`) with their p-values; None for a skeleton."""
        marks = self.skeleton.facts.get("marks")
        return None if marks is None else {(i, j, mark): value for i, j, mark, value in marks}

    @property
    def differs_by(self) -> str:
        """The rule of its own by which a program's graph may differ, as a sentence; empty without one."""
        return str(self.skeleton.facts.get("differs_by", ""))

    @functools.cached_property
    def levels(self) -> np.ndarray:
        """The level at which each pair was removed, (p, p) int16; `_KEPT` for an edge, -1 for a forbidden pair."""
        levels = np.where(self.skeleton.adjacency, np.int16(_KEPT), np.int16(0))
        listed = self.skeleton.sepsets.pairs
        for some in mapped_arrays.pieces(len(listed), 1 << 22):
            write(levels, listed[some], self.sizes[some])
        write(levels, self.gaps, -1)
        return levels

    def missing(self, ends: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return which members of the (k, l) sets are no neighbours of the (k,) `ends` at level l: (k, l) bool."""
        return (self.levels[ends[:, None], sets] < sets.shape[1]) | (ends[:, None] == sets)

    def absent(self, end: int, members: Sequence[int]) -> list[int]:
        """Return the members of one set that are no neighbours of `end` at the set's level."""
        sets = np.array([members], np.int64).reshape(1, -1)
        return sets[self.missing(np.array([end]), sets)].tolist()

    def members(self, chosen: np.ndarray, level: int) -> np.ndarray:
        """Return the (k, level) members of stored sets of equal size, which are selected by their numbers."""
        sets = self.skeleton.sepsets
        return sets.members[sets.offsets[chosen][:, None] + np.arange(level)].astype(np.int64)

    def claim(self, i: int, j: int) -> tuple[int, bool, tuple[int, ...]] | None:
        """Return the position of a pair's set in canonical order as (level, side, members), i < j; None for an edge."""
        if self.skeleton.adjacency[i, j]:
            return None
        members = self.skeleton.sepsets[i, j]
        return len(members), bool(self.absent(i, members)), members

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ratio and its tolerance (see `Retest`) for (k, 2) pairs, i < j, given (k, l) sets, and whether
        each set is misplaced: drawn from the neighbours of neither end, containing an end, or with a member that tiers
        keep out of it.

        If a set is among the neighbours of both ends, the end whose test has the smaller ratio counts.
        """
        ratios, tolerances = np.full(len(pairs), np.inf), np.zeros(len(pairs))
        misplaced = np.ones(len(pairs), bool)
        wrong = (sets[:, :, None] == pairs[:, None, :]).any(axis=(1, 2))
        wrong |= ~allowed_sets(self.problem.tiers, pairs, sets)
        for ends in (pairs, pairs[:, ::-1]):
            placed = ~self.missing(ends[:, 0], sets).any(axis=1) & ~wrong
            misplaced &= ~placed
            asked = np.flatnonzero(placed & ~(ratios <= 1))
            if len(asked):
                found, near = self.retest.ratios(ends[asked], sets[asked])
                better = found < ratios[asked]
                ratios[asked[better]], tolerances[asked[better]] = found[better], near[better]
        return ratios, tolerances, misplaced

    def label(self, pair: Sequence[int]) -> str:
        return " - ".join(self.problem.names[k] for k in pair)
