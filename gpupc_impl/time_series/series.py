"""Time series, how they are read, and the samples of their lagged variables that the tests are made on. A lagged
variable has the number of its column: ``lag * N + v`` is variable v, ``lag`` steps before the time of the target.
Conditions reach back 2 tau_max steps, so a sample is a time step from 2 tau_max on, with all its past (tigramite's
``cut_off="2xtau_max"``). The samples of several series follow each other."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import shortened
from gpupc_impl.core.problem import InvalidProblem, as_matrix
from gpupc_impl.tables import DataError, TableFormat, is_frame, read_table

if TYPE_CHECKING:
    import pandas

LEAST_SAMPLES = 3  # that a partial correlation without conditions needs
PATHS = (str, Path)  # the types of the name of a file


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One or several series of the same variables."""

    values: tuple[np.ndarray, ...]  # one (T, N) float64 array for each series, NaN where a value is missing
    names: tuple[str, ...]  # those of `pcmci`, as `tau_max` is
    tau_max: int
    masks: tuple[np.ndarray, ...] = ()  # one (T, N) bool array for each series, True where masked; empty without a mask
    mask_type: str = ""  # the roles in which a masked value removes a sample from a test: ``x``, ``y`` and ``z``
    missing_reaches: bool = False  # whether a missing value also removes the 2 tau_max samples that follow

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

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """(n, columns) float64: the lagged variables."""
        return _lagged(self.values, self.tau_max)

    @functools.cached_property
    def _masked(self) -> np.ndarray:
        """(n, columns) bool: which entries of `columns` are masked."""
        return _lagged(self.masks, self.tau_max)

    @functools.cached_property
    def _reach(self) -> np.ndarray:
        """(n,) the first sample of the same series whose missing values remove each sample; it may be itself."""
        lengths = [max(len(each) - 2 * self.tau_max, 0) for each in self.values]
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.maximum(np.arange(len(starts)) - 2 * self.tau_max * self.missing_reaches, starts)

    def sample(self, x: int, y: int, conditions: list[int]) -> np.ndarray:
        """Return the samples of a test as rows X, Y, conditions: (2 + conditions, n) float64. Conditions without
        variation are left out, but not a constant X or Y; InvalidProblem says that no sample is left."""
        nodes = [x, y, *conditions]
        array = self.columns[:, nodes].T
        if not self.is_whole:
            counts = np.concatenate(([0], np.cumsum(np.isnan(array).any(axis=0))))
            kept = counts[1:] == counts[self._reach]
            for role, of_role in (("x", [x]), ("y", [y]), ("z", conditions)):
                if role in self.mask_type:
                    kept &= ~self._masked[:, of_role].any(axis=1)
            array = array[:, kept]
        if not array.shape[1]:
            raise InvalidProblem(
                f"masks and missing values leave no sample to {self.described(x, y, conditions)}; fill or drop "
                "variables with many missing values"
            )
        varies = array.min(axis=1) < array.max(axis=1)
        varies[:2] = True
        return np.ascontiguousarray(array[varies])

    def described(self, x: int, y: int, conditions: Iterable[int]) -> str:
        def name(column: int) -> str:
            lag, variable = divmod(int(column), self.n_variables)
            return f"{self.names[variable]}(t{f'-{lag}' if lag else ''})"

        return f"the test of {name(x)} and {name(y)} given {', '.join(map(name, conditions)) or 'nothing'}"


def _lagged(arrays: Sequence[np.ndarray], tau_max: int) -> np.ndarray:
    """Return the columns of `Series.columns` of each array, one below the other."""
    steps = 2 * tau_max + 1
    windows = [np.lib.stride_tricks.sliding_window_view(each, steps, axis=0) for each in arrays if len(each) >= steps]
    return np.concatenate([each[..., ::-1].swapaxes(1, 2).reshape(len(each), -1) for each in windows])


def _check_steps(index: pandas.Index) -> None:
    """Raise InvalidProblem unless an index of dates, periods or numbers has equal steps, forward in time."""
    if index.inferred_type in ("string", "date", "datetime"):
        index = _dates(index)
    if index is None or len(index) < 3 or not (hasattr(index, "asi8") or index.dtype.kind in "iuf"):
        return
    steps = np.diff(index.asi8 if hasattr(index, "asi8") else index.to_numpy(np.float64))
    with warnings.catch_warnings(action="ignore"):  # pandas says that the type of the frequency will change.
        calendar = getattr(index, "inferred_freq", None)  # such as months, whose lengths differ
    usual = np.median(steps)
    if usual <= 0 or (calendar is None and not np.allclose(steps, usual, rtol=1e-6, atol=0)):
        row = int(np.abs(steps - max(usual, 0)).argmax())
        raise InvalidProblem(
            f"the rows are not equally spaced in time: {index[row]} is followed by {index[row + 1]}; sort the rows, "
            "resample the series, insert missing rows with NaN, or drop the index (reset_index)"
        )


def _dates(cells: Any) -> pandas.DatetimeIndex | None:
    """Return the dates that cells hold; None if they hold something else."""
    import pandas

    for options in ({}, {"dayfirst": True}, {"utc": True}):
        # Warnings are of text that is no date.
        with contextlib.suppress(ValueError, TypeError), warnings.catch_warnings(action="ignore"):
            return pandas.DatetimeIndex(pandas.to_datetime(cells, **options))
    return None


def read_series(
    data: Any,
    tau_max: int,
    names: Sequence[str] | None = None,
    mask: Any = None,
    mask_type: str | None = None,
    *,
    missing_reaches: bool = False,
    labels: bool = False,
) -> Series:
    """Return checked series; arguments and errors are those of `pcmci`. With `labels`, values become codes."""
    first = data[:1] if isinstance(data, (list, tuple)) else []
    several = any(isinstance(each, PATHS) or np.ndim(each) == 2 for each in first)
    tables = [_file(Path(each), labels) if isinstance(each, PATHS) else each for each in (data if several else [data])]
    tables = [_prepared(each) if is_frame(each) else each for each in tables]
    columns = [tuple(map(str, table.columns)) for table in tables if hasattr(table, "columns")]
    if other := [each for each in columns if each != columns[0]]:
        ours, theirs = (shortened(", ".join(each), 60) for each in (columns[0], other[0]))
        raise InvalidProblem(f"the series have different variables: {ours}, and {theirs}")
    if names is None and columns:
        names = columns[0]
    arrays = []
    for table in _coded(tables) if labels else tables:
        matrix, names = as_matrix(table, names)
        if np.isinf(matrix).any():
            raise InvalidProblem("the series has an infinite value; mark it as missing by NaN")
        arrays.append(np.ascontiguousarray(matrix, np.float64))
    assert names is not None
    longest, samples = max(map(len, arrays)), sum(max(len(each) - 2 * tau_max, 0) for each in arrays)
    if samples < LEAST_SAMPLES:
        most = (longest - LEAST_SAMPLES) // 2
        way_out = f"choose tau_max up to {most}" if most > 0 else f"bring at least {LEAST_SAMPLES + 2} steps"
        raise InvalidProblem(
            f"tau_max is {tau_max}, and the longest series has {longest} time steps (rows); the first 2 tau_max = "
            f"{2 * tau_max} are no samples, so {way_out}"
        )
    for name, column in zip(names, np.concatenate(arrays).T, strict=True):
        present = column[~np.isnan(column)]
        if (present == present[:1]).all():
            fault = "the same value at all time steps" if len(present) else "no value"
            raise InvalidProblem(f"variable {name!r} has {fault}; leave it out")
    if (mask is None) != (mask_type is None):
        raise InvalidProblem("mask and mask_type go together: what is masked, and the roles (such as 'y') it acts in")
    masks = [] if mask is None else list(mask) if several else [mask]
    if mask is not None and [np.shape(each) for each in masks] != [each.shape for each in arrays]:
        raise InvalidProblem(f"the mask has shape {np.shape(mask)}; it has an entry for each value of the series")
    for each in masks:
        if hasattr(each, "columns") and columns and tuple(map(str, each.columns)) != columns[0]:
            raise InvalidProblem("the mask has other columns than the series, or in another order")
        if not np.isin(each, (0, 1)).all():
            raise InvalidProblem("the mask has other values than True and False")
    if mask_type is not None and not (isinstance(mask_type, str) and mask_type and set(mask_type) <= set("xyz")):
        raise InvalidProblem(f"mask_type is {mask_type!r}; it is a text of the letters x, y and z, such as 'y'")
    masks = [np.asarray(each, bool) for each in masks]
    return Series(tuple(arrays), tuple(names), int(tau_max), tuple(masks), mask_type or "", missing_reaches)


def _prepared(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a DataFrame with its dates as index, whose steps are checked, and NaN for missing values."""
    if frame.shape[1] and frame.dtypes.iloc[0].kind == "M":
        frame = frame.set_index(frame.columns[0])
    _check_steps(frame.index)
    if all(isinstance(dtype, np.dtype) for dtype in frame.dtypes):
        return frame
    return frame.astype(object).where(frame.notna(), np.nan)  # Int64, for example, has its own missing value.


def _file(path: Path, labels: bool) -> pandas.DataFrame:
    """Return the table in a file. Its first column is the index if it holds dates, or numbers without a name."""
    import pandas

    def read(row_names: bool) -> pandas.DataFrame:
        table = read_table(path, form=TableFormat(row_names=row_names), kind="labels" if labels else "numbers")
        return pandas.DataFrame(table.values, columns=table.names)

    try:
        frame, fault = read(row_names=False), ""
        if not labels:
            return frame
    except DataError as error:
        frame, fault = None, str(error).split("; say --row-names")[0]
    with contextlib.suppress(ValueError, csv.Error):
        rest = read(row_names=True)
        cells = pandas.read_csv(path, usecols=[0], dtype=str, engine="python", sep=None, header=None).iloc[:, 0]
        numbers = pandas.to_numeric(cells[-len(rest) :], errors="coerce")
        if numbers.isna().any():
            index = _dates(cells[-len(rest) :])
        else:
            has_name = len(cells) == len(rest) or pandas.notna(cells.iloc[-len(rest) - 1])
            index = None if has_name else pandas.Index(numbers)
        if index is not None:
            return rest.set_axis(index, axis=0)
    if frame is None:
        raise DataError(f"{fault}; a first column may hold dates, or numbers without a name, which order the rows")
    return frame


def _coded(tables: list[Any]) -> list[Any]:
    """Return arrays with a number for each category, the same in all series; missing values are NaN."""
    import pandas

    frames = [pandas.DataFrame(each if hasattr(each, "columns") else np.asanyarray(each)) for each in tables]
    if len({frame.shape[1] for frame in frames}) > 1:
        raise InvalidProblem("the series have different variables")
    cells = np.concatenate([frame.to_numpy(object) for frame in frames])
    codes = np.array([pandas.factorize(column)[0] for column in cells.T], np.float64).T
    codes[codes < 0] = np.nan
    return np.split(codes, np.cumsum([len(frame) for frame in frames])[:-1])
