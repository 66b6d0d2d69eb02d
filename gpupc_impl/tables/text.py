"""Text tables: UTF-8 with tabs, semicolons, commas or spaces between cells, perhaps compressed.

pandas reads a table at once. Where it does not find numbers only, or labels only, the table is read again line by line,
by Python's rules for numbers, to name the first cell that is wrong.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import dataclasses
import gzip
import io
import lzma
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.tables.cells import (
    MISSING_AS_WRITTEN,
    NOT_A_NUMBER,
    by_column,
    fault,
    is_missing,
    stripped_labels,
    whole_numbers,
)
from gpupc_impl.tables.checks import DataError, checked_names

if TYPE_CHECKING:
    import pandas

DELIMITERS = "\t;, "
"""Characters between cells, in order of preference: where there are semicolons, a comma may be part of a cell."""

OPENERS: Mapping[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

CELLS_AT_ONCE = 1 << 20
"""Number of cells that pandas reads at a time."""


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
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """Read a text table of numbers, or of labels.

    Args:
        header: whether the first line holds names; None infers it: it does if it holds text and no number.
        row_names: whether the first column names the rows; it is left out, unless the rows are the variables.
        labels: whether the cells are categories, text or whole numbers, and not numbers.
        delimiter: the character between cells; None takes the first of `DELIMITERS` in the first line.
        missing: whether values may be missing; they become NaN, or None among labels.
        transpose: whether samples are in columns and variables in rows. The rows of a table of numbers then also have
            names if the first cell of the second line is not a number.

    Returns:
        (samples, variables) C-contiguous float64 without infinite values or, for labels, a DataFrame with a str or an
        int in each cell; and the variables' names, None where the file has none.

    Raises:
        DataError: the content cannot be used; the message names the line and the column (both counted from 1) of a bad
            cell.
        OSError: the file cannot be opened.
    """
    # A pipe and other files that are not regular can be read only once.
    stored = None if path.is_file() else path.read_bytes()
    table = _TextTable(path, stored, delimiter, row_names, labels, missing, transpose)
    try:
        table.read_head(header)
        values = table.read_at_once()
        if values is None:
            values = table.read_by_line()
    except (UnicodeDecodeError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # decompressors raise OSError without a number
            raise
        raise DataError(f"{path} is not a readable text table: {error}") from error
    if labels and header is None and table.names and all(table.names[k] in set(values[k]) for k in values):
        raise DataError(f"{path}: the first line may hold names or labels; say --header or --no-header (header=...)")
    names = table.names
    if transpose:
        names = checked_names(table.row_names, path) if table.has_row_names else None
        values = values.T if labels else np.ascontiguousarray(values.T)
    return (by_column(values, whole_numbers) if labels else values), names


def read_text_of_any_kind(
    path: Path, header: bool | None, row_names: bool, missing: bool, transpose: bool
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """Read a text table of numbers, of labels or of both, column by column; the arguments are those of `read_text`.

    Raises:
        DataError: a column has numbers and cells that are not numbers, or what `read_text` raises.
    """
    try:
        return read_text(path, header, row_names, missing=missing, transpose=transpose)
    except DataError as error:
        refused = error
    try:
        frame, names = read_text(path, header, row_names, True, missing=missing, transpose=transpose)
    except DataError:
        raise refused from None
    for k in frame:
        faults = {fault(str(cell)) for cell in frame[k].dropna().unique()}
        if faults == {None}:
            frame[k] = frame[k].astype(np.float64)
        elif faults != {NOT_A_NUMBER}:
            raise refused
    label_columns = [k for k in frame if frame[k].dtype != np.float64]
    if not label_columns or (label_columns == [0] and len(frame) > 1 and frame[0].is_unique and not row_names):
        raise refused  # the message says what to do about names of rows
    frame.columns = names if names is not None else [f"V{k}" for k in frame]
    return frame, names


@dataclasses.dataclass
class _TextTable:
    """A text table that is being read; `read_head` comes first.

    Attributes:
        stored: the file's bytes, where it can be read only once.
        has_row_names: whether the first cell of a line names the row.
        names: the variables' names, None where there are none.
        width: number of cells in a line, the row's name included.
        start: number of lines before the first that holds data.
        row_names: the names of the rows that were read.
    """

    path: Path
    stored: bytes | None
    delimiter: str | None
    has_row_names: bool
    labels: bool
    missing: bool
    transpose: bool
    names: list[str] | None = None
    width: int = 0
    start: int = 0
    row_names: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[str]]:
        with contextlib.ExitStack() as stack:
            source: Any = self.path if self.stored is None else io.BytesIO(self.stored)
            file = stack.enter_context(OPENERS.get(self.path.suffix.lower(), _plain)(source))
            yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8-sig"))

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of every line; blank lines are allowed at the end only."""
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
                    self.delimiter = next((delimiter for delimiter in DELIMITERS if delimiter in line), ",")
                try:
                    cells = next(csv.reader([line], delimiter=self.delimiter, skipinitialspace=True, strict=True))
                except (csv.Error, StopIteration) as error:
                    raise DataError(f"{self.path} is not a readable text table: line {number}: {error}") from error
                yield number, cells

    def read_head(self, header: bool | None) -> None:
        """Determine names, width and the first line of data."""
        lines = self.lines()
        number, cells = next(lines, (0, None))
        if cells is None:
            raise DataError(f"{self.path} is empty")
        if self.transpose and not self.labels and header is not False:
            second = next(lines, (0, cells))[1]
            self.has_row_names |= second[0].strip() != "" and fault(second[0]) == NOT_A_NUMBER
            lines = self.lines()
            next(lines)
        if header is None and len(cells) > 1 and not cells[0].strip():  # pandas writes names of rows like this
            if not self.has_row_names and not any(map(fault, cells[1:])):
                raise DataError(
                    f"{self.path}: the first line begins with an empty cell; say --row-names if {NAMES_ROWS}"
                )
            header = self.has_row_names or None
        if _is_header(cells[self.has_row_names :], self.path) if header is None else header:
            self.start, first = next(lines, (0, None))
            if first is None:
                raise DataError(f"{self.path} has a header and no data")
            names = [""] * (len(first) - 1 == len(cells)) + cells  # R's write.table does not name the column of names
            if len(names) != len(first):
                raise DataError(f"{self.path}: the header has {len(cells)} cells, the first row has {len(first)}")
            if not self.transpose:  # the header of a transposed table names the samples
                self.names = checked_names(names, self.path, int(self.has_row_names))
            number, cells = self.start, first
        self.start, self.width = number - 1, len(cells)
        if self.width == self.has_row_names:
            raise DataError(f"{self.path} has no column but the rows' names")
        lines.close()

    def read_at_once(self) -> np.ndarray | pandas.DataFrame | None:
        """The table as pandas reads it; None where it does not find numbers only, or labels only."""
        import pandas

        exact = {}
        if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):
            exact = {"float_precision": "round_trip"}  # the default of later versions
            with self.open() as file:
                if any(not line.strip(" \n") for line in file):
                    return None  # these versions may not terminate on dozens of blank lines
        dtype: Any = object if self.labels else None
        if self.has_row_names and not self.labels:
            dtype = {0: object}  # so that a name such as 007 is kept
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
                    na_values=MISSING_AS_WRITTEN,
                    keep_default_na=False,
                    dtype=dtype,
                    chunksize=max(1, CELLS_AT_ONCE // self.width),
                    **exact,
                ):
                    if self.has_row_names:
                        self.row_names += [str(name).strip() for name in chunk.iloc[:, 0]]
                    parts.append(self._converted(chunk.iloc[:, int(self.has_row_names) :]))
                    if parts[-1] is None:
                        return None
            except (pandas.errors.ParserError, OverflowError):  # the latter for an integer beyond the range of floats
                return None
        return pandas.concat(parts, ignore_index=True) if self.labels else np.concatenate(parts)

    def _converted(self, chunk: pandas.DataFrame) -> np.ndarray | pandas.DataFrame | None:
        """Some rows as numbers or as labels; None where a cell is wrong."""
        if self.labels:
            chunk.columns = range(chunk.shape[1])
            chunk = by_column(chunk, lambda labels: stripped_labels(labels, self.missing))
            complete = self.missing or not any(is_missing(label) for k in chunk for label in set(chunk[k]))
            return chunk if complete else None
        if not all(dtype.kind in "iuf" for dtype in chunk.dtypes):
            return None
        values = np.ascontiguousarray(chunk.to_numpy(np.float64))
        return values if (~np.isinf(values) if self.missing else np.isfinite(values)).all() else None

    def read_by_line(self) -> np.ndarray | pandas.DataFrame:
        """The table, read line by line; the first cell that is wrong is an error."""
        import pandas

        self.row_names = []
        rows = [self._row(number, cells) for number, cells in self.lines() if number > self.start]
        return pandas.DataFrame(rows, dtype=object) if self.labels else np.array(rows)

    def _row(self, number: int, cells: list[str]) -> list[Any]:
        where = f"{self.path}, line {number}"
        if len(cells) != self.width:
            raise DataError(f"{where}: {len(cells)} cells where the lines before have {self.width}")
        if self.has_row_names:
            self.row_names.append(cells[0].strip())
        row: list[Any] = []
        for k, cell in enumerate(cells[self.has_row_names :], start=int(self.has_row_names)):
            if self.missing and is_missing(cell.strip()):
                row.append(None if self.labels else np.nan)
                continue
            if cell_fault := fault(cell, self.labels):
                name = "" if self.names is None else f" ({self.names[k - self.has_row_names]!r})"
                way_out = f"; say --row-names if {NAMES_ROWS}" if k == 0 and cell_fault == NOT_A_NUMBER else ""
                raise DataError(f"{where}, column {k + 1}{name}: {cell!r} {cell_fault}{way_out}")
            row.append(cell.strip() if self.labels else float(cell))
        return row


def _is_header(cells: Sequence[str], path: Path) -> bool:
    """Whether the cells of the first line are names.

    Raises:
        DataError: they may be names or data.
    """
    cells = [cell.strip() for cell in cells]
    kinds = {fault(cell): cell for cell in cells}
    if NOT_A_NUMBER in kinds and None in kinds:
        why = f"both text ({kinds[NOT_A_NUMBER]!r}) and a number ({kinds[None]!r})"
    elif len(cells) > 1 and cells in ([str(k + start) for k in range(len(cells))] for start in (0, 1)):
        why = f"the numbers {cells[0]} to {cells[-1]}"
    else:
        return NOT_A_NUMBER in kinds
    raise DataError(f"{path}: the first line holds {why}; say --header or --no-header (header=...)")
