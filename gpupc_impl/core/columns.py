"""Columns of numbers and of categories in one table, for the families whose tests take both."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, as_matrix


def coded_columns(categories: Any) -> tuple[str, ...]:
    """Return the names of the columns of numbers that hold codes of categories: from a list, a text with commas, or
    labels by variable, as data sets have them (none for numbers)."""
    if isinstance(categories, (str, int)):  # The command line converts names to numbers.
        return tuple(filter(None, map(str.strip, str(categories).split(","))))
    if hasattr(categories, "items"):
        return tuple(str(name) for name, labels in categories.items() if labels)
    return tuple(map(str, categories))


def numbers_and_codes(
    data: Any, names: Sequence[str] | None, coded: Sequence[str], most: int
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """Return (n, p) float64 numbers and codes of categories, the names, and (p,) bool that marks columns of codes.

    Text, Boolean and categorical columns hold categories, at most `most`, and so do the columns named in `coded`.
    """
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        array = np.asarray(data)
        if array.ndim != 2:
            raise InvalidProblem(f"data has {array.ndim} dimension(s); it must have 2 (samples x variables)")
        data = pd.DataFrame(array).infer_objects()
    elif names is None:
        names = [str(name) for name in data.columns]
    kinds = pd.api.types
    categorical = np.array([not kinds.is_numeric_dtype(d) or kinds.is_bool_dtype(d) for d in data.dtypes], bool)
    matrix = np.zeros(data.shape)
    _, names = as_matrix(matrix, names)
    if unknown := sorted(set(coded) - set(names)):
        raise InvalidProblem(f"categories are named for {unknown[0]!r}, which is no variable of the data")
    for k in range(len(names)):
        column = data.iloc[:, k]
        if column.dtype.kind in "mMc":
            raise InvalidProblem(
                f"column {names[k]!r} holds {column.dtype}; make real numbers of it, or text for categories"
            )
        missing = np.flatnonzero(pd.isna(column))
        if len(missing):
            raise InvalidProblem(
                f"data has {len(missing)} missing value(s) in column {names[k]!r}, the first in row {missing[0]}; drop "
                "those rows or impute them first"
            )
        if categorical[k] or names[k] in coded:
            categorical[k] = True
            codes, labels = pd.factorize(column)
            if len(labels) > most:
                raise InvalidProblem(
                    f"column {names[k]!r} has {len(labels):,} categories; the most are {most:,}; merge some, "
                    "or give numbers"
                )
            matrix[:, k] = codes
    plain = np.flatnonzero(~categorical)
    if len(plain):
        matrix[:, plain], _ = as_matrix(data.iloc[:, plain], None)
    return matrix, names, categorical
