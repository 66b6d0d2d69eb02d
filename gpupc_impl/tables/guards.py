"""Checks of files that a package reads as it finds them: AnnData files, which can make HDF5 open other files and SciPy
leave its arrays, and Excel files, a few kilobytes of which can describe a sheet of gigabytes."""

from __future__ import annotations

import importlib
import os
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from xml.parsers import expat

if TYPE_CHECKING:
    import pandas

MAX_SHEET_BYTES = 1 << 30
"""The upper bound on the bytes to which the members of an Excel file decompress, all of them together."""

INFLATION = 100
"""The upper bound on the bytes to which one byte of an Excel file decompresses, as in Apache POI's ZipSecureFile; more
than Excel reaches, and a tenth of what zlib can."""

FREE_SHEET_BYTES = 1 << 20
"""The decompressed bytes up to which `INFLATION` is not asked for."""

FREE_CELLS = 1 << 20
"""The cells of a rectangle up to which a sheet may be as sparse as it likes."""

SPARSEST = 16
"""The upper bound on the cells of a larger rectangle for each cell that the sheet describes."""

MAX_ROW = 1 << 20
"""The last row that a sheet can have."""


def check_hdf5(path: Path) -> None:
    """Refuse an HDF5 file with a link to another file, or with a data set whose values are in another file.

    Nothing is read but the descriptions of the objects; each is visited once, whatever links lead to it.

    Raises:
        ValueError: the message names the object.
    """
    h5py = importlib.import_module("h5py")
    with h5py.File(path, "r") as file:
        groups, seen = [file], set()
        while groups:
            group = groups.pop()
            for name in group:
                link = group.get(name, getlink=True)
                place = f"{group.name.rstrip('/')}/{name}"
                if isinstance(link, h5py.ExternalLink):
                    raise _elsewhere(place, "a link to", [link.filename])
                if not isinstance(link, h5py.HardLink):  # The target of a soft link has a hard one, or is absent.
                    continue
                part = group[name]
                address = h5py.h5o.get_info(part.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(part, h5py.Group):
                    groups.append(part)
                elif isinstance(part, h5py.Dataset) and part.external:
                    raise _elsewhere(place, "values in", [source for source, *_ in part.external])
                elif isinstance(part, h5py.Dataset) and part.is_virtual:
                    raise _elsewhere(place, "a view of", [source.file_name for source in part.virtual_sources()])


def _elsewhere(place: str, what: str, files: list[str]) -> ValueError:
    return ValueError(
        f"{place} is {what} another file ({', '.join(map(repr, files[:3]))}); a table must hold its values itself: "
        "read it where that file is trusted, and write it anew"
    )


def frame_of_anndata(data: Any) -> pandas.DataFrame:
    """Return the matrix ``X`` of an AnnData object as a DataFrame.

    Raises:
        ValueError: the indices of a sparse matrix lead out of it, which makes SciPy write outside its memory.
    """
    from scipy import sparse

    if sparse.issparse(data.X):
        try:
            getattr(data.X, "check_format", lambda full_check: None)(full_check=True)
        except ValueError as error:
            raise ValueError(
                f"its matrix X of shape {data.X.shape} is sparse, and its indices do not fit that shape ({error}); "
                "write it anew from the data it was made of"
            ) from error
    frame: pandas.DataFrame = data.to_df()
    return frame


def check_inflation(path: Path) -> None:
    """Refuse an Excel file that declares more bytes than one that a spreadsheet wrote.

    `zipfile` reads no more of a member than is declared.

    Raises:
        ValueError: the message names the sizes.
    """
    size = os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        declared = sum(member.file_size for member in archive.infolist())
    limit = min(MAX_SHEET_BYTES, max(FREE_SHEET_BYTES, INFLATION * size))
    if declared > limit:
        raise ValueError(
            f"its {size:,} bytes declare {declared:,} bytes of content, over the limit of {limit:,}; save the sheet as "
            ".csv or .parquet"
        )


def check_extent(sheet: IO[bytes]) -> None:
    """Refuse the XML of a sheet whose cells are a small part of the rectangle that they span, every cell of which takes
    time and memory.

    Raises:
        ValueError: the message names the last row and the last column.
        xml.parsers.expat.ExpatError: the sheet is no XML.
    """
    extent = _Extent()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = extent.start
    parser.ParseFile(sheet)
    cells = max(extent.rows * extent.columns, extent.walked)
    limit = max(FREE_CELLS, SPARSEST * extent.cells)
    if cells > limit:
        raise ValueError(
            f"its first sheet goes to row {extent.rows:,} and column {extent.columns:,} and would take {cells:,} "
            f"cells, of which it describes {extent.cells:,}; the limit is {limit:,}: delete the cells far from the "
            "table, or save the sheet as .csv"
        )


class _Extent:
    """The size of a sheet, counted while its elements start.

    Attributes:
        cells: the described cells.
        rows, columns: the last row and the last column that hold a value.
        walked: the cells up to the last one of each row, with a value or without.
    """

    def __init__(self) -> None:
        self.cells = self.rows = self.columns = self.walked = 0
        self._row = self._column = 0

    def start(self, element: str, attributes: dict[str, str]) -> None:
        tag = element.rpartition(" ")[2]
        if tag == "row":
            self._row = int(attributes.get("r", self._row + 1))
            self._column = 0
            if self._row > MAX_ROW:
                raise ValueError(f"its first sheet has the row {self._row:,}; the last possible one is {MAX_ROW:,}")
        elif tag == "c":
            self.cells += 1
            before, self._column = self._column, self._place(attributes.get("r"))
            self.walked += max(0, self._column - before)
        elif tag in ("v", "is"):
            self.rows = max(self.rows, self._row)
            self.columns = max(self.columns, self._column)

    def _place(self, name: str | None) -> int:
        """Return the column of a cell, which is the next one if the cell has no name such as B7."""
        if name is None:
            return self._column + 1
        column = 0
        for letter in name.rstrip("0123456789").upper():
            column = 26 * column + ord(letter) - 64
        return column
