"""Reads time series: arrays, DataFrames, files, or lists of these."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables import DataError, TableFormat, read_table
from gpupc_impl.time_series.series import Series

if TYPE_CHECKING:
    import pandas


def read_series(
    data: Any, tau_max: int, *, labels: bool = False, form: TableFormat | None = None, **options: Any
) -> Series:
    """Return the series in arrays, DataFrames or files.

    In a file, a first column of dates is the index, whose steps must be equal. The other options are those of
    `Series.from_data`.

    Args:
        labels: whether values are categories, which become codes.
        form: how a file is written.

    Raises:
        InvalidProblem, gpupc_impl.tables.DataError, OSError: the series cannot be read or used.
    """
    several = isinstance(data, (list, tuple)) and len(data) > 0 and not np.isscalar(data[0]) and _is_table(data[0])
    tables = [_table(each, form, labels) for each in (data if several else [data])]
    if labels:
        tables = _coded(tables)
    return Series.from_data(tables if several else tables[0], tau_max, **options)


def _is_table(data: Any) -> bool:
    return isinstance(data, (str, Path)) or np.ndim(data) == 2


def _table(data: Any, form: TableFormat | None, labels: bool) -> Any:
    """Return an array or a DataFrame; the first column of a file is the index of the DataFrame if it holds dates."""
    if not isinstance(data, (str, Path)):
        return data
    import pandas

    path, form = Path(data), form or TableFormat()
    kind = "labels" if labels else "numbers"
    dates = None
    try:
        table = read_table(path, form=form, kind=kind)
    except DataError:
        dates = _dates(path, form)
        if dates is None:
            raise
        table = read_table(path, form=dataclasses.replace(form, row_names=True), kind=kind)
    frame = table.values if isinstance(table.values, pandas.DataFrame) else pandas.DataFrame(np.asarray(table.values))
    if table.names is not None:
        frame = frame.set_axis(table.names, axis=1)
    return frame if dates is None else frame.set_axis(dates, axis=0)


def _dates(path: Path, form: TableFormat) -> pandas.DatetimeIndex | None:
    """Return the dates in the first column of a text table, or None if it holds others."""
    import pandas

    options = {"sep": form.delimiter, "encoding": form.encoding, "header": None if form.header is False else 0}
    try:
        column = pandas.read_csv(path, usecols=[0], dtype=str, engine="python", **options).iloc[:, 0]
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
