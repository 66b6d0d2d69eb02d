"""Time series, how they are read, and the samples of their lagged variables that the tests are made on.

A lagged variable has the number of its column: ``lag * N + v`` is variable v, ``lag`` steps before the time of the
target. Conditions reach back 2 tau_max steps, so a sample is a time step from 2 tau_max on, with all its past
(tigramite's ``cut_off="2xtau_max"``). The samples of several series follow each other.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, as_matrix
from gpupc_impl.tables import DataError, TableFormat, read_table

if TYPE_CHECKING:
    import pandas

MASK_TYPES = frozenset("xyz")


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One or several series of the same variables.

    Attributes:
        values: one (T, N) float64 array for each series, NaN where a value is missing.
        names: the variables' names.
        tau_max: the largest lag of a link.
        masks: one (T, N) bool array for each series, True where a value is masked; empty without a mask.
        mask_type: the roles in which a masked value removes a sample from a test: a string of ``x``, ``y`` and ``z``.
        missing_reaches: whether a missing value also removes the 2 tau_max samples that follow.
    """

    values: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    tau_max: int
    masks: tuple[np.ndarray, ...] = ()
    mask_type: str = ""
    missing_reaches: bool = False

    @classmethod
    def from_data(
        cls,
        data: Any,
        tau_max: int,
        *,
        names: Sequence[str] | None = None,
        mask: Any = None,
        mask_type: str | None = None,
        missing_reaches: bool = False,
    ) -> Series:
        """Check series and masks.

        Args:
            data: a (T, N) array or DataFrame, whose rows are time steps, or a list of several.
            mask: an array of the shape of the data, or a list of several, True where a value is masked.

        Raises:
            InvalidProblem: a shape, a value, the time steps of an index, tau_max or the mask cannot be used.
        """
        several = isinstance(data, (list, tuple)) and len(data) > 0 and np.ndim(data[0]) == 2
        tables = list(data) if several else [data]
        arrays = []
        for table in tables:
            _check_steps(getattr(table, "index", None))
            matrix, own_names = as_matrix(table, names)
            names = names or own_names
            if len(own_names) != len(names) or (hasattr(table, "columns") and own_names != tuple(names)):
                raise InvalidProblem(f"the series have different variables: {_few(names)}, and {_few(own_names)}")
            if np.isinf(matrix).any():
                raise InvalidProblem("the series has an infinite value; mark it as missing by NaN")
            arrays.append(np.ascontiguousarray(matrix, np.float64))
        assert names is not None
        longest = max(map(len, arrays))
        if longest <= 2 * tau_max:
            raise InvalidProblem(
                f"tau_max is {tau_max}, and the longest series has {longest} time steps; tests need more than "
                f"2 tau_max = {2 * tau_max} steps, so choose tau_max up to {max((longest - 1) // 2, 0)}"
            )
        for v, name in enumerate(names):
            present = np.concatenate([array[:, v] for array in arrays])
            present = present[~np.isnan(present)]
            if not len(present):
                raise InvalidProblem(f"variable {name!r} has no value; leave it out")
            if (present == present[0]).all():
                raise InvalidProblem(f"variable {name!r} has the same value at all time steps; leave it out")
        masks = () if mask is None else tuple(np.asarray(each, bool) for each in (mask if several else [mask]))
        if [each.shape for each in masks] != [each.shape for each in arrays] and mask is not None:
            raise InvalidProblem(f"the mask has shape {np.shape(mask)}; it has an entry for each value of the series")
        if (mask is None) != (mask_type is None):
            raise InvalidProblem(
                "mask and mask_type go together: what is masked, and the roles (such as 'y') it acts in"
            )
        if mask_type is not None and not (mask_type and set(mask_type) <= MASK_TYPES):
            raise InvalidProblem(f"mask_type is {mask_type!r}; it is a text of the letters x, y and z, such as 'y'")
        return cls(tuple(arrays), tuple(names), int(tau_max), masks, mask_type or "", missing_reaches)

    @property
    def n_variables(self) -> int:
        return len(self.names)

    @property
    def n_columns(self) -> int:
        return self.n_variables * (2 * self.tau_max + 1)

    @functools.cached_property
    def is_whole(self) -> bool:
        """Whether every test uses the same samples, since nothing is masked or missing."""
        return not self.masks and not any(np.isnan(each).any() for each in self.values)

    @property
    def treats_ends_alike(self) -> bool:
        """Whether a test of Y and X uses the samples of the test of X and Y."""
        return ("x" in self.mask_type) == ("y" in self.mask_type)

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """(n, columns) float64: the lagged variables."""
        return _lagged(self.values, self.tau_max)

    @functools.cached_property
    def _masked(self) -> np.ndarray:
        """(n, columns) bool: which entries of `columns` are masked."""
        return _lagged(self.masks, self.tau_max)

    @functools.cached_property
    def _missing(self) -> np.ndarray:
        return np.isnan(self.columns)

    def sample(self, x: int, y: int, conditions: Sequence[int]) -> np.ndarray:
        """Return the samples of a test as rows X, Y, conditions: (2 + conditions, n) float64.

        Without masks and missing values these are all. Conditions without variation are left out; a constant X or Y is
        the caller's to find.

        Raises:
            InvalidProblem: no sample is left.
        """
        nodes = [x, y, *conditions]
        array = self.columns[:, nodes].T
        if not self.is_whole:
            array = array[:, self._kept(x, y, conditions)]
        if not array.shape[1]:
            raise InvalidProblem(
                f"masks and missing values leave no sample to {self.described(x, y, conditions)}; fill or drop "
                "variables with many missing values"
            )
        varies = array.min(axis=1) < array.max(axis=1)
        varies[:2] = True
        return np.ascontiguousarray(array[varies])

    def _kept(self, x: int, y: int, conditions: Sequence[int]) -> np.ndarray:
        """Return which samples a test uses, (n,) bool."""
        missing = self._missing[:, [x, y, *conditions]].any(axis=1)
        if self.missing_reaches:
            start = 0
            for length in self.lengths:
                own = missing[start : start + length]
                counts = np.concatenate(([0], np.cumsum(own)))
                first = np.maximum(np.arange(length) - 2 * self.tau_max, 0)
                own |= counts[1:] > counts[first]
                start += length
        kept = ~missing
        for role, nodes in (("x", [x]), ("y", [y]), ("z", list(conditions))):
            if role in self.mask_type and nodes:
                kept &= ~self._masked[:, nodes].any(axis=1)
        return kept

    @property
    def lengths(self) -> list[int]:
        """The numbers of samples of the series."""
        return [max(len(each) - 2 * self.tau_max, 0) for each in self.values]

    def described(self, x: int, y: int, conditions: Iterable[int]) -> str:
        """Return a test as text."""
        given = ", ".join(map(self.node_name, conditions)) or "nothing"
        return f"the test of {self.node_name(x)} and {self.node_name(y)} given {given}"

    def node_name(self, column: int) -> str:
        lag, variable = divmod(int(column), self.n_variables)
        return f"{self.names[variable]}(t{f'-{lag}' if lag else ''})"


def _lagged(arrays: Sequence[np.ndarray], tau_max: int) -> np.ndarray:
    """Return the columns of `Series.columns` of each array, one below the other."""
    window = 2 * tau_max
    parts = [
        np.hstack([each[window - lag : len(each) - lag] for lag in range(window + 1)])
        for each in arrays
        if len(each) > window
    ]
    return np.concatenate(parts)


def _few(names: Iterable[str], most: int = 4) -> str:
    listed = list(map(str, names))
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _check_steps(index: Any) -> None:
    """Check that an index of dates or numbers has equal steps.

    Raises:
        InvalidProblem: it has not.
    """
    kind = getattr(getattr(index, "dtype", None), "kind", "")
    if kind not in "Mif" or not kind or len(index) < 3:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas says that the type of the frequency will change.
        calendar = getattr(index, "inferred_freq", None)  # such as months, whose lengths differ
    steps = np.diff(np.asarray(index))
    unequal = np.flatnonzero(steps != steps[0])
    if kind == "f":
        unequal = np.flatnonzero(~np.isclose(steps, steps[0], rtol=1e-6))
    if len(unequal) and calendar is None:
        row = int(unequal[0])
        raise InvalidProblem(
            f"the rows are not equally spaced in time: {index[row]} to {index[row + 1]} is no step like {index[0]} to "
            f"{index[1]}; resample the series, insert the missing rows with NaN, or drop the index (reset_index)"
        )


# --- arrays, DataFrames, files, or lists of these --------------------------------------------------------------------


def read_series(data: Any, tau_max: int, *, labels: bool = False, **options: Any) -> Series:
    """Return the series in arrays, DataFrames or files.

    In a file, a first column of dates is the index, whose steps must be equal. The other options are those of
    `Series.from_data`.

    Args:
        labels: whether values are categories, which become codes.

    Raises:
        InvalidProblem, gpupc_impl.tables.DataError, OSError: the series cannot be read or used.
    """
    several = isinstance(data, (list, tuple)) and len(data) > 0 and _is_table(data[0])
    tables = [_table(each, labels) for each in (data if several else [data])]
    if labels:
        tables = _coded(tables)
    return Series.from_data(tables if several else tables[0], tau_max, **options)


def _is_table(data: Any) -> bool:
    return isinstance(data, (str, Path)) or np.ndim(data) == 2


def _table(data: Any, labels: bool) -> Any:
    """Return an array or a DataFrame; the first column of a file is the index of the DataFrame if it holds dates."""
    if not isinstance(data, (str, Path)):
        return data
    import pandas

    path, kind, dates = Path(data), "labels" if labels else "numbers", None
    try:
        table = read_table(path, kind=kind)
    except DataError:
        dates = _dates(path)
        if dates is None:
            raise
        table = read_table(path, form=TableFormat(row_names=True), kind=kind)
    frame = table.values if isinstance(table.values, pandas.DataFrame) else pandas.DataFrame(np.asarray(table.values))
    if table.names is not None:
        frame = frame.set_axis(table.names, axis=1)
    return frame if dates is None else frame.set_axis(dates, axis=0)


def _dates(path: Path) -> pandas.DatetimeIndex | None:
    """Return the dates in the first column of a text table, or None if it holds others."""
    import pandas

    try:
        column = pandas.read_csv(path, usecols=[0], dtype=str, engine="python", sep=None).iloc[:, 0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of text that is no date
            return pandas.DatetimeIndex(pandas.to_datetime(column))
    except (ValueError, TypeError, OSError):
        return None


def _coded(tables: list[Any]) -> list[Any]:
    """Return DataFrames with a number for each category, the same in all series; missing values stay NaN.

    Raises:
        InvalidProblem: the tables have different columns.
    """
    import pandas

    frames = [each if isinstance(each, pandas.DataFrame) else pandas.DataFrame(np.asarray(each)) for each in tables]
    if any(list(each.columns) != list(frames[0].columns) for each in frames):
        raise InvalidProblem("the series have different variables")
    coded = [pandas.DataFrame(index=each.index) for each in frames]
    ends = np.cumsum([len(each) for each in frames])[:-1]
    for column in frames[0].columns:
        codes, _ = pandas.factorize(np.concatenate([each[column].to_numpy(object) for each in frames]), sort=False)
        values = np.where(codes < 0, np.nan, codes)
        for frame, part in zip(coded, np.split(values, ends), strict=True):
            frame[str(column) if isinstance(column, str) else f"V{column}"] = part
    return coded
