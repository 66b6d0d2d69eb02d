"""Users' tables: files to matrices. Nothing is guessed or filled in: what is unclear is an error.

Parquet, Excel and AnnData files are read by the packages that know them. A text table is UTF-8, with tabs, semicolons,
commas or spaces between cells, perhaps compressed (``.gz``, ``.bz2``, ``.xz``). pandas reads it; where pandas does not
find numbers only, it is read again line by line, by Python's rules for numbers, to name the first cell that is wrong.
"""

from __future__ import annotations

import bz2
import collections
import contextlib
import csv
import dataclasses
import gzip
import importlib
import io
import lzma
import re
import sys
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

MISSING_AS_WRITTEN = sorted({way for word in MISSING for way in (word, word.upper(), word.capitalize())} | {"NaN"})
"""What pandas is told to take for missing; other ways to write these words are found line by line."""

NOT_A_NUMBER = "is not a number"
NAMES_ROWS = "that column names the rows (in Python: pandas.read_csv(path, index_col=0))"

FRAMES: Mapping[str, tuple[str, str]] = {
    ".parquet": ("pyarrow", "parquet"),
    ".xlsx": ("openpyxl", "excel"),
    ".xlsm": ("openpyxl", "excel"),
    ".h5ad": ("anndata", "anndata"),
}
"""Files that other packages read: the module, and the extra of this project that installs it."""


def _plain(file: Path | IO[bytes]) -> IO[bytes]:
    return file.open("rb") if isinstance(file, Path) else file


class DataError(ValueError):
    """A file's content cannot be used; the message names the file and, where it can, the line and the column."""


def read_table(
    path: Path,
    header: bool | None = None,
    row_names: bool = False,
    labels: bool | None = False,
    missing: bool = False,
    transpose: bool = False,
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """A file of numbers, or of labels.

    Args:
        path: ``.npy``, ``.npz`` (see `read_numpy`), ``.parquet``, ``.xlsx``, ``.h5ad`` (see `read_frame`), or else a
            text table.
        header, row_names, missing, transpose: see `read_text`.
        labels: whether the cells are labels; None finds out, column by column: those without a number hold labels.

    Returns:
        What `read_text` returns; of labels that were found out, and of `FRAMES`, a DataFrame with its own column types.

    Raises:
        DataError, OSError: see `read_text`.
    """
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        values, names = read_numpy(path, missing=missing)
        return (np.ascontiguousarray(values.T), None) if transpose else (values, names)
    if suffix in FRAMES:
        frame = read_frame(path, header, row_names, transpose)
        return frame, list(frame.columns)
    if labels is not None:
        return read_text(path, header, row_names, labels, missing=missing, transpose=transpose)
    return _read_any_text(path, header, row_names, missing, transpose)


# --- other packages' files -------------------------------------------------------------------------------------------


def read_frame(
    path: Path, header: bool | None = None, row_names: bool = False, transpose: bool = False
) -> pandas.DataFrame:
    """A Parquet file, the first sheet of an Excel file, or an AnnData file (its ``X``: observations by variables).

    Args:
        header: whether the first line of a sheet holds names; None: it does.
        row_names: whether the first column of a sheet names the rows.
        transpose: whether variables are in rows; they then have the names of the rows.

    Returns:
        A DataFrame whose columns have text names that differ.

    Raises:
        DataError: the package that reads it is not installed, or it cannot read the file.
        OSError: the file cannot be opened.
    """
    import pandas

    module, extra = FRAMES[path.suffix.lower()]
    with path.open("rb"):  # an absent file is an OSError, not a parser's complaint
        pass
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{path}: reading it needs {module}, which is not installed; pip install 'gpupc[{extra}]'"
        ) from error
    try:
        if module == "pyarrow":
            frame = pandas.read_parquet(path, engine=module)
        elif module == "openpyxl":
            frame = pandas.read_excel(
                path, header=None if header is False else 0, index_col=0 if row_names else None, engine=module
            )
        else:
            frame = importlib.import_module(module).read_h5ad(path).to_df()
    except Exception as error:  # a damaged file raises nearly anything
        raise DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}") from error
    if transpose:
        frame = frame.T.infer_objects()
    if header is False or (transpose and isinstance(frame.columns, pandas.RangeIndex)):
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    frame.columns = checked_names(list(frame.columns), path)
    return frame


# --- text ------------------------------------------------------------------------------------------------------------


def read_text(
    path: Path,
    header: bool | None = None,
    row_names: bool = False,
    labels: bool = False,
    delimiter: str | None = None,
    missing: bool = False,
    transpose: bool = False,
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """A text table.

    Args:
        header: whether the first line holds names; None finds out: it does when it holds text and no number.
        row_names: whether the first column names the rows; it is left out, unless the rows are the variables.
        labels: whether the cells are categories, text or whole numbers, and not numbers.
        delimiter: the character between cells; None takes the first of `DELIMITERS` that the first line holds.
        missing: whether values may be missing; they are NaN, or None among labels.
        transpose: whether samples are in columns and variables in rows. Numbers then have names of rows unasked where
            the first cell of the second line is none.

    Returns:
        (samples, variables) C-contiguous float64, none infinite, or, of labels, a DataFrame with a str or an int in
        each cell; and the variables' names, None where the file has none.

    Raises:
        DataError: the content cannot be used; the message names the line and the column (both counted from 1) of a bad
            cell.
        OSError: the file cannot be opened.
    """
    # What is no regular file, such as a pipe, can be read once only.
    stored = None if path.is_file() else path.read_bytes()
    try:
        table = _Text(path, stored, delimiter, row_names, labels, missing, transpose)
        table.read_head(header)
        frame = table.read_at_once()
        values = table.read_by_line() if frame is None else frame
    except (UnicodeDecodeError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is not a readable text table: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"{path} is not a readable text table: {error}") from error  # it comes from a decompressor
    if labels and header is None and table.names and all(table.names[k] in set(values[k]) for k in values):
        raise DataError(f"{path}: the first line may hold names or labels; say --header or --no-header (header=...)")
    names = table.names
    if transpose:
        names = checked_names(table.of_rows, path) if table.row_names else None
        values = values.T if labels else np.ascontiguousarray(values.T)
    return (_by_column(values, _whole_numbers) if labels else values), names


def _read_any_text(
    path: Path, header: bool | None, row_names: bool, missing: bool, transpose: bool
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """A text table of numbers, of labels or of both; a column with a number and a cell that is none is an error."""
    try:
        return read_text(path, header, row_names, missing=missing, transpose=transpose)
    except DataError as error:
        refused = error
    try:
        words, names = read_text(path, header, row_names, True, missing=missing, transpose=transpose)
    except DataError:
        raise refused from None
    for k in words:
        faults = {_fault(str(cell)) for cell in words[k].dropna().unique()}
        if faults == {None}:
            words[k] = words[k].astype(np.float64)
        elif faults != {NOT_A_NUMBER}:
            raise refused
    labelled = [k for k in words if words[k].dtype != np.float64]
    if not labelled or (labelled == [0] and len(words) > 1 and words[0].is_unique and not row_names):
        raise refused  # which says what to do about names of rows
    words.columns = names if names is not None else [f"V{k}" for k in words]
    return words, names


@dataclasses.dataclass
class _Text:
    """A text table that is being read: `read_head` first.

    Attributes:
        stored: the file's bytes, where it can be read only once.
        names: the variables' names, None where there are none.
        width: number of cells in a line, the row's name included.
        start: number of lines before the first that holds data.
        of_rows: the names of the rows, where they are the variables'.
    """

    path: Path
    stored: bytes | None
    delimiter: str | None
    row_names: bool
    labels: bool
    missing: bool = False
    transpose: bool = False
    names: list[str] | None = None
    width: int = 0
    start: int = 0
    of_rows: list[str] = dataclasses.field(default_factory=list)

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
        if self.transpose and not self.labels and header is not False:
            second = next(lines, (0, cells))[1]
            self.row_names |= second[0].strip() != "" and _fault(second[0]) == NOT_A_NUMBER
            lines = self.lines()
            next(lines)
        if header is None and len(cells) > 1 and not cells[0].strip():  # as pandas writes names of rows
            if not self.row_names and not any(map(_fault, cells[1:])):
                raise DataError(
                    f"{self.path}: the first line begins with an empty cell; say --row-names if {NAMES_ROWS}"
                )
            header = self.row_names or None
        if _is_header(cells[self.row_names :], self.path) if header is None else header:
            self.start, first = next(lines, (0, None))
            if first is None:
                raise DataError(f"{self.path} has a header and no data")
            names = [""] * (len(first) - 1 == len(cells)) + cells  # R's write.table names no column of row names
            if len(names) != len(first):
                raise DataError(f"{self.path}: the header has {len(cells)} cells, the first row has {len(first)}")
            if not self.transpose:  # else they are the samples'
                self.names = checked_names(names, self.path, int(self.row_names))
            number, cells = self.start, first
        self.start, self.width = number - 1, len(cells)
        if self.width == self.row_names:
            raise DataError(f"{self.path} has no column but the rows' names")
        lines.close()

    def read_at_once(self) -> np.ndarray | pandas.DataFrame | None:
        """The table as pandas reads it; None where that is not all numbers, or not all labels."""
        import pandas

        exact = {}
        if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):
            exact = {"float_precision": "round_trip"}  # as later versions do unasked
            with self.open() as file:
                if any(not line.strip(" \n") for line in file):
                    return None  # among dozens of blank lines these versions may not come to an end
        parts = []
        kinds = object if self.labels else None
        if self.row_names and not self.labels:
            kinds = {0: object}  # a name such as 007 stays what it is
        with self.open() as file, warnings.catch_warnings(action="ignore"):
            try:
                for chunk in pandas.read_csv(
                    file,
                    sep=r"\s+" if self.delimiter == " " else self.delimiter,
                    header=None,
                    skiprows=self.start,
                    skip_blank_lines=False,
                    skipinitialspace=True,
                    na_filter=self.missing and not self.labels,
                    na_values=MISSING_AS_WRITTEN,
                    keep_default_na=False,
                    dtype=kinds,
                    chunksize=max(1, CELLS_AT_ONCE // self.width),
                    **exact,
                ):
                    if self.row_names:
                        self.of_rows += [str(name).strip() for name in chunk.iloc[:, 0]]
                    parts.append(self._converted(chunk.iloc[:, int(self.row_names) :]))
                    if parts[-1] is None:
                        return None
            except (pandas.errors.ParserError, OverflowError):  # also an integer that no float holds
                return None
        return pandas.concat(parts, ignore_index=True) if self.labels else np.concatenate(parts)

    def _converted(self, chunk: pandas.DataFrame) -> np.ndarray | pandas.DataFrame | None:
        """Some rows; None where a cell is wrong."""
        if self.labels:
            chunk.columns = range(chunk.shape[1])
            chunk = _by_column(chunk, self._stripped)
            return chunk if self.missing or not any(_missing(set(chunk[k])) for k in chunk) else None
        if not all(dtype.kind in "iuf" for dtype in chunk.dtypes):
            return None
        values = np.ascontiguousarray(chunk.to_numpy(np.float64))
        return values if (~np.isinf(values) if self.missing else np.isfinite(values)).all() else None

    def _stripped(self, labels: Sequence[str]) -> np.ndarray:
        stripped = (label.strip() for label in labels)
        return np.array([None if self.missing and _missing([label]) else label for label in stripped], object)

    def read_by_line(self) -> np.ndarray | pandas.DataFrame:
        """The table, read slowly; the first cell that is wrong is an error."""
        import pandas

        self.of_rows = []
        rows = [self._row(number, cells) for number, cells in self.lines() if number > self.start]
        return pandas.DataFrame(rows, dtype=object) if self.labels else np.array(rows)

    def _row(self, number: int, cells: list[str]) -> list[str] | list[float]:
        where = f"{self.path}, line {number}"
        if len(cells) != self.width:
            raise DataError(f"{where}: {len(cells)} cells where the lines before have {self.width}")
        if self.row_names:
            self.of_rows.append(cells[0].strip())
        for k, cell in enumerate(cells[self.row_names :], start=int(self.row_names)):
            if self.missing and _missing([cell.strip()]):
                continue
            if fault := _fault(cell, self.labels):
                name = "" if self.names is None else f" ({self.names[k - self.row_names]!r})"
                names_rows = k == 0 and fault == NOT_A_NUMBER
                way_out = f"; say --row-names if {NAMES_ROWS}" if names_rows else ""
                raise DataError(f"{where}, column {k + 1}{name}: {cell!r} {fault}{way_out}")
        return [self._value(cell.strip()) for cell in cells[self.row_names :]]

    def _value(self, cell: str) -> Any:
        if self.missing and _missing([cell]):
            return None if self.labels else np.nan
        return cell if self.labels else float(cell)


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


def _missing(cells: Iterable[str]) -> bool:
    return not MISSING.isdisjoint(cell.lower() for cell in cells)


def _by_column(frame: pandas.DataFrame, convert: Callable[[Sequence[str]], np.ndarray]) -> pandas.DataFrame:
    """Convert the labels that occur in each column; None stays None."""
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


def numbers_by_column(table: np.ndarray | pandas.DataFrame) -> np.ndarray | pandas.DataFrame:
    """A table of labels with float64 in the columns of which each cell is a finite number; others are left alone."""
    if isinstance(table, np.ndarray):
        return table
    return table.apply(
        lambda column: column if any(map(_fault, map(str, column.dropna()))) else column.astype(np.float64)
    )


def _whole_numbers(labels: Sequence[str]) -> np.ndarray:
    """Whole numbers where nothing is lost: 01 and 1 are two labels."""
    if not all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array(labels, object)
    try:
        return np.array([*map(int, labels)], np.int64)
    except OverflowError:
        numbers = [*map(int, labels)]
        if max(map(abs, numbers)) <= sys.float_info.max:
            return np.array(numbers, object)
        return np.array(labels, object)  # pandas 3.0 tries to make floats of them
    except ValueError:  # more digits than Python reads
        return np.array(labels, object)


# --- NumPy files -----------------------------------------------------------------------------------------------------


def read_numpy(path: Path, array: str | None = None, missing: bool = False) -> tuple[np.ndarray, list[str] | None]:
    """A ``.npy`` file, or the matrix of a ``.npz`` archive, which may hold the variables' names as ``names``.

    Args:
        array: the matrix's key in an archive; None takes the only two-dimensional array.
        missing: whether values may be missing, that is NaN.

    Returns:
        (samples, variables) C-contiguous float64, none infinite; and the names, None where the file has none.

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
    return finite(values, names, path, missing), names


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


def finite(values: np.ndarray, names: Sequence[str] | None, path: Path, missing: bool = False) -> np.ndarray:
    """The matrix as C-contiguous float64.

    Raises:
        DataError: it does not hold numbers, one is infinite or, unless `missing` allows that, missing, or the names are
            not one a column.
    """
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {values.dtype}, not numbers")
    if names is not None and values.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names for {values.shape[1]} variables")
    values = np.ascontiguousarray(values, dtype=np.float64)
    bad = np.argwhere(np.isinf(values) if missing else ~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        name = "" if names is None else f" ({names[column]!r})"
        what = "missing" if np.isnan(values[row, column]) else "infinite"
        way_out = "; say --missing drop-rows (missing='drop-rows') or impute them" if what == "missing" else ""
        raise DataError(
            f"{path}, row {row + 1}, column {column + 1}{name}: a value is {what} ({len(bad)} such in all){way_out}"
        )
    return values
