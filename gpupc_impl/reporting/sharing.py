"""How many rows of A'_G share a conditional set in level 2 (cuPC, section 5.5 and Fig. 9)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.result import Skeleton

LEVEL = 2
BLOCK = 1024
COLUMNS = ("dataset", "kind", "setting", "rows", "sets")


def sets_by_rows(adjacency: np.ndarray) -> np.ndarray:
    """How many sets of two variables appear in exactly r rows of A'_G in level 2, for r = 0, 1, 2, ...

    A set {a, b} appears in row i when a and b are neighbours of i and row i has a third neighbour to test them with
    (cuPC, Algorithm 5): early termination, which may spare a row some of its sets, is left out of account.

    The rows of a set are counted for all pairs at once, as the product of the rows' incidence matrix with itself, in
    blocks: the sets, hundreds of millions of them, are never listed. float32 is exact here: the terms are zeros and
    ones, and their sums, at most the number of rows, are far below 2^24.

    Args:
        adjacency: (p, p) bool, symmetric: the graph at the start of level 2.
    """
    rows = adjacency[np.count_nonzero(adjacency, axis=1) > LEVEL]
    found = np.zeros(len(rows) + 1, np.int64)
    starts = range(0, rows.shape[1], BLOCK)
    for first in starts:
        left = rows[:, first : first + BLOCK].astype(np.float32).T
        for second in starts[first // BLOCK :]:
            shared = (left @ rows[:, second : second + BLOCK].astype(np.float32)).astype(np.int64)
            if first == second:
                shared = shared[np.triu_indices(len(shared), k=1)]
            found += np.bincount(shared.ravel(), minlength=len(found))
    return np.trim_zeros(found, "b")


def count_sharing(
    record_paths: Sequence[str | Path], verification: Sequence[Mapping[str, str]], kind: str
) -> list[dict[str, Any]]:
    """The histogram of one data set, from the first setting whose skeleton was verified to equal the reference's.

    Separating sets have the size of the level that removed their pair, so any setting gives the same graph.

    Args:
        record_paths: the data set's records, each with its skeleton beside it (``.npz``).
        verification: the data set's rows of verification.csv.
        kind: what kind of data set it is, for the figure's choice.

    Returns:
        rows with `COLUMNS`, one a number of rows, from one upward; none when no setting finished.
    """
    equal = {row["setting"] for row in verification if row["status"] == "equal"}
    for path in map(Path, record_paths):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["setting"] in equal:
            counts = sets_by_rows(Skeleton.load(path.with_suffix(".npz")).adjacency_at(LEVEL))
            values = record["dataset"]["name"], kind, record["setting"]
            return [dict(zip(COLUMNS, (*values, r, int(n)), strict=True)) for r, n in enumerate(counts) if r and n]
    return []


class Sharing:
    """The histogram of one data set.

    Attributes:
        rows, sets: `sets` sets appear in exactly `rows` rows, ascending.
    """

    def __init__(self, lines: Sequence[Mapping[str, str]]):
        self.dataset, self.kind, self.setting = (lines[0][name] for name in COLUMNS[:3])
        self.rows = np.array([int(line["rows"]) for line in lines])
        self.sets = np.array([int(line["sets"]) for line in lines])

    @property
    def appearances(self) -> int:
        """Pairs of a row and a set in it: what cuPC-S computes in level 2."""
        return int(self.rows @ self.sets)

    @property
    def redundant(self) -> int:
        """Sets that appear in more than one row, each counted once: global sharing would spare their repetition."""
        return int(self.sets[self.rows > 1].sum())

    def percent_within(self, low: int, high: int) -> float:
        """Percent of the redundant sets that appear in at least `low` and at most `high` rows."""
        return 100 * int(self.sets[(self.rows >= max(low, 2)) & (self.rows <= high)].sum()) / self.redundant


def load(lines: Sequence[Mapping[str, str]]) -> list[Sharing]:
    """The data sets of a CSV with `COLUMNS` that have redundant sets, in its order."""
    names = dict.fromkeys(line["dataset"] for line in lines)
    sharings = [Sharing([line for line in lines if line["dataset"] == name]) for name in names]
    return [sharing for sharing in sharings if sharing.redundant]


def largest(sharings: Sequence[Sharing]) -> Sharing | None:
    """The measured data (not generated) with the most sets to compute, as DREAM5-Insilico is in the paper; else any."""
    measured = [sharing for sharing in sharings if sharing.kind == "file"] or sharings
    return max(measured, key=lambda sharing: sharing.appearances, default=None)
