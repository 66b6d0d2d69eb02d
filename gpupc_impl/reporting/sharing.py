"""Counts how many rows of A'_G share a conditioning set in level 2 (cuPC, section 5.5 and Fig. 9)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import read_json
from gpupc_impl.core.result import Skeleton

LEVEL = 2
BLOCK = 1024  # the number of variables whose pairs are counted at once

COLUMNS = ("dataset", "kind", "setting", "rows", "sets")


def sets_by_rows(adjacency: np.ndarray) -> np.ndarray:
    """Count the sets of two variables that appear in exactly r rows of A'_G in level 2, for r = 0, 1, 2, ..., from the
    graph at the start of level 2, (p, p) bool.

    A set {a, b} appears in row i when a and b are neighbours of i and row i has a third neighbour to test them with
    (cuPC, Algorithm 5); early termination is ignored. The product of the rows' incidence matrix with itself counts the
    rows of all pairs, in blocks, so that hundreds of millions of sets are never listed. float32 is exact, since sums of
    ones stay far below 2^24.
    """
    rows = adjacency[np.count_nonzero(adjacency, axis=1) > LEVEL]
    counts = np.zeros(len(rows) + 1, np.int64)
    starts = range(0, rows.shape[1], BLOCK)
    for first in starts:
        left = rows[:, first : first + BLOCK].astype(np.float32).T
        for second in starts[first // BLOCK :]:
            shared = (left @ rows[:, second : second + BLOCK].astype(np.float32)).astype(np.int64)
            if first == second:
                shared = shared[np.triu_indices(len(shared), k=1)]
            counts += np.bincount(shared.ravel(), minlength=len(counts))
    return np.trim_zeros(counts, "b")


def count_sharing(
    record_paths: Sequence[str | Path], verification: Sequence[Mapping[str, str]], kind: str
) -> list[dict[str, Any]]:
    """Return the histogram of a data set of a kind in the registry, from the first of its records with a verified
    skeleton, which lies beside it (``.npz``); every setting gives the same graph. Its rows with `COLUMNS` are one for
    each number of rows that share a set, from one upward; there are none if no setting finished."""
    verified = {row["setting"] for row in verification if row["status"] in ("equal", "alone")}
    for path in map(Path, record_paths):
        record = read_json(path)
        if record["setting"] in verified:
            counts = sets_by_rows(Skeleton.load(path.with_suffix(".npz")).adjacency_at(LEVEL))
            values = record["dataset"]["name"], kind, record["setting"]
            return [dict(zip(COLUMNS, (*values, r, int(n)), strict=True)) for r, n in enumerate(counts) if r and n]
    return []


class Sharing:
    """The histogram of one data set: ``sets[k]`` sets appear in exactly ``rows[k]`` rows; ``rows`` ascends."""

    def __init__(self, lines: Sequence[Mapping[str, str]]):
        self.dataset, self.kind, self.setting = (lines[0][name] for name in COLUMNS[:3])
        self.rows = np.array([int(line["rows"]) for line in lines])
        self.sets = np.array([int(line["sets"]) for line in lines])

    @property
    def redundant(self) -> int:
        """The number of sets that appear in several rows, which global sharing would compute only once."""
        return int(self.sets[self.rows > 1].sum())

    def percent_within(self, low: int, high: int) -> float:
        """The percentage of the redundant sets that appear in at least ``low`` and at most ``high`` rows."""
        return 100 * int(self.sets[(self.rows >= max(low, 2)) & (self.rows <= high)].sum()) / self.redundant


def load(lines: Sequence[Mapping[str, str]]) -> list[Sharing]:
    """Return the data sets with redundant sets, from the lines of a CSV with `COLUMNS`, in order."""
    names = dict.fromkeys(line["dataset"] for line in lines)
    sharings = [Sharing([line for line in lines if line["dataset"] == name]) for name in names]
    return [sharing for sharing in sharings if sharing.redundant]


def largest(sharings: Sequence[Sharing]) -> Sharing | None:
    """Return the data set with the most sets to compute in level 2, each once for every row in which it appears, among
    files if there are any."""
    measured = [sharing for sharing in sharings if sharing.kind == "file"] or sharings
    return max(measured, key=lambda sharing: sharing.rows @ sharing.sets, default=None)
