"""Users' tables: text and NumPy files to matrices. Nothing is guessed or filled in: what is unclear is an error.

A text table is UTF-8, with tabs, semicolons, commas or spaces between cells, perhaps compressed (``.gz``, ``.bz2``,
``.xz``). pandas reads it; where pandas does not find numbers only, it is read again line by line, by Python's rules for
numbers, to name the first cell that is wrong.
"""

from __future__ import annotations

import bz2
import collections
import contextlib
import csv
import dataclasses
import gzip
import io
import lzma
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import check_array, open_arrays

if TYPE_CHECKING:
    import pandas

DELIMITERS = "\t;, "
"""In order of preference: a cell may well hold a comma when a semicolon is there, too."""

OPENERS: Mapping[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "."})
CELLS_AT_ONCE = 1 << 20
"""Cells that pandas reads at a time."""

NOT_A_NUMBER = "is not a number"


def _plain(file: Path | IO[bytes]) -> IO[bytes]:
    return file.open("rb") if isinstance(file, Path) else file


class DataError(ValueError):
    """A file's content cannot be used; the message names the file and, where it can, the line and the column."""


def read_table(
    path: Path, header: bool | None = None, row_names: bool = False, labels: bool = False
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """A file of numbers, or of labels.

    Args:
        path: ``.npy``, ``.npz`` (see `read_numpy`), or else a text table.
        header, row_names, labels: see `read_text`.

    Returns:
        What `read_text` returns.

    Raises:
        DataError, OSError: see `read_text`.
    """
    if path.suffix in (".npy", ".npz"):
        return read_numpy(path)
    return read_text(path, header, row_names, labels)


# --- text ------------------------------------------------------------------------------------------------------------


def read_text(
    path: Path,
    header: bool | None = None,
    row_names: bool = False,
    labels: bool = False,
    delimiter: str | None = None,
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """A text table, samples in rows.

    Args:
        header: whether the first line holds names; None finds out: it does when it holds text and no number.
        row_names: whether the first column names the rows; it is left out.
        labels: whether the cells are categories, text or whole numbers, and not numbers.
        delimiter: the character between cells; None takes the first of `DELIMITERS` that the first line holds.

    Returns:
        (samples, variables) C-contiguous float64, all finite, or, of labels, a DataFrame with a str or an int in each
        cell; and the variables' names, None where the file has none.

    Raises:
        DataError: the content cannot be used; the message names the line and the column (both counted from 1) of a bad
            cell.
        OSError: the file cannot be opened.
    """
    # What is no regular file, such as a pipe, can be read once only.
    stored = None if path.is_file() else path.read_bytes()
    try:
        table = _Text(path, stored, delimiter, row_names, labels)
        table.read_head(header)
        frame = table.read_at_once()
        values = table.read_by_line() if frame is None else frame
    except (UnicodeDecodeError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is not a readable text table: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"{path} is not a readable text table: {error}") from error  # it comes from a decompressor
    if not labels:
        return values, table.names
    if header is None and table.names and all(table.names[k] in set(values[k]) for k in values):
        raise DataError(f"{path}: the first line may hold names or labels; say --header or --no-header (header=...)")
    return _by_column(values, _whole_numbers), table.names


@dataclasses.dataclass
class _Text:
    """A text table that is being read: `read_head` first.

    Attributes:
        stored: the file's bytes, where it can be read only once.
        names: the variables' names, None where there are none.
        width: number of cells in a line, the row's name included.
        start: number of lines before the first that holds data.
    """

    path: Path
    stored: bytes | None
    delimiter: str | None
    row_names: bool
    labels: bool
    names: list[str] | None = None
    width: int = 0
    start: int = 0

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[str]]:
        with contextlib.ExitStack() as stack:
            file: Any = self.path if self.stored is None else io.BytesIO(self.stored)
            file = stack.enter_context(OPENERS.get(self.path.suffix.lower(), _plain)(file))
            yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8-sig"))

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of every line; blank ones are allowed at the end only."""
        blank = None
        with self.open() as file:
            for number, line in enumerate(file, start=1):
                line = line.strip(" \n")
                if not line:
                    blank = blank or number
                    continue
                if blank is not None:
                    raise DataError(f"{self.path}, line {blank}: a blank line before the end")
                if self.delimiter is None:
                    self.delimiter = next((found for found in DELIMITERS if found in line), ",")
                try:
                    cells = next(csv.reader([line], delimiter=self.delimiter, skipinitialspace=True, strict=True))
                except (csv.Error, StopIteration) as error:
                    raise DataError(f"{self.path} is not a readable text table: line {number}: {error}") from error
                yield number, cells

    def read_head(self, header: bool | None) -> None:
        """Find out about names and width."""
        lines = self.lines()
        number, cells = next(lines, (0, None))
        if cells is None:
            raise DataError(f"{self.path} is empty")
        if _is_header(cells[self.row_names :], self.path) if header is None else header:
            self.start, first = next(lines, (0, None))
            if first is None:
                raise DataError(f"{self.path} has a header and no data")
            names = [""] * (len(first) - 1 == len(cells)) + cells  # R's write.table names no column of row names
            if len(names) != len(first):
                raise DataError(f"{self.path}: the header has {len(cells)} cells, the first row has {len(first)}")
            self.names = checked_names(names, self.path, int(self.row_names))
            number, cells = self.start, first
        self.start, self.width = number - 1, len(cells)
        if self.width == self.row_names:
            raise DataError(f"{self.path} has no column but the rows' names")
        lines.close()

    def read_at_once(self) -> np.ndarray | pandas.DataFrame | None:
        """The table as pandas reads it; None where that is not all numbers, or not all labels."""
        import pandas

        old = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        exact = {"float_precision": "round_trip"} if old else {}  # as later versions do unasked
        parts = []
        with self.open() as file, warnings.catch_warnings(action="ignore"):
            try:
                for chunk in pandas.read_csv(
                    file,
                    sep=r"\s+" if self.delimiter == " " else self.delimiter,
                    header=None,
                    skiprows=self.start,
                    skip_blank_lines=False,
                    skipinitialspace=True,
                    na_filter=False,
                    dtype=object if self.labels else None,
                    chunksize=max(1, CELLS_AT_ONCE // self.width),
                    **exact,
                ):
                    parts.append(self._converted(chunk.iloc[:, int(self.row_names) :]))
                    if parts[-1] is None:
                        return None
            except pandas.errors.ParserError:
                return None
        return pandas.concat(parts, ignore_index=True) if self.labels else np.concatenate(parts)

    def _converted(self, chunk: pandas.DataFrame) -> np.ndarray | pandas.DataFrame | None:
        """Some rows; None where a cell is wrong."""
        if self.labels:
            chunk.columns = range(chunk.shape[1])
            chunk = _by_column(chunk, _stripped)
            return None if any(_missing(set(chunk[k])) for k in chunk) else chunk
        if not all(dtype.kind in "iuf" for dtype in chunk.dtypes):
            return None
        values = np.ascontiguousarray(chunk.to_numpy(np.float64))
        return values if np.isfinite(values).all() else None

    def read_by_line(self) -> np.ndarray | pandas.DataFrame:
        """The table, read slowly; the first cell that is wrong is an error."""
        import pandas

        rows = [self._row(number, cells) for number, cells in self.lines() if number > self.start]
        return pandas.DataFrame(rows, dtype=object) if self.labels else np.array(rows)

    def _row(self, number: int, cells: list[str]) -> list[str] | list[float]:
        where = f"{self.path}, line {number}"
        if len(cells) != self.width:
            raise DataError(f"{where}: {len(cells)} cells where the lines before have {self.width}")
        for k, cell in enumerate(cells[self.row_names :], start=int(self.row_names)):
            if fault := _fault(cell, self.labels):
                name = "" if self.names is None else f" ({self.names[k - self.row_names]!r})"
                names_rows = k == 0 and fault == NOT_A_NUMBER
                way_out = "; say --row-names if that column names the rows" if names_rows else ""
                raise DataError(f"{where}, column {k + 1}{name}: {cell!r} {fault}{way_out}")
        return [cell.strip() if self.labels else float(cell) for cell in cells[self.row_names :]]


def _is_header(cells: Sequence[str], path: Path) -> bool:
    cells = [cell.strip() for cell in cells]
    kinds = {_fault(cell): cell for cell in cells}
    if NOT_A_NUMBER in kinds and None in kinds:
        why = f"both text ({kinds[NOT_A_NUMBER]!r}) and a number ({kinds[None]!r})"
    elif len(cells) > 1 and cells in ([str(k + start) for k in range(len(cells))] for start in (0, 1)):
        why = f"the numbers {cells[0]} to {cells[-1]}"
    else:
        return NOT_A_NUMBER in kinds
    raise DataError(f"{path}: the first line holds {why}; say --header or --no-header (header=...)")


def _fault(cell: str, label: bool = False) -> str | None:
    """What is wrong with a cell; None when it is a finite number, or any label."""
    if _missing([cell.strip()]):
        other = ", or give the missing ones a category of their own" if label else " or impute them"
        return f"is a missing value; drop such rows{other}"
    if label:
        return None
    try:
        number = float(cell)
    except ValueError:
        return NOT_A_NUMBER
    if "_" in cell:  # Python reads 1_0 as 10
        return NOT_A_NUMBER
    return None if np.isfinite(number) else "is infinite; drop such rows or impute them"


def _missing(cells: Iterable[str]) -> bool:
    return not MISSING.isdisjoint(cell.lower() for cell in cells)


def _by_column(frame: pandas.DataFrame, convert: Callable[[Sequence[str]], np.ndarray]) -> pandas.DataFrame:
    """Convert the labels that occur in each column."""
    import pandas

    factors = {k: pandas.factorize(frame[k]) for k in frame}
    return pandas.DataFrame({k: convert(labels)[codes] for k, (codes, labels) in factors.items()})


def numbers_by_column(table: np.ndarray | pandas.DataFrame) -> np.ndarray | pandas.DataFrame:
    """A table of labels with float64 in the columns of which each cell is a finite number; others are left alone."""
    if isinstance(table, np.ndarray):
        return table
    return table.apply(lambda column: column if any(map(_fault, map(str, column))) else column.astype(np.float64))


def _stripped(labels: Sequence[str]) -> np.ndarray:
    return np.array([label.strip() for label in labels], object)


def _whole_numbers(labels: Sequence[str]) -> np.ndarray:
    """Whole numbers where nothing is lost: 01 and 1 are two labels."""
    if not all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array(labels, object)
    try:
        return np.array([*map(int, labels)], np.int64)
    except OverflowError:
        return np.array([*map(int, labels)], object)
    except ValueError:  # more digits than Python reads
        return np.array(labels, object)


# --- NumPy files -----------------------------------------------------------------------------------------------------


def read_numpy(path: Path, array: str | None = None) -> tuple[np.ndarray, list[str] | None]:
    """A ``.npy`` file, or the matrix of a ``.npz`` archive, which may hold the variables' names as ``names``.

    Args:
        array: the matrix's key in an archive; None takes the only two-dimensional array.

    Returns:
        (samples, variables) C-contiguous float64, all finite; and the names, None where the file has none.

    Raises:
        DataError: the content cannot be used; the message names the row and the column (both counted from 1) of a bad
            value.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        try:
            if path.suffix.lower() == ".npz":
                with open_arrays(file) as stored:
                    arrays = {name: array for name, array in stored.items() if isinstance(array, np.ndarray)}
            else:
                check_array(file, path.stat().st_size, path.name)
                file.seek(0)
                arrays = {path.stem: np.load(file, allow_pickle=False)}
            given = arrays.pop("names").ravel().tolist() if "names" in arrays else None
        except Exception as error:  # a damaged, an encrypted or a strangely compressed file raises nearly anything
            raise DataError(f"{path} is not a readable {path.suffix} file: {error}") from error
    values = only_table(arrays, array, path)
    names = None if given is None else checked_names(given, path)
    return finite(values, names, path), names


# --- what all files have in common ------------------------------------------------------------------------------------


def only_table(tables: Mapping[str, Any], wanted: str | None, path: Path) -> Any:
    """The two-dimensional table of that name, or the only one.

    Raises:
        DataError: there is none, or more than one.
    """
    found = {name: table for name, table in tables.items() if np.ndim(table) == 2}
    held = ", ".join(f"{name} {np.shape(table)}" for name, table in tables.items()) or "nothing"
    if wanted is not None and wanted not in found:
        raise DataError(f"{path} has no two-dimensional array {wanted!r}; it holds {held}")
    if wanted is None and len(found) != 1:
        raise DataError(f"{path} must hold exactly one two-dimensional array; it holds {held}")
    return found[wanted] if wanted is not None else next(iter(found.values()))


def checked_names(names: Sequence[Any], path: Path, first: int = 0) -> list[str]:
    """The names from `first` on as text; they must differ.

    Raises:
        DataError: they do not, or one is empty.
    """
    names = [str(name).strip() for name in names]
    if "" in names[first:]:
        column = names.index("", first)
        way_out = "say --row-names if it names the rows" if column == 0 else "name it"
        raise DataError(f"{path}: column {column + 1} has no name; {way_out}")
    repeated = [name for name, count in collections.Counter(names[first:]).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(f"{path}: variable names must differ; repeated: {', '.join(repeated[:5])}{more}")
    return names[first:]


def finite(values: np.ndarray, names: Sequence[str] | None, path: Path) -> np.ndarray:
    """The matrix as C-contiguous float64.

    Raises:
        DataError: it does not hold numbers, one is missing or infinite, or the names are not one a column.
    """
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {values.dtype}, not numbers")
    if names is not None and values.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names for {values.shape[1]} variables")
    values = np.ascontiguousarray(values, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        name = "" if names is None else f" ({names[column]!r})"
        what = "missing" if np.isnan(values[row, column]) else "infinite"
        raise DataError(f"{path}, row {row + 1}, column {column + 1}{name}: a value is {what} ({len(bad)} such in all)")
    return values
