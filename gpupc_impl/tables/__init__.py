"""Readers of users' tables. No value is imputed, and ambiguous content is an error.

Text files and binary files have a reader each; both readers check names and numbers by the same rules. The cells of a
column determine its type (`gpupc_impl.tables.columns`), independently of the kind of file or DataFrame that holds it.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.files import shortened
from gpupc_impl.core.rows import RowStream
from gpupc_impl.tables.binary import FRAMES, read_frame, read_numpy
from gpupc_impl.tables.checks import DataError
from gpupc_impl.tables.columns import Place, typed
from gpupc_impl.tables.plink import open_genotypes
from gpupc_impl.tables.streams import is_streamed, open_stream
from gpupc_impl.tables.text import read_text

if TYPE_CHECKING:
    import pandas

__all__ = ["FRAMES", "DataError", "Table", "TableFormat", "read_numpy", "read_table", "read_text"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The format of a table; an attribute that is None is inferred.

    Attributes:
        header, row_names, delimiter, encoding: as for `read_text`; `header` and `row_names` also apply to sheets.
        decimal: the decimal mark, a point or a comma.
        missing_values: the cells, beside empty ones, that stand for missing values.

    Raises:
        DataError: the decimal mark is neither a point nor a comma, the delimiter is not one character, or Python has no
            text encoding of that name.
    """

    header: bool | None = None
    row_names: bool = False
    decimal: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    missing_values: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal is {self.decimal!r}; it is '.' or ','")
        is_one = isinstance(self.delimiter, str) and len(self.delimiter) == 1 and self.delimiter not in '\r\n"'
        if self.delimiter is not None and not is_one:
            raise DataError(f"delimiter is {self.delimiter!r}; it is one character, such as ';'")
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)
        except (LookupError, ValueError, TypeError) as error:
            raise DataError(
                f"encoding is {shortened(repr(self.encoding), 60)}, by which Python decodes no text; it is a name such "
                "as 'utf-8' or 'latin-1' (--encoding latin-1), or left out"
            ) from error
        if isinstance(self.missing_values, str):
            object.__setattr__(self, "missing_values", [self.missing_values])


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The content of a file.

    Attributes:
        values: (samples, variables) float64, a DataFrame with a type for each column, or a `RowStream` of numbers.
        names: the variables' names; None if the file has none.
        remark: the unusual ways in which numbers are written, such as decimal commas; empty if there is none.
        counts: whether the numbers are known to be counts, such as genotypes, and not codes of categories.
        place: the function that names a cell of `values` in an error.
    """

    values: np.ndarray | pandas.DataFrame | RowStream
    names: list[str] | None
    place: Place
    remark: str = ""
    counts: bool = False


def read_table(
    path: Path,
    form: TableFormat | None = None,
    kind: str | None = None,
    transpose: bool = False,
    streamed: bool = False,
) -> Table:
    """Read a file of numbers, of labels or of both; a missing value becomes NaN, or None in a column of text.

    Args:
        path: ``.npy`` or ``.npz`` (see `read_numpy`), ``.parquet``, ``.xlsx`` or ``.h5ad`` (see `read_frame`), or
            ``.bed`` (see `open_genotypes`); any other file is a text table.
        kind: the kind of the columns, if it is known: ``"numbers"``, ``"labels"`` or ``"both"``.
        transpose: whether samples are in columns and variables in rows.
        streamed: whether a large table of numbers may become a `RowStream` (`gpupc_impl.tables.streams`).

    Raises:
        DataError, OSError: `read_text` or `typed` raises the error.
    """
    form = form or TableFormat()
    suffix = path.suffix.lower()

    if streamed and not transpose and (stream := open_stream(path)) is not None:
        rows, names = stream
        return Table(rows, names, _place(path, names))
    if suffix == ".bed":
        genotypes, names = open_genotypes(path)
        whole = transpose or not (streamed and is_streamed(genotypes.shape))
        values = np.asarray(genotypes) if whole else genotypes
        if transpose:
            values, names = np.ascontiguousarray(values.T), None
        return Table(values, names, _place(path, names), counts=True)
    if suffix in (".npy", ".npz"):
        values, names = read_numpy(path, missing=True)
        if transpose:
            values, names = np.ascontiguousarray(values.T), None
        return Table(values, names, _place(path, None))
    if suffix in FRAMES:
        frame = read_frame(path, form.header, form.row_names, transpose)
        names = list(frame.columns)
        return _typed(frame, names, _place(path, names), kind, form)
    arguments = {
        "header": form.header,
        "row_names": form.row_names,
        "delimiter": form.delimiter,
        "encoding": form.encoding,
        "missing_values": form.missing_values,
        "missing": True,
        "transpose": transpose,
    }
    refused: DataError | None = None
    if kind != "labels" and form.decimal != ",":
        try:
            table = read_text(path, **arguments)
        except DataError as error:
            refused = error
        else:
            return Table(table.values, table.names, table.place)
    try:
        table = read_text(path, **arguments, labels=True)
    except DataError as error:
        raise refused or error from None
    frame = table.values
    result = _typed(frame, table.names, table.place, kind, form)
    labels = [k for k, dtype in enumerate(result.values.dtypes) if dtype.kind not in "iuf"]
    names_rows = labels == [0] and len(frame) > 1 and frame.shape[1] > 1 and frame.iloc[:, 0].is_unique
    if refused and names_rows and kind != "both":
        raise refused  # The message explains how to declare names of rows.
    return result


def _place(path: Path, names: Sequence[str] | None) -> Place:
    """Return the function that names a cell of a binary file."""
    return lambda row, column: (
        f"{path}, row {row + 1}, column {column + 1}"
        if names is None
        else f"{path}, row {row + 1} of column {str(names[column])!r}"
    )


def _typed(
    frame: pandas.DataFrame, names: list[str] | None, place: Place, kind: str | None, form: TableFormat
) -> Table:
    """Return the table of a frame, with the type of each column determined from its cells."""
    frame, remark = typed(frame, kind, place, form.decimal, form.missing_values)
    if names is None:
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    return Table(frame, names, place, remark)
