"""Cells of a text table: numbers, labels of categories, and missing values."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "."})
"""Cells, in lower case, that stand for a missing value."""

MISSING_AS_WRITTEN = sorted({form for word in MISSING for form in (word, word.upper(), word.capitalize())} | {"NaN"})
"""The cells that pandas is to take for missing; the line-by-line reader recognises other forms of these words."""

NOT_A_NUMBER = "is not a number"


def fault(cell: str, label: bool = False) -> str | None:
    """What is wrong with a cell; None for a finite number or, if the cell is to be a label, for any label."""
    if is_missing(cell.strip()):
        other = ", or give the missing ones a category of their own" if label else " or impute them"
        return f"is a missing value; drop such rows{other} (--missing drop-rows, missing='drop-rows')"
    if label:
        return None
    try:
        number = float(cell)
    except ValueError:
        return NOT_A_NUMBER
    if "_" in cell:  # Python reads 1_0 as 10
        return NOT_A_NUMBER
    return None if np.isfinite(number) else "is infinite; drop such rows or impute them"


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def by_column(frame: pandas.DataFrame, convert: Callable[[Sequence[str]], np.ndarray]) -> pandas.DataFrame:
    """Convert the distinct labels of each column; None stays None."""
    import pandas

    columns = {}
    for k in frame:
        codes, labels = pandas.factorize(frame[k])
        column = convert(labels)[codes] if len(labels) else np.full(len(codes), None, object)
        if (codes < 0).any():
            column = column.astype(object)
            column[codes < 0] = None
        columns[k] = column
    return pandas.DataFrame(columns)


def stripped_labels(labels: Iterable[str], missing: bool) -> np.ndarray:
    """Labels without the white space around them; where values may be missing, None for those that are."""
    stripped = (label.strip() for label in labels)
    return np.array([None if missing and is_missing(label) else label for label in stripped], object)


def whole_numbers(labels: Sequence[str]) -> np.ndarray:
    """The labels as whole numbers where no label is lost: 01 and 1 remain two labels."""
    if not all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array(labels, object)
    try:
        return np.array([*map(int, labels)], np.int64)
    except OverflowError:
        numbers = [*map(int, labels)]
        if max(map(abs, numbers)) <= sys.float_info.max:
            return np.array(numbers, object)
        return np.array(labels, object)  # pandas 3.0 would try to convert them to floats
    except ValueError:  # the label has more digits than Python converts
        return np.array(labels, object)


def numbers_by_column(table: np.ndarray | pandas.DataFrame) -> np.ndarray | pandas.DataFrame:
    """A table of labels with those columns as float64 whose cells are all finite numbers."""
    if isinstance(table, np.ndarray):
        return table
    return table.apply(
        lambda column: column if any(map(fault, map(str, column.dropna()))) else column.astype(np.float64)
    )
