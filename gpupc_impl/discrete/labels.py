"""The conversion of labels to codes, column by column of a discrete problem's data."""

import collections
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, variable_names

MAX_CATEGORIES = 65_535  # upper bound on the categories of a variable: codes have 16 bits
MAX_SAMPLES = 2**31 - 2**18  # their numbers have 32 bits, and a kernel's loop may step beyond the last sample


def columns_of(data: Any, names: Sequence[str] | None) -> tuple[Iterator[Any], tuple[str, ...]]:
    """Return the columns of a DataFrame or an array in order, and their names. InvalidProblem is raised if the data are
    no matrix, or have no variables, no samples, or too many of either."""
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = [str(name) for name in data.columns] if names is None else names
        shape, columns = data.shape, (data.iloc[:, k] for k in range(data.shape[1]))
    else:
        try:  # as objects, since NumPy would convert numbers and missing values beside text into text
            values = data if hasattr(data, "__array__") else np.array(data, dtype=object)
            values = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        except ValueError as error:
            raise InvalidProblem(f"data is not a matrix of labels: {error}") from error
        if values.ndim != 2:
            raise InvalidProblem(f"data has {values.ndim} dimension(s); it must have 2 (samples x variables)")
        shape, columns = values.shape, (values[:, k] for k in range(values.shape[1]))
    if shape[1] < 1:
        raise InvalidProblem("data has no variables")
    if not 1 <= shape[0] <= MAX_SAMPLES:
        raise InvalidProblem(
            f"data has {shape[0]:,} samples; a test needs at least 1, and takes at most {MAX_SAMPLES:,}"
        )
    return columns, variable_names(names, shape[1])


def encode(name: str, column: Any, categories: Sequence[Any] | int | None) -> tuple[np.ndarray, tuple[str, ...], bool]:
    """Return a column's codes, its labels, and whether these were declared. `categories` are the declared labels, or
    their number; None stands for the labels of a Categorical dtype, and else for the labels that occur. InvalidProblem
    is raised if a value is missing, is no label or is not declared, or there are too many categories."""
    own = getattr(getattr(column, "dtype", None), "categories", None)
    if own is not None:
        codes = np.asarray(column.cat.codes)
        _refuse_missing(name, codes < 0)
        if categories is None:
            return codes, _as_text(name, own), True
        values = np.asarray(own)[codes]
    else:
        values = _values(name, column)
    values = _whole(name, values)
    if categories is None:
        return *_encode_observed(name, values), False
    return *_encode_declared(name, values, categories), True


def _values(name: str, column: Any) -> np.ndarray:
    """Return a column as a one-dimensional array without missing values."""
    if type(column) is np.ndarray and column.dtype.kind in "iu":
        return column
    import pandas as pd  # imported where it is needed, since it takes far longer than most searches

    missing = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else np.asarray(pd.isna(column))
    _refuse_missing(name, missing)
    if isinstance(column, np.ma.MaskedArray):
        column = column.data
        _refuse_missing(name, np.asarray(pd.isna(column)))
    values = np.asarray(column)
    if values.ndim != 1:
        raise InvalidProblem(f"column {name!r} has values of shape {values.shape[1:]}; a label is a single value")
    if values.dtype == object:
        kinds = {type(value) for value in values.tolist()}
        if kinds and all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
            return values.astype(bool)
        if kinds and all(issubclass(kind, (int, np.integer, float, np.floating)) for kind in kinds):
            if all(issubclass(kind, (int, np.integer)) for kind in kinds):
                try:
                    return values.astype(np.int64)
                except OverflowError:
                    return values
            return values.astype(np.float64)
    return values


def _whole(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "c":
        raise InvalidProblem(f"column {name!r} holds complex numbers; a label is a string, a bool or a whole number")
    if values.dtype.kind != "f":
        return values
    bad = np.flatnonzero(~np.isfinite(values) | (values != np.rint(values)) | (np.abs(values) > 2.0**53))
    if len(bad):
        raise InvalidProblem(
            f"column {name!r} holds {float(values[bad[0]])!r} in row {bad[0]}, which is no label; make categories of "
            f"it first, for instance with pandas.qcut(data[{name!r}], 4, labels=False), or take a test of "
            "numbers, or family='mixed' (--family mixed), which takes numbers beside categories"
        )
    return values.astype(np.int64)


def _encode_observed(name: str, values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return codes and sorted labels of the values that occur."""
    if values.dtype.kind in "iu" and int(values.max()) - int(lowest := values.min()) < MAX_CATEGORIES:
        steps = ((values if values.dtype.kind == "u" else values.astype(np.int64)) - lowest).astype(np.int64)
        occurring = np.flatnonzero(np.bincount(steps))
        return np.searchsorted(occurring, steps), _as_text(name, [int(lowest) + step for step in occurring.tolist()])
    import pandas as pd

    codes, uniques = pd.factorize(values)
    labels = list(uniques)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:  # labels of several types are ordered by their text
        order = sorted(range(len(labels)), key=lambda k: str(labels[k]))
    position = np.empty(len(labels), np.int64)
    position[order] = np.arange(len(labels))
    return position[codes], _as_text(name, [labels[k] for k in order])


def _encode_declared(
    name: str, values: np.ndarray, categories: Sequence[Any] | int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return codes and labels of values among declared categories."""
    counted = isinstance(categories, (int, np.integer)) and not isinstance(categories, bool)
    if not counted and (isinstance(categories, str) or not hasattr(categories, "__iter__")):
        raise InvalidProblem(f"categories of {name!r} are {categories!r}; give a list of labels, or how many there are")
    listed = range(int(categories)) if counted else list(categories)
    labels = _as_text(name, listed)
    if values.dtype.kind in "biu" and (counted or all(isinstance(label, str) for label in listed)):
        codes = values.astype(np.int64)
        bad = np.flatnonzero((codes < 0) | (codes >= len(labels)))
        if len(bad):
            raise InvalidProblem(
                f"column {name!r} holds the code {values[bad[0]]} in row {bad[0]}; its {len(labels)} declared "
                f"categories have the codes 0 to {len(labels) - 1}"
            )
        return codes, labels
    if counted:
        raise InvalidProblem(
            f"column {name!r} holds {values[0]!r}; with a number of categories it must hold codes from 0 on, "
            "with text in it the categories must be listed"
        )
    import pandas as pd

    position = {value: k for k, value in enumerate(listed)}
    numbers, uniques = pd.factorize(values)
    codes = np.array([position.get(value, -1) for value in list(uniques)], np.int64)[numbers]
    bad = np.flatnonzero(codes < 0)
    if len(bad):
        shown = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
        raise InvalidProblem(
            f"column {name!r} holds {_plain(values[bad[0]])!r} in row {bad[0]}, which is not among its declared "
            f"categories: {shown}"
        )
    return codes, labels


def _as_text(name: str, values: Any) -> tuple[str, ...]:
    """Return the labels as text; raises InvalidProblem if there are too many, or if two of them are the same."""
    if not 1 <= len(values) <= MAX_CATEGORIES:
        raise InvalidProblem(
            f"column {name!r} has {len(values)} categories; a variable may have 1 to {MAX_CATEGORIES:,}; merge some, "
            "or leave out a column that numbers the samples"
        )
    labels = tuple(str(_plain(value)) for value in values)
    if len(set(labels)) != len(labels):
        repeated = next(label for label, count in collections.Counter(labels).items() if count > 1)
        raise InvalidProblem(f"column {name!r} has two categories that read {repeated!r}; labels must differ as text")
    return labels


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _refuse_missing(name: str, missing: np.ndarray) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InvalidProblem(
            f"column {name!r} has {len(rows)} missing value(s), the first in row {rows[0]}; drop those rows, impute "
            "them, or make 'missing' a category of its own"
        )
