"""The type of each column of a table, which is determined by the cells and not by the container that holds them.

A column of text whose cells all parse as numbers holds numbers. The decimal mark, a point or a comma, is the same for
the whole table; the other character then separates thousands. A column of which most cells are numbers only counts as
labels if the user requests it; otherwise a cell that is not a number is an error in such a column.
"""

from __future__ import annotations

import dataclasses
import datetime
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.tables.cells import is_missing, whole_numbers
from gpupc_impl.tables.checks import DataError

if TYPE_CHECKING:
    import pandas

FEW_VALUES = 10
"""The upper bound on the distinct values in a column of integers that may hold categories."""

REPEATS = 3
"""The lower bound on the mean number of rows for each distinct value in a column that may hold categories."""

NUMBERS: Mapping[str, re.Pattern[str]] = {
    decimal: re.compile(
        rf"[+-]?(?:(?:\d+|[1-9]\d{{0,2}}(?:[{group} '\u00a0\u202f]\d{{3}})+)(?:{mark}\d*)?|{mark}\d+)"
        r"(?:[eE][+-]?\d+)?\s*%?|[+-]?inf(?:inity)?",
        re.ASCII | re.IGNORECASE,
    )
    for decimal, mark, group in ((".", r"\.", ","), (",", ",", r"\."))
}
"""The pattern of numbers, by decimal mark; the other mark, a space or an apostrophe may separate thousands."""

DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[ T]\d{1,2}:\d{2}\S*)?|\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d{2})", re.ASCII)
"""The pattern of dates in digits, such as 2020-12-31 with or without a time, 31.12.2020 and 12/31/20."""

LEADING_ZERO = re.compile(r"[+-]?0\d")

Place = Callable[[int, int], str]
"""A function from a row and a column, both counted from 0, to the words that name the cell in an error."""


def number(cell: str, decimal: str) -> float | None:
    """Return the number that a cell writes, with percents divided by 100; None for a cell that is not a number."""
    if NUMBERS[decimal].fullmatch(cell) is None:
        return None
    digits = re.sub(rf"[{',' if decimal == '.' else '.'} '\u00a0\u202f%]", "", cell).replace(",", ".")
    return float(digits) / (100 if cell.endswith("%") else 1)


@dataclasses.dataclass(frozen=True, eq=False)
class _Text:
    """A column of text, as the distinct cells and the cell of each row.

    Attributes:
        codes: (n,) index of each row's cell in `cells`; -1 for a missing value.
        cells: the distinct cells, without the white space around them.
    """

    codes: np.ndarray
    cells: list[str]

    def spread(self, values: Sequence[Any], dtype: Any) -> np.ndarray:
        """Return a column with the value of each row's cell; a missing value is NaN in a column of floats, and
        otherwise None."""
        column = np.full(len(self.codes), np.nan if dtype is np.float64 else None, dtype)
        present = self.codes >= 0
        column[present] = np.array([*values, None], object)[:-1][self.codes[present]]
        return column

    def first(self, cell: int) -> int:
        """Return the first row that has a cell, given by its index in `cells`."""
        return int(np.argmax(self.codes == cell))


def typed(
    frame: pandas.DataFrame,
    kind: str | None,
    place: Place,
    decimal: str | None = None,
    missing_values: Sequence[str] | None = None,
) -> tuple[pandas.DataFrame, str]:
    """Convert each column of text or of objects to the type of its cells; other columns remain unchanged.

    Args:
        kind: the kind of the columns, if it is known: ``"numbers"``, ``"labels"`` or ``"both"``.
        place: the function that names a cell in an error.
        decimal: the decimal mark, a point or a comma; None infers it.
        missing_values: the cells that stand for missing values; None means the usual ones.

    Returns:
        The frame, and a remark on unusual ways in which numbers are written; empty if there is none.

    Raises:
        DataError: a cell is not a number in a column of which most cells are numbers; the decimal mark is ambiguous; or
            a column holds dates.
    """
    texts = {}
    for k, dtype in enumerate(frame.dtypes):
        if dtype.kind in "Mm":
            raise _dates(place(0, k))
        if dtype.kind == "O" and str(dtype) != "category":
            text = _text(frame.iloc[:, k], k, place, missing_values)
            if text is not None:
                texts[k] = text
    if not texts:
        return frame, ""
    import pandas

    mark = decimal or _decimal_mark(texts, place)
    columns = {
        k: _column(texts[k], k, kind, mark, place) if k in texts else frame.iloc[:, k].array
        for k in range(frame.shape[1])
    }
    result = pandas.DataFrame(columns, index=frame.index)
    result.columns = frame.columns
    cells = [cell for k, text in texts.items() if result.iloc[:, k].dtype.kind in "iuf" for cell in text.cells]
    group = rf"[{',' if mark == '.' else '.'} '\u00a0\u202f]\d"
    writings = {"decimal commas": "," if mark == "," else "(?!)", "separated thousands": group, "percent signs": "%"}
    return result, " and ".join(
        writing for writing, pattern in writings.items() if any(re.search(pattern, cell) for cell in cells)
    )


def _dates(place: str) -> DataError:
    return DataError(
        f"{place}: the column holds dates; leave it out, or make numbers of it, such as days since the first "
        "((dates - dates.min()).dt.days)"
    )


def check_cells(values: np.ndarray, k: int, place: Place) -> None:
    """Refuse lists and other objects in (n,) cells of column `k` that cannot be compared with others, as labels are.

    Raises:
        DataError: the message names the first such cell.
    """
    for row, value in enumerate(values):
        try:
            hash(value)
        except TypeError:  # A signaling NaN raises as well.
            what = (
                f"Decimal({str(value)!r})" if isinstance(value, Decimal) else f"a value of type {type(value).__name__}"
            )
            raise DataError(
                f"{place(row, k)}: the cell holds {what}, which is neither a number nor a label; leave the column out, "
                "make columns of its parts, or write NaN if it is missing"
            ) from None


def _text(column: Any, k: int, place: Place, missing_values: Sequence[str] | None) -> _Text | None:
    """Return the cells of a column of text or of objects that are numbers; None for a column of other objects."""
    import pandas

    marks = None if missing_values is None else frozenset(missing_values)
    try:
        values = column.to_numpy(object)
    except Exception as error:  # pyarrow decodes the text of a Parquet file only here.
        raise DataError(f"{place(0, k)}: the column's text cannot be decoded: {error}") from error
    check_cells(values, k, place)
    present = ~pandas.isna(column).to_numpy()
    kinds = {type(value) for value in values[present]}
    if any(issubclass(kind, (datetime.date, np.datetime64)) for kind in kinds):
        raise _dates(place(0, k))
    if not all(issubclass(kind, (str, numbers.Real, Decimal)) for kind in kinds):
        return None
    if any(issubclass(kind, (bool, np.bool_)) for kind in kinds) and not any(issubclass(kind, str) for kind in kinds):
        return None
    cells = [str(value).strip() if is_present else "" for value, is_present in zip(values, present, strict=True)]
    codes, uniques = pandas.factorize(np.array(cells, object))
    absent = np.array([is_missing(cell, marks) for cell in uniques], bool)
    numbering = np.where(absent, -1, np.cumsum(~absent) - 1)
    codes = np.where(present, numbering[codes], -1)
    return _Text(codes, [cell for cell, is_absent in zip(uniques, absent, strict=True) if not is_absent])


def _decimal_mark(texts: Mapping[int, _Text], place: Place) -> str:
    """Return the decimal mark with which more cells are numbers; a point if both marks give the same number of such
    cells.

    Raises:
        DataError: both marks give the same number of such cells, and a cell is a different number with each mark.
    """
    cells = [(k, text, cell) for k, text in texts.items() for cell in text.cells]
    points = [number(cell, ".") for _, _, cell in cells]
    commas = [number(cell, ",") for _, _, cell in cells]
    n_points, n_commas = (sum(value is not None for value in values) for values in (points, commas))
    if n_points != n_commas:
        return "." if n_points > n_commas else ","
    for (k, text, cell), point, comma in zip(cells, points, commas, strict=True):
        if "," in cell and point is not None and comma is not None and point != comma:
            where = place(text.first(text.cells.index(cell)), k)
            raise DataError(
                f"{where}: {cell!r} may be {point:g} or {comma:g}; say decimal='.' or decimal=',' (--decimal)"
            )
    return "."


def _column(text: _Text, k: int, kind: str | None, mark: str, place: Place) -> np.ndarray:
    """Return the column as float64 if it holds numbers; labels as integers if all are integral, and otherwise as
    text."""
    values = [number(cell, mark) for cell in text.cells]
    floats = np.array([value for value in values if value is not None], np.float64)
    if len(floats) < len(values):
        return text.spread(_labels(text, values, k, kind, mark, place), object)
    if kind == "labels" and not (_is_whole(floats) or np.isinf(floats).any()):
        return text.spread(values, np.float64)
    if kind == "labels":
        return _integers(text, [*map(int, floats)] if _is_whole(floats) else text.cells)
    if np.isinf(floats).any():
        row = min(text.first(cell) for cell in np.flatnonzero(np.isinf(floats)))
        cell = text.cells[text.codes[row]]
        raise DataError(f"{place(row, k)}: {cell!r} is infinite; drop such rows or impute them")
    return text.spread(values, np.float64)


def _is_whole(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def _integers(text: _Text, values: Sequence[Any]) -> np.ndarray:
    """Return the labels as exact integers if all cells write an integer, and otherwise `values`.

    If a cell begins with a zero, the labels remain text, since 01 and 1 are two labels.
    """
    if any(map(LEADING_ZERO.match, text.cells)):
        values = text.cells
    else:
        exact = whole_numbers(text.cells)
        values = exact.tolist() if len(exact) and not isinstance(exact[0], str) else values
    column = text.spread(values, object)
    if (text.codes < 0).any() or isinstance(column[:1].tolist()[0], str):
        return column
    try:
        return column.astype(np.int64)
    except OverflowError:
        return column


def _labels(
    text: _Text, values: Sequence[float | None], k: int, kind: str | None, mark: str, place: Place
) -> list[str]:
    """Return the labels of a column that has cells other than numbers, with the same spelling for equal numbers.

    Raises:
        DataError: most cells of the column are numbers, or the column holds dates and `kind` is not ``"labels"``.
    """
    if kind != "labels" and all(map(DATE.fullmatch, text.cells)):
        raise _dates(place(text.first(0), k))
    floats = np.array([value for value in values if value is not None], np.float64)
    if not len(floats):
        return text.cells
    is_word = np.array([value is None for value in values])
    counts = np.bincount(text.codes[text.codes >= 0], minlength=len(values))
    rows = int(counts[~is_word].sum())
    only_marks = not any(map(str.isalnum, "".join(np.array(text.cells, object)[is_word])))
    few = _is_whole(floats) and len(floats) <= FEW_VALUES and rows >= REPEATS * len(floats)
    mostly_words = 2 * rows < counts.sum() and not only_marks
    if kind == "numbers" or not (mostly_words or (_is_whole(floats) if kind == "labels" else few and not only_marks)):
        row = min(map(text.first, np.flatnonzero(is_word)))
        cell = text.cells[text.codes[row]]
        why = "" if number(cell, "," if mark == "." else ".") is None else f" with the decimal mark {mark!r}"
        raise DataError(
            f"{place(row, k)}: {cell!r} is not a number{why}, but {rows:,} of the column's {counts.sum():,} cells are; "
            f"correct it, or say missing_values=[{cell!r}] (--missing-values {cell!r}) and missing='drop-rows' if it "
            "stands for a missing value"
        )
    return [
        str(int(value)) if value is not None and value.is_integer() and not LEADING_ZERO.match(cell) else cell
        for cell, value in zip(text.cells, values, strict=True)
    ]
