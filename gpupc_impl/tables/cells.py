"""The cells of a text table, which are numbers, labels of categories or missing values."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence

import numpy as np

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "?", ".", "-nan", "<na>", "#n/a", "#na", "#n/a n/a"}
    | {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}
)
"""The cells, in lower case, that stand for a missing value: those of `pandas.read_csv`, a point and a question mark."""

MISSING_AS_WRITTEN = sorted(
    {form for word in MISSING for form in (word, word.upper(), word.capitalize())} | {"NaN", "-NaN"}
)
"""The spellings of `MISSING` that pandas is to recognise; the line-by-line reader recognises any case of letters."""

NOT_A_NUMBER = "is not a number"


def fault(cell: str, label: bool = False, marks: Collection[str] | None = None) -> str | None:
    """Return what is wrong with a cell, as a predicate; None for a finite number or, if `label` is true, for any
    label."""
    if is_missing(cell.strip(), marks):
        other = ", or give the missing ones a category of their own" if label else " or impute them"
        return f"is a missing value; drop such rows{other} (--missing drop-rows, missing='drop-rows')"
    if label:
        return None
    try:
        number = float(cell)
    except ValueError:
        return NOT_A_NUMBER
    if "_" in cell:  # Python parses 1_0 as 10.
        return NOT_A_NUMBER
    return None if np.isfinite(number) else "is infinite; drop such rows or impute them"


def is_missing(cell: str, marks: Collection[str] | None = None) -> bool:
    """Return whether a cell is empty or one of the marks for missing values; None means the usual marks, `MISSING`."""
    return cell.lower() in MISSING if marks is None else not cell or cell in marks


def whole_numbers(labels: Sequence[str]) -> np.ndarray:
    """Return the labels as integers if all labels write one and no two become equal; otherwise return them as text.

    For example, 01 and 1 remain two labels.
    """
    if not all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array(labels, object)
    try:
        return np.array([*map(int, labels)], np.int64)
    except OverflowError:
        numbers = [*map(int, labels)]
        if max(map(abs, numbers)) <= sys.float_info.max:
            return np.array(numbers, object)
        return np.array(labels, object)  # pandas 3.0 would try to convert integers beyond the range of floats.
    except ValueError:  # A label has more digits than Python converts.
        return np.array(labels, object)
