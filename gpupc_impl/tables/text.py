"""The reader of text tables, which may be compressed, and whose cells are separated by tabs, semicolons, commas or
spaces. The first lines decide how the table is laid out. Then a table of numbers is read in blocks of lines by pandas.
A table that pandas refuses, or may misread, is read as text, so that an error can name the first wrong cell."""

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
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import shortened
from gpupc_impl.ownership import is_regular
from gpupc_impl.tables.columns import MISSING_AS_WRITTEN, DataError, Place, checked_names, is_missing, number

if TYPE_CHECKING:
    import pandas

DELIMITERS = "\t;,| "  # between cells, in order of preference
HEAD_LINES = 50  # lines from which delimiter and header are inferred
HEAD_BYTES = 512  # in which a file of another format has a byte of zero
CELLS_AT_ONCE = 1 << 20
NAMES_ROWS = "that column names the rows (in Python: pandas.read_csv(path, index_col=0))"
HEADER_OPTION = "say --header or --no-header (header=True or header=False)"
NOT_A_NUMBER = "is not a number"


def _only_member(source: Any) -> IO[bytes]:
    try:
        archive = zipfile.ZipFile(source)
        (member,) = (member for member in archive.infolist() if not member.is_dir())
        return archive.open(member)
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        raise DataError(f"it is no readable zip archive of one file: {error}") from error


OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zip": _only_member}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How a file is written; `gpupc_impl.skeleton` explains the attributes. One that is None is inferred."""

    header: bool | None = None
    row_names: bool = False
    decimal: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    missing_values: Sequence[str] | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal is {self.decimal!r}; it is '.' or ','")
        is_one = isinstance(self.delimiter, str) and len(self.delimiter) == 1 and self.delimiter not in '\r\n"'
        if self.delimiter is not None and not is_one:
            raise DataError(f"delimiter is {self.delimiter!r}; it is one character, such as ';'")
        try:
            if self.encoding is not None:
                io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)
        except (LookupError, ValueError, TypeError) as error:
            raise DataError(
                f"encoding is {shortened(repr(self.encoding), 60)}, by which Python decodes no text; it is a name such "
                "as 'utf-8' or 'latin-1' (--encoding latin-1), or left out"
            ) from error
        if self.missing_values is not None:
            marks = [self.missing_values] if np.ndim(self.missing_values) == 0 else self.missing_values
            cells = [mark if isinstance(mark, str) else str(mark).removesuffix(".0") for mark in marks]
            object.__setattr__(self, "missing_values", cells)


def read_text(path: Path, form: TableFormat, kind: str | None, transpose: bool) -> tuple[Any, list[str] | None, Place]:
    """Return an array of numbers, or else a DataFrame of text; the variables' names; and what names a cell."""
    stored, may_be_numbers = None, kind != "labels" and form.decimal != ","
    if str(path) == "-":
        stored = sys.stdin.buffer.read()
    elif not is_regular(path):  # A pipe can be read only once.
        stored = path.read_bytes()
    if may_be_numbers:
        with contextlib.suppress(DataError):  # Reading text reports it.
            table = TextTable(path, form, stored=stored, transpose=transpose)
            if (values := table.numbers()) is not None:
                return values, table.names, table.place
    table = TextTable(path, form, stored=stored, labels=True, transpose=transpose)
    frame = table.text()
    if may_be_numbers and kind != "both" and _names_rows(frame):
        way_out = "" if form.row_names else f"; say --row-names if {NAMES_ROWS}"
        raise DataError(f"{table.place(0, 0)}: {frame.iloc[0, 0]!r} {NOT_A_NUMBER}{way_out}")
    return frame, table.names, table.place


def read_numbers(
    path: Path, header: bool | None = None, delimiter: str | None = None
) -> tuple[np.ndarray, list[str] | None]:
    """Read a text table of finite numbers: (samples, variables) float64, and the names if the file has any."""
    table = TextTable(path, TableFormat(header=header, delimiter=delimiter))
    values = table.numbers()
    if values is None or np.isnan(values).any():
        cells = table.text().to_numpy(object)
        for where, cell in np.ndenumerate(cells):
            if wrong := fault(cell):
                raise DataError(f"{table.place(*where)}: {cell!r} {wrong}")
        values = cells.astype(np.float64)
    return values, table.names


def _names_rows(frame: pandas.DataFrame) -> bool:
    """Return whether the first column of text holds distinct words, and the others begin with numbers."""
    if len(frame) < 2 or frame.shape[1] < 2 or not frame.iloc[:, 0].is_unique:
        return False
    first, *others = zip(*frame.head(HEAD_LINES).itertuples(index=False, name=None), strict=True)
    are_words = all(number(cell, ".") is None for cell in first)
    return are_words and all(number(cell, ".") is not None or is_missing(cell) for cell in itertools.chain(*others))


class TextTable:
    """A text table, whose layout is known once it is made, from a file or from its content if that can be read only
    once (`stored`). With `labels`, the first cells of a transposed table are labels unless the format says that they
    name rows. A line has `width` cells, with the row's name, and the data begin after `start` lines."""

    def __init__(
        self, path: Path, form: TableFormat, stored: bytes | None = None, labels: bool = False, transpose: bool = False
    ) -> None:
        self.path, self.form, self.transpose = path, form, transpose
        self.names: list[str] | None = None  # of the variables
        self.has_row_names = form.row_names
        self.row_names: list[str] = []
        self.lines: list[int] = []  # the number of each row's line in a table of text; empty for consecutive lines
        self._header: list[str] = []
        self._stored = stored
        with self._open() as lines:
            head = list(itertools.islice(lines, HEAD_LINES))
        self._read_head(head, labels)

    @contextlib.contextmanager
    def _open(self, start: int = 0) -> Iterator[Iterator[str]]:
        """Yield the lines of the file, after the first ones, without blanks around them."""
        opener = OPENERS.get(self.path.suffix.lower(), contextlib.nullcontext)
        try:
            with (
                self.path.open("rb") if self._stored is None else io.BytesIO(self._stored) as source,
                opener(source) as content,
                io.BufferedReader(content) as file,
            ):
                is_utf_16 = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
                if not is_utf_16 and self.form.encoding is None and b"\0" in file.peek()[:HEAD_BYTES]:
                    raise DataError(
                        f"{self.path} is not a readable text table: it has another format; write it as .csv or "
                        ".parquet in the program that wrote it, or say encoding='utf-16-le' (--encoding) if it is text"
                    )
                encoding = self.form.encoding or ("utf-16" if is_utf_16 else "utf-8-sig")
                with io.TextIOWrapper(file, encoding=encoding) as text:
                    yield itertools.islice(self._lines(text), start, None)
        except (UnicodeError, LookupError) as error:
            raise DataError(
                f"{self.path} is not a readable text table: {error}; say which encoding it has: encoding='latin-1' "
                "(--encoding latin-1) for many tables of older Windows and Excel programs"
            ) from error
        except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, csv.Error) as error:
            if isinstance(error, OSError) and error.errno is not None:  # Decompressors raise OSError without a number.
                raise
            raise DataError(f"{self.path} is not a readable text table: {error}") from error

    def _lines(self, file: IO[str]) -> Iterator[str]:
        """Yield stripped lines; a blank one is an error unless it is at the end."""
        blank = 0
        for count, line in enumerate(file, 1):
            line = line.strip(" \n")
            if not line:
                blank = blank or count
            elif blank:
                raise DataError(f"{self.path}, line {blank}: a blank line before the end")
            else:
                yield line + "\n"

    def _rows(self, lines: Iterable[str], before: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of every row of these lines, which `before` others precede."""
        reader = _cells(lines, self.delimiter)
        try:
            for cells in reader:
                yield before + reader.line_num, cells
        except csv.Error as error:
            raise csv.Error(f"line {before + reader.line_num}: {error}") from error

    def _read_head(self, head: list[str], labels: bool) -> None:
        """Determine the delimiter, the names, the width and the first line of data."""
        if not head:
            raise DataError(f"{self.path} is empty")
        for pattern, what in OTHER_FORMATS.items():
            if re.match(pattern, "".join(head[:3]), re.IGNORECASE):
                raise DataError(f"{self.path} is {what}")
        before, self.delimiter = _preamble(head, self.form.delimiter)
        rows = []
        try:
            rows += self._rows(head[before:], before)
        except csv.Error as error:  # Reading the data reports those further down.
            if len(rows) < 2:
                raise DataError(f"{self.path} is not a readable text table: {error}") from error
        (first, cells), below = rows[0], [row for _, row in rows[1:]]
        cells = [cells[0].removeprefix("# "), *cells[1:]]  # NumPy's savetxt writes names as a comment.
        header = self.form.header
        if self.transpose and not labels and header is not False and below:
            self.has_row_names |= below[0][0].strip() != "" and fault(below[0][0]) == NOT_A_NUMBER
            self.has_row_names |= bool(_are_names([row[0] for row in below], [row[1:] for row in below]))
        if header is None and len(cells) > 1 and not cells[0].strip():
            # pandas writes an empty cell above the names of rows.
            if not self.has_row_names and not any(map(fault, cells[1:])):
                raise DataError(
                    f"{self.path}: the first line begins with an empty cell; say --row-names if {NAMES_ROWS}"
                )
            header = self.has_row_names or None
        skipped = int(self.has_row_names)
        if _is_header(cells[skipped:], [row[skipped:] for row in below], self.path) if header is None else header:
            if not below:
                raise DataError(f"{self.path} has a header and no data")
            if len(below[0]) - 1 == len(cells) and len(cells) > 1 and not any(row[-1].strip() for row in below):
                raise DataError(
                    f"{self.path}: each row ends with a delimiter and so with an empty cell, but the header does not; "
                    "delete those at the ends of the rows, or add one to the header and a name"
                )
            names = [""] * (len(below[0]) - 1 == len(cells)) + cells  # R's write.table gives no header to row names.
            if len(names) != len(below[0]):
                raise DataError(f"{self.path}: the header has {len(cells)} cells, the first row has {len(below[0])}")
            if not self.transpose:  # The header of a transposed table names the samples.
                self.names = checked_names(names, self.path, skipped)
            self._header = cells
            self.start, cells = first, below[0]
        else:
            self.start = before
        self.width = len(cells)
        if self.width == self.has_row_names:
            raise DataError(f"{self.path} has no column but the rows' names")

    def place(self, row: int, column: int) -> str:
        """Return the words that name a value, by its place in the table of samples, in an error."""
        name = "" if self.names is None else f" ({self.names[column]!r})"
        if self.transpose:
            row, column = column, row
        line = self.lines[row] if self.lines else self.start + row + 1
        return f"{self.path}, line {line}, column {column + self.has_row_names + 1}{name}"

    def numbers(self) -> np.ndarray | None:
        """Read (samples, variables) C-contiguous float64 without infinite values, with NaN for missing ones; None if a
        cell is no number, or pandas may misread it."""
        self.row_names, blocks = [], []
        with self._open(self.start) as lines:
            while block := list(itertools.islice(lines, max(1, CELLS_AT_ONCE // self.width))):
                values = self._numbers(block)
                if values is None:
                    return None
                blocks.append(values)
        if not blocks:
            raise DataError(f"{self.path} was changed while it was read; read it again")
        return self._turned(np.concatenate(blocks))

    def _numbers(self, block: Sequence[str]) -> np.ndarray | None:
        import pandas

        marks = self.form.missing_values
        is_old = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        exact = {"float_precision": "round_trip"} if is_old else {}  # This is the default of later versions.
        try:
            with warnings.catch_warnings(action="ignore"):
                frame = pandas.read_csv(
                    io.StringIO("".join(block)),
                    sep=r"\s+" if self.delimiter == " " else self.delimiter,
                    header=None,
                    skipinitialspace=True,
                    na_values=MISSING_AS_WRITTEN if marks is None else ["", *marks],
                    keep_default_na=False,
                    dtype={0: object} if self.has_row_names else None,  # As a number, a name such as 007 would change.
                    **exact,
                )
        except (pandas.errors.ParserError, OverflowError):  # OverflowError: an integer beyond the range of floats.
            return None
        cells = frame.iloc[:, int(self.has_row_names) :]
        if frame.shape != (len(block), self.width) or not all(dtype.kind in "iuf" for dtype in cells.dtypes):
            return None
        values = np.ascontiguousarray(cells.to_numpy(np.float64))
        ends = (block[k] for k in np.flatnonzero(np.isnan(values[:, -1])))  # pandas fills lines that are too short.
        if np.isinf(values).any() or any(len(cells) != self.width for cells in _cells(ends, self.delimiter)):
            return None
        if self.has_row_names:
            self.row_names += [str(name).strip() for name in frame.iloc[:, 0]]
        return values

    def text(self) -> pandas.DataFrame:
        import pandas

        self.row_names, self.lines, rows = [], [], []
        known: dict[str, str] = {}  # Equal cells share their memory.
        with self._open(self.start) as lines:
            for line, cells in self._rows(lines, self.start):
                if cells == self._header and len(cells) > 1:
                    raise DataError(f"{self.path}, line {line} repeats the header; delete it")
                if len(cells) != self.width:
                    raise DataError(
                        f"{self.path}, line {line}: {len(cells)} cells where the lines before have {self.width}"
                    )
                self.lines.append(line)
                self.row_names += [cells[0].strip()] * self.has_row_names
                rows.append([known.setdefault(cell, cell) for cell in map(str.strip, cells[self.has_row_names :])])
        if not rows:
            raise DataError(f"{self.path} was changed while it was read; read it again")
        frame = pandas.DataFrame(rows, dtype=object)
        if self.form.header is None and self.names and all(name in set(frame[k]) for k, name in enumerate(self.names)):
            raise DataError(f"{self.path}: the first line may hold names or labels; {HEADER_OPTION}")
        frame = self._turned(frame)
        frame.index = range(len(frame))
        frame.columns = [f"V{k}" for k in range(frame.shape[1])] if self.names is None else self.names
        return frame

    def _turned(self, values: Any) -> Any:
        if not self.transpose:
            return values
        self.names = checked_names(self.row_names, self.path) if self.has_row_names else None
        return np.ascontiguousarray(values.T) if isinstance(values, np.ndarray) else values.T


def fault(cell: str) -> str | None:
    """Return what is wrong with a cell, as a predicate; None for a finite number."""
    if is_missing(cell.strip()):
        return "is a missing value; drop such rows or impute them (--missing drop-rows, missing='drop-rows')"
    try:
        value = float(cell.replace("_", "?"))  # Python parses 1_0 as 10.
    except ValueError:
        return NOT_A_NUMBER
    return None if np.isfinite(value) else "is infinite; drop such rows or impute them"


def _cells(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


# What other formats begin with, and what to do with them.
OTHER_FORMATS = {
    r"/cov|\d+\s*\n[^\d\n]+\n\s*\S+\n$": "a covariance file of Tetrad, half a matrix; make a full table of "
    "correlations of it, and give that with n_samples (--correlation --n-samples)",
    r"#1\.\d\s*\n": "a GCT file; delete its first two lines and its column of descriptions, and say transpose=True "
    "(--transpose) if its rows are genes",
    r"/(variables|data|knowledge|graph|discretevars|continuousvars)\b": "a file of Tetrad with sections; write its "
    "table alone, with the names in the first line",
    r"@relation\b|%.*\n@relation\b": "an ARFF file; write it as .csv",
    r"\s*[{<]\s*[\"!?\w]|\s*\[\s*[\[{]": "no table but JSON, HTML or XML; write it as .csv",
}


def _preamble(head: Sequence[str], delimiter: str | None) -> tuple[int, str]:
    """Return the number of lines before the table (Excel's ``sep=;``, comments), and its delimiter."""
    before = 0
    if excel := re.fullmatch(r"\"?sep=([^\s\"]|\t)\"?", head[0].strip("\r\n"), re.IGNORECASE):
        before, delimiter = 1, delimiter or excel[1]
    comments = list(itertools.takewhile(lambda line: line.startswith("#"), head[before:]))
    table = head[before + len(comments) :]
    if not table or not comments:
        return before, delimiter or _delimiter(head[before:])
    delimiter = delimiter or _delimiter(table)
    widths = [len(next(_cells([line], delimiter), [])) for line in (comments[-1], table[0])]
    return before + len(comments) - (widths[0] == widths[1] > 1), delimiter


def _delimiter(lines: Sequence[str]) -> str:
    """Return the first of `DELIMITERS` that gives all lines equally many cells; R's headers may lack one."""
    for delimiter in DELIMITERS:
        try:
            widths = [len(cells) for cells in _cells(lines, delimiter)]
        except csv.Error:
            continue
        if len(set(widths[1:])) == 1 and widths[1] > 1 and widths[0] in (widths[1], max(widths[1] - 1, 2)):
            return delimiter
    return next((delimiter for delimiter in DELIMITERS if delimiter in lines[0]), ",")


def _are_names(cells: Sequence[str], others: Sequence[Sequence[str]]) -> bool | None:
    """Return whether distinct integers are names: every column beside them holds a fraction. None if only some do."""
    if len(others) < 2 or len(cells) < 2 or len({len(line) for line in others}) != 1 or len(set(cells)) != len(cells):
        return False
    if not all(re.fullmatch(r"\d+", cell.strip()) for cell in cells):
        return False
    fractions = [any(re.search(r"\d[.,]\d", cell) for cell in column) for column in zip(*others, strict=True)]
    return True if all(fractions) else None if any(fractions) else False


def _is_header(cells: Sequence[str], below: Sequence[Sequence[str]], path: Path) -> bool:
    """Return whether the first line holds names: text without numbers, or integers above fractions."""
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
