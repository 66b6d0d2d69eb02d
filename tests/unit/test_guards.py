"""Binary tables that would crash Python or take gigabytes in the package that reads them."""

import re
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gpupc_impl import skeleton
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables import DataError, binary

READ = "import sys; from gpupc_impl import skeleton; skeleton(sys.argv[1], method='stable-serial', progress=False)"


def refused(path, message):
    """Read a table in a process of its own, which the attack may crash or stop, and look for the message."""
    ended = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"DataError: {path} is not a readable {path.suffix} file: ValueError: " in last
    assert message in last


def anndata_of(matrix):
    anndata = pytest.importorskip("anndata")
    names = [pd.DataFrame(index=pd.Index([f"n{k}" for k in range(size)], dtype=object)) for size in matrix.shape]
    return anndata.AnnData(matrix, obs=names[0], var=names[1])


@pytest.mark.parametrize("index", [10**8, -1])
def test_indices_that_lead_out_of_a_sparse_matrix(tmp_path, index):
    """SciPy writes where they lead, without a check."""
    data = anndata_of(sparse.csr_matrix(np.random.default_rng(0).normal(size=(20, 3))))
    path = tmp_path / "data.h5ad"
    data.write_h5ad(path)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        file["X/indices"][5] = index
    said = "its matrix X of shape (20, 3) is sparse, and its indices do not fit that shape (indices must be "
    if index > 0:
        refused(path, said)
    else:
        with pytest.raises(DataError, match=re.escape(said)):
            skeleton(path, method="stable-serial", progress=False)
    data.X.indices[5] = index
    with pytest.raises(InvalidProblem, match=r"AnnData\) cannot be read as a table: .* its indices do not fit"):
        skeleton(data, method="stable-serial", progress=False)


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


def test_a_cell_far_from_the_table(tmp_path):
    path = tmp_path / "data.xlsx"
    sheet(path, XFD4000=1.0)
    with pytest.raises(DataError, match="more than 1,048,576 rows or 16,777,216 cells; delete those far"):
        skeleton(path, method="stable-serial", progress=False)


def test_a_sheet_that_unpacks_to_much_more(tmp_path, monkeypatch):
    path = tmp_path / "data.xlsx"
    sheet(path)
    monkeypatch.setattr(binary, "MAX_SHEET_BYTES", 1000)
    with pytest.raises(DataError, match=r"it decompresses to [\d,]+ bytes, over the limit of 1,000; save it as"):
        skeleton(path, method="stable-serial", progress=False)


def test_sheets_are_read_as_far_as_they_hold_values(tmp_path):
    """Formatted cells, which spreadsheets leave behind everywhere, and a few stray values are no attack."""
    path = tmp_path / "data.xlsx"
    sheet(path, A1048576=None, XFD7=None)
    assert skeleton(path, method="stable-serial", progress=False).names == ("a", "b", "c")
    altered(path, b'<c r="A1"', b"<c")  # A cell without a name is the next one of its row.
    assert skeleton(path, method="stable-serial", progress=False).names == ("a", "b", "c")
