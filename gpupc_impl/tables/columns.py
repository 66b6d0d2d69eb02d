"""The cells of a table: names, missing values, and the type of each column. A column of text whose cells all write
numbers holds numbers. The decimal mark, a point or a comma, is the same for the whole table; the other character then
separates thousands. A column of which most cells are numbers only counts as labels if the user requests it; otherwise a
cell that is not a number is an error in such a column."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import numbers
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem

if TYPE_CHECKING:
    import pandas

# Cells, in lower case, that stand for a missing value: those of `pandas.read_csv`, a point and a question mark.
MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "?", ".", "-nan", "<na>", "#n/a", "#na", "#n/a n/a"}
    | {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}
)
# Their spellings that pandas is to recognise.
MISSING_AS_WRITTEN = sorted(
    {form for word in MISSING for form in (word, word.upper(), word.capitalize())} | {"NaN", "-NaN"}
)
FEW_VALUES = 10  # distinct values in a column of integers that may hold categories
REPEATS = 3  # mean number of rows for each distinct value in such a column

# Numbers in lower case, by decimal mark; the other mark, a space or an apostrophe may separate thousands.
NUMBERS: Mapping[str, re.Pattern[str]] = {
    decimal: re.compile(
        r"(?P<sign>[+-]?)(?P<before>[$€£¥]?) ?"
        rf"(?P<digits>(?:\d+|[1-9]\d{{0,2}}(?:[{group} '\u00a0\u202f]\d{{3}})+)(?:{mark}\d*)?|{mark}\d+)"
        r"(?P<exponent>(?:[ed][+-]?\d+)?)\s*(?P<after>[%$€£¥]?)|(?P<infinite>[+-]?inf(?:inity)?)"
    )
    for decimal, mark, group in ((".", r"\.", ","), (",", ",", r"\."))
}
# How accountants, Excel and SAP write a number: (1.5) and 1.5- for -1.5, and ="1.5".
WRAPPED = re.compile(r"(?P<negative>\()(?P<inside>[^-()]+)\)|=\"(?P<quoted>[^\"]*)\"|(?P<minuend>[^-]*\d\s*)-")
# Dashes, and characters without a width, which pages and programs write beside numbers.
DASHES = str.maketrans(
    dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d", "-") | dict.fromkeys("\u200b\u2060\ufeff", "")
)
# A number with a unit or a mark, which is neither a number nor a usual label; more may follow a fraction.
DECORATED = re.compile(
    r"(?P<before>(?:[^\W\d_]{1,4}\s)?[^\w.,[\]]*)(?:0x[0-9a-f]+|(?:\d[\d., '_]*)?[.,]\d+(?:e[+-]?\d+)?"
    r"(?P<mark>(?:[^\w.,[\]]|[^\W\d])[^.,[\]]{0,9})?|\d[\d., '_]*"
    r"(?P<unit>\s?[^\w\s+,:;[\]-]{0,2}[^\W\d_]{0,6}[²³]?(?:/[^\W\d_]{1,6})?))|.*\d.*(?P<error>±).*\d.*",
    re.IGNORECASE,
)
MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
# Text that `_no_number` names by NumPy's kinds: dates in digits, perhaps with a time, or with the name of the month;
# times and durations; complex numbers.
NO_NUMBERS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(pattern, re.ASCII | re.IGNORECASE)
    for kind, pattern in {
        "M": r"\d{4}([-/])\d{1,2}\1\d{1,2}(?:[ T]\d{1,2}:\d{2}\S*)?|\d{1,2}([./-])\d{1,2}\2(?:\d{4}|\d{2})"
        rf"|\d{{1,2}}[ -]{MONTH}[ -]\d{{2,4}}|{MONTH} \d{{1,2}},? \d{{4}}",
        "m": r"-?\d+ days?(?:,? [+-]?\d+:\d{2}:\d{2}\S*)?|\d{1,3}:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?",
        "c": r"\(?(?:[-+]?[\d.]+(?:e[-+]?\d+)?(?=[-+]))?[-+]?[\d.]+(?:e[-+]?\d+)?(?-i:[ij])\)?",
    }.items()
}
LEADING_ZERO = re.compile(r"[+-]?0\d")
Place = Callable[[int, int], str]  # (row, column), from 0, to words that name the cell


class DataError(InvalidProblem):
    """The content of a file cannot be used; the message names the file and, if possible, the line and the column."""


def checked_names(names: Sequence[Any], path: Path, first: int = 0) -> list[str]:
    """Return the names from index `first` on as text; raises DataError if two are equal, or one is empty."""
    names = [str(name).strip() for name in names]
    if "" in names[first:]:
        column = names.index("", first)
        way_out = "say --row-names if it names the rows" if column == 0 else "name it, or delete it if it is empty"
        raise DataError(f"{path}: column {column + 1} has no name; {way_out}")
    repeated = [name for name, count in collections.Counter(names[first:]).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(f"{path}: variable names must differ; repeated: {', '.join(repeated[:5])}{more}")
    return names[first:]


def is_missing(cell: str, marks: Collection[str] | None = None) -> bool:
    """Return whether a cell is empty or one of the marks for missing values (None: `MISSING`)."""
    return cell.lower() in MISSING if marks is None else not cell or cell in marks


def number(cell: str, decimal: str) -> float | None:
    return written(cell, decimal)[0]


def written(cell: str, decimal: str) -> tuple[float | None, str]:
    """Return the number that a cell writes (None if it is none), percents divided by 100, and its unit or currency."""
    cell = cell.translate(DASHES).removeprefix("'").lower()
    sign = 1.0
    if wrapped := WRAPPED.fullmatch(cell):
        cell = (wrapped["inside"] or wrapped["quoted"] or wrapped["minuend"] or "").strip()
        sign = 1.0 if wrapped["quoted"] is not None else -1.0
    found = NUMBERS[decimal].fullmatch(cell)
    if found is None or (sign < 0 and found["sign"]) or (found["before"] and found["after"]):
        return None, ""
    if found["infinite"]:
        return sign * float(cell), ""
    digits = re.sub(rf"[{',' if decimal == '.' else '.'} '\u00a0\u202f]", "", found["digits"]).replace(",", ".")
    value = float(found["sign"] + digits + found["exponent"].replace("d", "e"))
    unit = found["before"] or found["after"]
    return sign * value / (100 if unit == "%" else 1), unit


@dataclasses.dataclass(frozen=True, eq=False)
class _Text:
    """A column of text: its distinct `cells` without blanks around them, and (n,) `codes` into them, -1 for missing.
    `place` names the cell of a row in an error."""

    codes: np.ndarray
    cells: list[str]
    place: Callable[[int], str]

    def spread(self, values: Sequence[Any], dtype: Any) -> np.ndarray:
        """Return a column with the value of each row's cell; a missing one is NaN in floats, else None."""
        column = np.full(len(self.codes), np.nan if dtype is np.float64 else None, dtype)
        present = self.codes >= 0
        column[present] = np.array([*values, None], object)[:-1][self.codes[present]]
        return column

    def first(self, marks: Sequence[bool] | np.ndarray) -> tuple[str, str]:
        row = int(np.argmax(np.append(marks, False)[self.codes]))
        return self.place(row), self.cells[self.codes[row]]


def typed(
    frame: pandas.DataFrame, kind: str | None, place: Place, decimal: str | None, missing_values: Sequence[str] | None
) -> tuple[pandas.DataFrame, str]:
    """Convert each column of text or of objects to the type of its cells; columns of numbers remain unchanged.
    Arguments are as of `read_table`. The second result names unusual ways in which numbers are written; "" for none."""
    texts, columns = {}, {}
    for k, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, k]
        kept = column.cat.categories.dtype if str(dtype) == "category" else dtype
        if kept.kind in "Mmc":
            raise _no_number(place(0, k), kept.kind)
        if kept is not dtype:
            columns[k] = column.array.remove_unused_categories()
        elif dtype.kind == "O" and (text := _text(column, k, place, missing_values)) is not None:
            texts[k] = text
        elif dtype.kind in "iuf" and column.isin(codes := missing_numbers(missing_values)).any():
            columns[k] = column.mask(column.isin(codes)).array
    if not texts and not columns:
        return frame, ""
    import pandas

    mark = decimal or (_decimal_mark(texts.values()) if texts else ".")
    columns |= {k: _column(text, kind, mark) for k, text in texts.items()}
    result = pandas.DataFrame(
        {k: columns[k] if k in columns else frame.iloc[:, k].array for k in range(frame.shape[1])}, index=frame.index
    )
    result.columns = frame.columns
    cells = [cell for k, text in texts.items() if result.iloc[:, k].dtype.kind in "iuf" for cell in text.cells]
    writings = {
        "decimal commas": "," if mark == "," else "(?!)",
        "separated thousands": rf"[{',' if mark == '.' else '.'} '\u00a0\u202f]\d",
        "percent signs": "%",
        "currencies": "[$€£¥]",
        "parentheses for minus signs": r"\(",
    }
    return result, " and ".join(
        writing for writing, pattern in writings.items() if any(re.search(pattern, cell) for cell in cells)
    )


def missing_numbers(marks: Sequence[str] | None) -> list[float]:
    """Return the numbers among the marks for missing values."""
    return [value for mark in marks or () if (value := number(mark, ".")) is not None]


def _no_number(place: str, kind: str) -> DataError:
    what, way_out = {
        "M": ("dates", "such as days since the first ((dates - dates.min()).dt.days)"),
        "m": ("times or durations", "such as seconds (durations.dt.total_seconds())"),
        "c": ("complex numbers", "such as their magnitudes, or their real and imaginary parts"),
    }[kind]
    return DataError(f"{place}: the column holds {what}; leave it out, or make numbers of it, {way_out}")


def _text(column: Any, k: int, place: Place, missing_values: Sequence[str] | None) -> _Text | None:
    """Return the cells of a column of text or of objects that are numbers; None for a column of other objects."""
    import pandas

    marks = None if missing_values is None else frozenset(missing_values)
    try:
        values = column.to_numpy(object)
    except Exception as error:  # pyarrow decodes the text of a Parquet file only here.
        raise DataError(f"{place(0, k)}: the column's text cannot be decoded: {error}") from error
    for row, value in enumerate(values):
        try:
            hash(value)
        except TypeError:  # A signaling NaN raises as well.
            what = f"a value of type {type(value).__name__}"
            what = f"Decimal({str(value)!r})" if isinstance(value, Decimal) else what
            raise DataError(
                f"{place(row, k)}: the cell holds {what}, which is neither a number nor a label; leave the column out, "
                "make columns of its parts, or write NaN if it is missing"
            ) from None
    present = ~pandas.isna(column).to_numpy()
    kinds = {type(value) for value in values[present]}
    for kind, classes in {
        "M": (datetime.date, np.datetime64, pandas.Period),
        "m": (datetime.timedelta, datetime.time, np.timedelta64),
        "c": (complex, np.complexfloating),
    }.items():
        if any(issubclass(each, classes) for each in kinds):
            raise _no_number(place(0, k), kind)
    if not all(issubclass(each, (str, numbers.Real, Decimal)) for each in kinds):
        return None
    cells = [str(value).strip() if is_present else "" for value, is_present in zip(values, present, strict=True)]
    codes, uniques = pandas.factorize(np.array(cells, object))
    absent = np.array([is_missing(cell, marks) for cell in uniques], bool)
    numbering = np.where(absent, -1, np.cumsum(~absent) - 1)
    return _Text(numbering[codes], list(uniques[~absent]), lambda row: place(row, k))


def _decimal_mark(texts: Collection[_Text]) -> str:
    """Return the decimal mark with which more cells are numbers; a point if both give the same number."""
    read = [(text, cell, number(cell, "."), number(cell, ",")) for text in texts for cell in text.cells]
    n_points, n_commas = (sum(each[column] is not None for each in read) for column in (2, 3))
    if n_points != n_commas:
        return "." if n_points > n_commas else ","
    for text, cell, point, comma in read:
        if "," in cell and point is not None and comma is not None and point != comma:
            where, _ = text.first([each == cell for each in text.cells])
            raise DataError(
                f"{where}: {cell!r} may be {point:g} or {comma:g}; say decimal='.' or decimal=',' (--decimal)"
            )
    return "."


def _column(text: _Text, kind: str | None, mark: str) -> np.ndarray:
    """Return float64 numbers, bools for true and false, or labels: integers if all are integral, or text."""
    values, units = zip(*(written(cell, mark) for cell in text.cells), strict=True) if text.cells else ((), ())
    floats = np.array([value for value in values if value is not None], np.float64)
    if text.cells and {cell.lower() for cell in text.cells} <= {"true", "false"}:
        truths = text.spread([cell.lower() == "true" for cell in text.cells], object)
        return truths if (text.codes < 0).any() else truths.astype(bool)
    if len(floats) < len(values):
        return text.spread(_labels(text, values, kind, mark), object)
    if kind == "labels" and (_is_whole(floats) or np.isinf(floats).any()):
        return _integers(text, floats)
    if kind != "labels" and np.isinf(floats).any():
        where, cell = text.first(np.isinf(floats))
        raise DataError(f"{where}: {cell!r} is infinite; drop such rows or impute them")
    of_numbers = [unit for unit, value in zip(units, values, strict=True) if value]  # A zero needs no unit.
    if len(set(of_numbers)) > 1:
        usual = max(set(of_numbers), key=of_numbers.count)
        where, cell = text.first([unit != usual and value != 0 for unit, value in zip(units, values, strict=True)])
        has = f"a {usual!r}" if usual else "no such mark"
        raise DataError(f"{where}: {cell!r} is a number, but most others of the column have {has}; write all alike")
    return text.spread(values, np.float64)


def _is_whole(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def _integers(text: _Text, floats: np.ndarray) -> np.ndarray:
    """Return labels that are numbers as exact integers, or as text if one begins with a zero (01 is not 1)."""
    values: Sequence[Any] = text.cells
    if _is_whole(floats) and not any(map(LEADING_ZERO.match, text.cells)):
        is_exact = all(re.fullmatch(r"0|-?[1-9][0-9]*", cell) for cell in text.cells)
        with contextlib.suppress(ValueError):  # A label has more digits than Python converts.
            values = [*map(int, text.cells if is_exact else floats)]
    column = text.spread(values, object)
    if values is not text.cells and (text.codes >= 0).all():
        with contextlib.suppress(OverflowError):
            return column.astype(np.int64)
    return column


def _labels(text: _Text, values: Sequence[float | None], kind: str | None, mark: str) -> list[str]:
    """Return the labels of a column that has cells other than numbers, with the same spelling for equal numbers."""
    cells, is_word = text.cells, np.array([value is None for value in values])
    for type_kind, pattern in NO_NUMBERS.items():
        may_be_labels = kind == "labels" or (type_kind == "m" and len(cells) <= FEW_VALUES)  # such as ratios, 1:10
        if not may_be_labels and all(map(pattern.fullmatch, cells)):
            raise _no_number(text.first(is_word)[0], type_kind)
    floats = np.array([value for value in values if value is not None], np.float64)
    decorated = map(DECORATED.fullmatch, cells)  # What a cell writes beside its number, without signs, is its mark.
    marks = [found and re.sub(r"[-+()\s\d]", "", "".join(found.groups(""))) for found in decorated]
    are_marked = np.array([mark is not None for mark in marks])
    alike = len(set(marks) - {"", None}) <= 2 and (are_marked & is_word).any()
    if kind != "labels" and len(cells) > FEW_VALUES and 2 * are_marked.sum() > len(cells) and alike:
        where, cell = text.first(are_marked & is_word)
        raise DataError(
            f"{where}: {cell!r} is a number with a unit or a mark; write numbers alone, or say family='discrete' "
            "(--family discrete) or make the column a pandas.Categorical if it is a label"
        )
    if not len(floats):
        return cells
    counts = np.bincount(text.codes[text.codes >= 0], minlength=len(values))
    rows = int(counts[~is_word].sum())
    only_marks = not any(map(str.isalnum, "".join(np.array(cells, object)[is_word])))
    few = _is_whole(floats) and len(floats) <= FEW_VALUES and rows >= REPEATS * len(floats)
    mostly_words = 2 * rows < counts.sum() and not only_marks
    if kind == "numbers" or not (mostly_words or (_is_whole(floats) if kind == "labels" else few and not only_marks)):
        where, cell = text.first(is_word)
        why = "" if number(cell, "," if mark == "." else ".") is None else f" with the decimal mark {mark!r}"
        raise DataError(
            f"{where}: {cell!r} is not a number{why}, but {rows:,} of the column's {counts.sum():,} cells are; "
            f"correct it, or say missing_values=[{cell!r}] (--missing-values {cell!r}) and missing='drop-rows' if it "
            "stands for a missing value; delete a second header line, such as one of units"
        )
    return [
        str(int(value)) if value is not None and value.is_integer() and not LEADING_ZERO.match(cell) else cell
        for cell, value in zip(cells, values, strict=True)
    ]
