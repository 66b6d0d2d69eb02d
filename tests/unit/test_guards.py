"""Binary tables that would crash Python, open other files or take gigabytes in the package that reads them."""

import os
import subprocess
import sys
import time
import zipfile

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import skeleton
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables import DataError, guards

READ = "import sys; from gpupc_impl import skeleton; skeleton(sys.argv[1], method='stable-serial', progress=False)"


def refused(path, message):
    """Read a table in a process of its own, which the attack may crash or stop, and look for the message."""
    ended = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"DataError: {path} is not a readable {path.suffix} file: ValueError: " in last
    assert message in last


# --- AnnData ---------------------------------------------------------------------------------------------------------


def anndata_of(matrix):
    anndata = pytest.importorskip("anndata")
    names = [pd.DataFrame(index=pd.Index([f"n{k}" for k in range(size)], dtype=object)) for size in matrix.shape]
    return anndata.AnnData(matrix, obs=names[0], var=names[1])


def sparse_matrix():
    from scipy import sparse

    return sparse.csr_matrix(np.random.default_rng(0).normal(size=(20, 3)))


@pytest.mark.parametrize("index", [10**8, 3, -1])
def test_indices_that_lead_out_of_a_sparse_matrix(tmp_path, index):
    """SciPy writes where they lead, without a check."""
    data = anndata_of(sparse_matrix())
    path = tmp_path / "data.h5ad"
    data.write_h5ad(path)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        file["X/indices"][5] = index
    refused(path, "its matrix X of shape (20, 3) is sparse, and its indices do not fit that shape (indices must be ")
    data.X.indices[5] = index
    with pytest.raises(InvalidProblem, match=r"AnnData object that cannot be read.*its indices do not fit that shape"):
        skeleton(data, method="stable-serial", progress=False)


def link(file, other):
    import h5py

    file["X"] = h5py.ExternalLink(other, "/X")


def link_in_a_group(file, other):
    file["X"] = np.zeros((20, 3))
    link(file.create_group("uns/deep"), other)
    file["uns/deep/round"] = file["uns"]  # The walk has to end.


def values_elsewhere(file, other):
    file.create_dataset("X", shape=(20, 3), dtype="f8", external=[(other, 0, 480)])


def view(file, other):
    import h5py

    layout = h5py.VirtualLayout(shape=(20, 3), dtype="f8", maxshape=(None, 3))
    layout[:] = h5py.VirtualSource(other, "X", shape=(20, 3), maxshape=(None, 3))
    file.create_virtual_dataset("X", layout)


ELSEWHERE = {
    link: "/X is a link to",
    link_in_a_group: "/uns/deep/X is a link to",
    values_elsewhere: "/X is values in",
    view: "/X is a view of",
}


@pytest.mark.parametrize("attack", ELSEWHERE)
def test_an_anndata_file_that_leads_to_another_file(tmp_path, attack):
    """HDF5 would wait for the pipe."""
    path, pipe = tmp_path / "data.h5ad", str(tmp_path / "pipe")
    anndata_of(np.zeros((20, 3))).write_h5ad(path)
    os.mkfifo(pipe)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        described = dict(file["X"].attrs)
        del file["X"]
        attack(file, pipe)
        if attack is not link:
            file["X"].attrs.update(described)
    refused(path, f"{ELSEWHERE[attack]} another file ({pipe!r}); a table must hold its values itself")


# --- Excel -----------------------------------------------------------------------------------------------------------


def sheet(path, **cells):
    """Write a sheet of three columns with some further cells."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", "b", "c"])
    for row in np.random.default_rng(0).normal(size=(30, 3)):
        book.active.append(row.tolist())
    for name, value in cells.items():
        book.active[name] = value
        book.active[name].number_format = "0.00"  # Otherwise a cell without a value is not written.
    book.save(path)


def altered(path, old, new):
    """Replace bytes of the sheet's XML."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    part = "xl/worksheets/sheet1.xml"
    assert old in members[part]
    members[part] = members[part].replace(old, new, 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(("cell", "cells"), [("XFD4000", "65,536,000"), ("XFD1048576", "17,179,869,184")])
def test_a_cell_far_from_the_table(tmp_path, cell, cells):
    path = tmp_path / "data.xlsx"
    sheet(path, **{cell: 1.0})
    started = time.monotonic()
    with pytest.raises(DataError, match=rf"column 16,384 and would take {cells} cells.*describes 94; the limit is"):
        skeleton(path, method="stable-serial", progress=False)
    assert time.monotonic() - started < 10


def test_rows_of_cells_without_values_that_end_far_away(tmp_path):
    path = tmp_path / "data.xlsx"
    sheet(path)
    rows = b"".join(b'<row r="%d"><c r="XFD%d"/></row>' % (row, row) for row in range(40, 1040))
    altered(path, b"</sheetData>", rows + b"</sheetData>")
    with pytest.raises(DataError, match=r"column 3 and would take 16,384,093 cells"):
        skeleton(path, method="stable-serial", progress=False)


def test_a_row_that_no_sheet_has(tmp_path):
    path = tmp_path / "data.xlsx"
    sheet(path)
    altered(path, b'<row r="31"', b'<row r="99999999999"')
    with pytest.raises(DataError, match="first sheet has the row 99,999,999,999; the last possible one is 1,048,576"):
        skeleton(path, method="stable-serial", progress=False)


def test_a_sheet_that_unpacks_to_much_more(tmp_path):
    path = tmp_path / "data.xlsx"
    sheet(path)
    altered(path, b"</sheetData>", b"<row><c><v>1</v></c></row>" * 300_000 + b"</sheetData>")
    with pytest.raises(DataError, match=r"bytes declare 7,8\d\d,\d{3} bytes of content, over the limit of .*save the"):
        skeleton(path, method="stable-serial", progress=False)


def test_sheets_are_read_as_far_as_they_hold_values(tmp_path):
    """Formatted cells, which spreadsheets leave behind everywhere, and a few stray values are no attack."""
    path = tmp_path / "data.xlsx"
    sheet(path, A1048576=None, XFD7=None)
    assert skeleton(path, method="stable-serial", progress=False).names == ("a", "b", "c")
    altered(path, b'<c r="A1"', b"<c")  # A cell without a name is the next one of its row.
    assert skeleton(path, method="stable-serial", progress=False).names == ("a", "b", "c")


def test_cells_are_counted_where_they_are(tmp_path):
    extent = guards._Extent()
    for element, attributes in [
        ("x row", {"r": "3"}),
        ("x c", {}),
        ("x c", {"r": "AB3"}),
        ("x v", {}),
        ("x row", {}),
        ("x c", {"r": "D4"}),
    ]:
        extent.start(element, attributes)
    assert (extent.cells, extent.rows, extent.columns, extent.walked) == (3, 3, 28, 32)
