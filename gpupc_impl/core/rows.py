"""Tables of numbers that are read some rows at a time, so that they may be larger than memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpupc_impl.core import mapped_arrays


@dataclasses.dataclass(frozen=True, eq=False)
class RowStatistics:
    """Statistics of p columns from one pass over all `rows`; they leave out missing values unless stated otherwise."""

    rows: int
    means: np.ndarray  # (p,) means, up to rounding; 0 for a column without values
    largest: np.ndarray  # (p,) largest magnitudes; 0 for a column without values
    constant: np.ndarray  # (p,) bool: no two values differ
    missing: np.ndarray  # (p,) int64 numbers of missing values
    incomplete_rows: int  # the number of rows with missing values
    first_missing: tuple[int, int] | None  # the row and the column of the first such value; None if there is none
    infinite: int  # the number of infinite values
    first_infinite: tuple[int, int] | None  # likewise


@dataclasses.dataclass(frozen=True, eq=False)
class RowStream:
    """A table that is read some rows at a time; conversion to an array reads it as a whole. `read` returns an iterator
    over consecutive rows, (k, p) float64 with NaN for missing values; `complete_only` says whether rows with missing
    values, which `shape` does not count, are left out."""

    shape: tuple[int, int]
    read: Callable[[], Iterator[np.ndarray]]
    complete_only: bool = False
    ndim = 2

    @classmethod
    def of(cls, values: np.ndarray) -> RowStream:
        """Return the stream of an (m, p) array of numbers, which may be mapped."""

        def read() -> Iterator[np.ndarray]:
            for rows in mapped_arrays.row_pieces(values):
                yield np.asarray(values[rows], np.float64)
                mapped_arrays.release(values)

        return cls(values.shape, read)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate([np.empty((0, self.shape[1])), *map(np.array, self.chunks())]).astype(dtype, copy=False)

    def chunks(self) -> Iterator[np.ndarray]:
        for rows in self.read():
            yield rows[~np.isnan(rows).any(axis=1)] if self.complete_only else rows

    @functools.cached_property
    def head(self) -> np.ndarray:
        """The first chunk that has rows, (k, p); (0, p) if no row is left."""
        return next((rows for rows in self.chunks() if len(rows)), np.empty((0, self.shape[1])))

    @functools.cached_property
    def statistics(self) -> RowStatistics:
        """The statistics of all rows, for which they are read once."""
        m, p = self.shape
        rows, infinite, incomplete = 0, 0, 0
        first_infinite = first_missing = None
        missing, sums, largest = np.zeros(p, np.int64), np.zeros(p), np.zeros(p)
        first, constant = np.full(p, np.nan), np.ones(p, bool)  # the first value of each column
        for chunk in filter(len, self.chunks()):
            absent = np.isnan(chunk)
            has_missing = bool(absent.any())
            filled = np.where(absent, 0.0, chunk) if has_missing else chunk
            highest = np.maximum(filled.max(axis=0), -filled.min(axis=0))
            if has_missing:
                missing += absent.sum(axis=0)
                incomplete += int(absent.any(axis=1).sum())
                first_missing = first_missing or _first(absent, rows)
            if np.isinf(highest).any():
                infinite += int(np.isinf(chunk).sum())
                first_infinite = first_infinite or _first(np.isinf(chunk), rows)
            largest = np.maximum(largest, highest)
            with np.errstate(invalid="ignore"):
                sums += (filled * (1 / m)).sum(axis=0)  # Unlike the values, these products cannot overflow.
            for k in np.flatnonzero(np.isnan(first) & ~absent.all(axis=0)):
                first[k] = chunk[absent[:, k].argmin(), k]
            left = np.flatnonzero(constant)
            constant[left] = ((chunk[:, left] == first[left]) | absent[:, left]).all(axis=0)
            rows += len(chunk)
        means = sums * (m / np.maximum(rows - missing, 1))
        return RowStatistics(
            rows, means, largest, constant, missing, incomplete, first_missing, infinite, first_infinite
        )

    def scaled(self, rows: np.ndarray, xp: Any = np) -> Any:
        """Return rows scaled by a power of two for each column, to about one at most, without the columns' means. Both
        are exact but for the rounding of a difference, since a power of two only changes the exponent."""
        _, exponents = np.frexp(self.statistics.largest)
        scale = np.ldexp(1.0, -np.clip(exponents, -1000, 1000))
        return xp.asarray(rows) * xp.asarray(scale) - xp.asarray(self.statistics.means * scale)


def _first(marks: np.ndarray, before: int) -> tuple[int, int]:
    row, column = np.argwhere(marks)[0].tolist()
    return before + row, column
