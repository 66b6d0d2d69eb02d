"""The reader of text tables, whose cells are separated by tabs, semicolons, commas or spaces.

The encoding is UTF-8 by default, and a file may be compressed. pandas reads a table in large parts. If a cell is wrong,
the table is read again line by line, with Python's rules for numbers, so that an error can name the first wrong cell.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import itertools
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.ownership import is_regular
from gpupc_impl.tables.cells import MISSING_AS_WRITTEN, NOT_A_NUMBER, fault, is_missing
from gpupc_impl.tables.checks import DataError, checked_names

if TYPE_CHECKING:
    import pandas

DELIMITERS = "\t;, "
"""The characters between cells, in order of preference; if semicolons separate cells, a comma may be part of a cell."""

HEAD_LINES = 50
"""The number of lines from which the delimiter is inferred, and whether numbers in the first line are names."""


def _only_member(source: Path | IO[bytes]) -> IO[bytes]:
    """Open the only file of a zip archive; raises DataError if the archive holds another number of files."""
    try:
        archive = zipfile.ZipFile(source)
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) != 1:
            raise DataError(f"the archive holds {len(members)} files and not one; extract the table")
        return archive.open(members[0])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise DataError(f"no readable zip archive: {error}") from error


OPENERS: Mapping[str, Callable[..., IO[bytes]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zip": _only_member,
}

CELLS_AT_ONCE = 1 << 20
"""The number of cells that pandas reads at a time."""


def _plain(source: Path | IO[bytes]) -> IO[bytes]:
    return source.open("rb") if isinstance(source, Path) else source


NAMES_ROWS = "that column names the rows (in Python: pandas.read_csv(path, index_col=0))"


def read_text(
    path: Path,
    header: bool | None = None,
    row_names: bool = False,
    labels: bool = False,
    delimiter: str | None = None,
    missing: bool = False,
    transpose: bool = False,
    encoding: str | None = None,
    missing_values: Sequence[str] | None = None,
) -> TextTable:
    """Read a text table of numbers or, as text, the cells of any text table.

    Args:
        header: whether the first line holds names. None infers it: the first line holds names if it holds text and no
            number, or if it holds distinct integers and the columns below hold fractions.
        row_names: whether the first column names the rows. These names are discarded, unless the rows are the
            variables.
        labels: whether cells remain text.
        delimiter: the character between cells; None means the first of `DELIMITERS` with which the first lines have
            the same number of cells.
        missing: whether values may be missing; a missing value becomes NaN, or None if cells remain text.
        transpose: whether samples are in columns and variables in rows. The rows of a table of numbers then also have
            names if the first cell of the second line is not a number.
        encoding: the encoding of the text; None means UTF-8, or UTF-16 if the file begins with its byte order mark.
        missing_values: the cells, beside empty ones, that stand for missing values; None means the usual ones.

    Returns:
        The table, whose `values` are (samples, variables) C-contiguous float64 without infinite values or, for labels,
        a DataFrame of str.

    Raises:
        DataError: the content cannot be used; the message names the line and the column (both counted from 1) of a bad
            cell.
        OSError: the file cannot be opened.
    """
    # Files that are not regular, such as pipes, can be read only once.
    stored = None if is_regular(path) else path.read_bytes()
    marks = None if missing_values is None else frozenset(missing_values)
    table = TextTable(path, stored, delimiter, row_names, labels, missing, transpose, encoding, marks)
    try:
        table.read_head(header)
        values = table.read_at_once()
        if values is None:
            values = table.read_by_line()
    except (UnicodeError, LookupError) as error:
        raise DataError(
            f"{path} is not a readable text table: {error}; say which encoding it has: encoding='latin-1' "
            "(--encoding latin-1) for many tables of older Windows and Excel programs"
        ) from error
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Decompressors raise OSError without a number.
            raise
        raise DataError(f"{path} is not a readable text table: {error}") from error
    if labels and header is None and table.names and all(table.names[k] in set(values[k]) for k in values):
        raise DataError(f"{path}: the first line may hold names or labels; {HEADER_OPTION}")
    if transpose:
        table.names = checked_names(table.row_names, path) if table.has_row_names else None
        values = values.T if labels else np.ascontiguousarray(values.T)
    if labels:
        values.index = range(len(values))
        values.columns = range(values.shape[1]) if table.names is None else table.names
    table.values = values
    return table


@dataclasses.dataclass
class TextTable:
    """A text table, and the methods that read it; `read_head` must be called first.

    Attributes:
        stored: the file's bytes if the file can be read only once; otherwise None.
        has_row_names: whether the first cell of a line names the row.
        names: the variables' names; None if the table has none.
        width: the number of cells in a line, which includes the row's name.
        start: the number of lines before the first line of data.
        row_names: the names of the rows that have been read.
        marks: the cells that stand for missing values; None means the usual ones.
    """

    path: Path
    stored: bytes | None
    delimiter: str | None
    has_row_names: bool
    labels: bool
    missing: bool
    transpose: bool
    encoding: str | None
    marks: frozenset[str] | None
    names: list[str] | None = None
    width: int = 0
    start: int = 0
    row_names: list[str] = dataclasses.field(default_factory=list)
    values: Any = None

    def place(self, row: int, column: int) -> str:
        """Return the words that name a cell of `values` in an error."""
        name = "" if self.names is None else f" ({self.names[column]!r})"
        if self.transpose:
            row, column = column, row
        return f"{self.path}, line {self.start + row + 1}, column {column + self.has_row_names + 1}{name}"

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[str]]:
        with contextlib.ExitStack() as stack:
            source: Any = self.path if self.stored is None else io.BytesIO(self.stored)
            file = stack.enter_context(OPENERS.get(self.path.suffix.lower(), _plain)(source))
            file = stack.enter_context(io.BufferedReader(file))  # type: ignore[type-var]
            encoding = self.encoding
            if encoding is None:
                is_utf_16 = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
                encoding = "utf-16" if is_utf_16 else "utf-8-sig"
            yield stack.enter_context(io.TextIOWrapper(file, encoding=encoding))

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of every line; raises DataError for a blank line that is not at the end."""
        blank = None
        with self.open() as file:
            for number, line in enumerate(file, start=1):
                line = line.strip(" \n")
                if not line:
                    blank = blank or number
                    continue
                if blank is not None:
                    raise DataError(f"{self.path}, line {blank}: a blank line before the end")
                try:
                    cells = _cells(line, self.delimiter or ",")
                except (csv.Error, StopIteration) as error:
                    raise DataError(f"{self.path} is not a readable text table: line {number}: {error}") from error
                yield number, cells

    def read_head(self, header: bool | None) -> None:
        """Determine the delimiter, the names, the width and the first line of data from the first lines of the file."""
        with self.open() as file:
            beginning = [line.strip(" \n") for line in itertools.islice(file, HEAD_LINES)]
        beginning = [line for line in beginning if line]
        if _are_covariances(beginning):
            raise DataError(
                f"{self.path} is a covariance file of Tetrad, the lower triangle of a matrix; convert it to a full "
                "table of correlations, and give that with n_samples (--correlation --n-samples)"
            )
        below: list[list[str]] = []
        if self.delimiter is None:
            self.delimiter = _delimiter(beginning)
        lines = self.lines()
        number, cells = next(lines, (0, None))
        if cells is None:
            raise DataError(f"{self.path} is empty")
        with contextlib.suppress(csv.Error, StopIteration):  # Reading the data reports malformed lines.
            below = [_cells(line, self.delimiter) for line in beginning[1:]]
        if self.transpose and not self.labels and header is not False:
            second = next(lines, (0, cells))[1]
            self.has_row_names |= second[0].strip() != "" and fault(second[0]) == NOT_A_NUMBER
            self.has_row_names |= bool(_are_names([row[0] for row in below], [row[1:] for row in below]))
            lines = self.lines()
            next(lines)
        # A header that pandas writes above names of rows has an empty first cell.
        if header is None and len(cells) > 1 and not cells[0].strip():
            if not self.has_row_names and not any(map(fault, cells[1:])):
                raise DataError(
                    f"{self.path}: the first line begins with an empty cell; say --row-names if {NAMES_ROWS}"
                )
            header = self.has_row_names or None
        skipped = int(self.has_row_names)
        if _is_header(cells[skipped:], [row[skipped:] for row in below], self.path) if header is None else header:
            self.start, first = next(lines, (0, None))
            if first is None:
                raise DataError(f"{self.path} has a header and no data")
            names = [""] * (len(first) - 1 == len(cells)) + cells  # R's write.table gives no header to row names.
            if len(names) != len(first):
                raise DataError(f"{self.path}: the header has {len(cells)} cells, the first row has {len(first)}")
            if not self.transpose:  # The header of a transposed table names the samples.
                self.names = checked_names(names, self.path, int(self.has_row_names))
            number, cells = self.start, first
        self.start, self.width = number - 1, len(cells)
        if self.width == self.has_row_names:
            raise DataError(f"{self.path} has no column but the rows' names")
        lines.close()

    def read_at_once(self) -> np.ndarray | pandas.DataFrame | None:
        """Return the values as pandas reads them; None if a cell is wrong or pandas may misread the table."""
        import pandas

        exact = {}
        if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):
            exact = {"float_precision": "round_trip"}  # This is the default of later versions.
            with self.open() as file:
                if any(not line.strip(" \n") for line in file):
                    return None  # These versions may not terminate on dozens of blank lines.
        dtype: Any = object if self.labels else None
        if self.has_row_names and not self.labels:
            dtype = {0: object}  # As a number, a name such as 007 would change.
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
                    na_filter=self.missing and not self.labels,
                    na_values=MISSING_AS_WRITTEN if self.marks is None else ["", *self.marks],
                    keep_default_na=False,
                    dtype=dtype,
                    chunksize=max(1, CELLS_AT_ONCE // self.width),
                    **exact,
                ):
                    if self.has_row_names:
                        self.row_names += [str(name).strip() for name in chunk.iloc[:, 0]]
                    if chunk.shape[1] != self.width:
                        return None
                    parts.append(self._converted(chunk.iloc[:, int(self.has_row_names) :]))
                    if parts[-1] is None:
                        return None
            except (pandas.errors.ParserError, pandas.errors.EmptyDataError, OverflowError):
                return None  # OverflowError means an integer beyond the range of floats.
        return pandas.concat(parts, ignore_index=True) if self.labels else np.concatenate(parts)

    def _converted(self, chunk: pandas.DataFrame) -> np.ndarray | pandas.DataFrame | None:
        """Return some rows as numbers or as labels; None if a cell is wrong."""
        if self.labels:
            chunk.columns = range(chunk.shape[1])
            chunk = chunk.map(self._label)
            absent = chunk.isna()  # pandas reads a blank line as missing values.
            return None if (absent.all(axis=1) if self.missing else absent.any(axis=1)).any() else chunk
        if not all(dtype.kind in "iuf" for dtype in chunk.dtypes):
            return None
        values = np.ascontiguousarray(chunk.to_numpy(np.float64))
        if self.missing and np.isnan(values).all(axis=1).any():  # pandas reads a blank line as missing values.
            return None
        return values if (~np.isinf(values) if self.missing else np.isfinite(values)).all() else None

    def _label(self, cell: str) -> str | None:
        cell = cell.strip()
        return None if is_missing(cell, self.marks) else cell

    def read_by_line(self) -> np.ndarray | pandas.DataFrame:
        """Read the values line by line; raises DataError for the first wrong cell."""
        import pandas

        self.row_names = []
        rows = [self._row(number, cells) for number, cells in self.lines() if number > self.start]
        if not rows:
            raise DataError(f"{self.path} was changed while it was read; read it again")
        return pandas.DataFrame(rows, dtype=object) if self.labels else np.array(rows)

    def _row(self, number: int, cells: list[str]) -> list[Any]:
        where = f"{self.path}, line {number}"
        if len(cells) != self.width:
            raise DataError(f"{where}: {len(cells)} cells where the lines before have {self.width}")
        if self.has_row_names:
            self.row_names.append(cells[0].strip())
        row: list[Any] = []
        for k, cell in enumerate(cells[self.has_row_names :], start=int(self.has_row_names)):
            if self.missing and is_missing(cell.strip(), self.marks):
                row.append(None if self.labels else np.nan)
                continue
            if cell_fault := fault(cell, self.labels, self.marks):
                name = "" if self.names is None else f" ({self.names[k - self.has_row_names]!r})"
                way_out = f"; say --row-names if {NAMES_ROWS}" if k == 0 and cell_fault == NOT_A_NUMBER else ""
                raise DataError(f"{where}, column {k + 1}{name}: {cell!r} {cell_fault}{way_out}")
            row.append(cell.strip() if self.labels else float(cell))
        return row


def _are_covariances(lines: Sequence[str]) -> bool:
    """Return whether the first lines are those of a covariance file of Tetrad.

    Such a file holds the number of samples, the names, and then lines of one, two, three, ... numbers.
    """
    if lines and re.match(r"/cov", lines[0], re.IGNORECASE):
        return True
    lengths = [len(line.split()) for line in lines[2:]]
    return len(lengths) > 1 and lines[0].isdecimal() and lengths == [*range(1, len(lengths) + 1)]


HEADER_OPTION = "say --header or --no-header (header=True or header=False)"


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))


def _delimiter(lines: Sequence[str]) -> str:
    """Return the first of `DELIMITERS` that gives all lines equally many cells; R's headers may lack one."""
    for delimiter in DELIMITERS:
        try:
            widths = [len(_cells(line, delimiter)) for line in lines]
        except (csv.Error, StopIteration):
            continue
        if len(set(widths[1:])) == 1 and widths[1] > 1 and widths[0] in (widths[1], max(widths[1] - 1, 2)):
            return delimiter
    return next((delimiter for delimiter in DELIMITERS if lines and delimiter in lines[0]), ",")


def _are_names(cells: Sequence[str], others: Sequence[Sequence[str]]) -> bool | None:
    """Return whether cells that are distinct integers are names beside lines of other cells; None if that is ambiguous.

    The cells are names if every column of these lines holds a fraction, and no names if no column does.
    """
    if len(others) < 2 or len(cells) < 2 or len({len(line) for line in others}) != 1 or len(set(cells)) != len(cells):
        return False
    if not all(re.fullmatch(r"\d+", cell.strip()) for cell in cells):
        return False
    fractions = [any(re.search(r"\d[.,]\d", cell) for cell in column) for column in zip(*others, strict=True)]
    return True if all(fractions) else None if any(fractions) else False


def _is_header(cells: Sequence[str], below: Sequence[Sequence[str]], path: Path) -> bool:
    """Return whether the cells of the first line are names: text without numbers, or integers above fractions.

    Raises:
        DataError: the cells may be names or data.
    """
    cells = [cell.strip() for cell in cells]
    kinds = {fault(cell): cell for cell in cells}
    if NOT_A_NUMBER in kinds and None in kinds:
        why = f"both text ({kinds[NOT_A_NUMBER]!r}) and a number ({kinds[None]!r})"
    elif are_names := _are_names(cells, below):
        return True
    elif are_names is None:
        why = "whole numbers, above columns of which some hold others"
    elif len(cells) > 1 and cells in ([str(k + start) for k in range(len(cells))] for start in (0, 1)):
        why = f"the numbers {cells[0]} to {cells[-1]}"
    else:
        return NOT_A_NUMBER in kinds
    raise DataError(f"{path}: the first line holds {why}; {HEADER_OPTION}")
