"""The readers: what they read, and what they refuse."""

import gzip
import sys

import numpy as np
import pandas as pd
import pytest
import rdata
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.dataset import DataError
from datasets.readers import read_csv, read_npz, read_rdata


@pytest.fixture
def csv_file(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "header", "names", "values"),
    [
        ("a,b\n1,2\n3,4\n", "auto", ["a", "b"], [[1, 2], [3, 4]]),
        ("1.5,2\n3,4\n", "auto", ["V0", "V1"], [[1.5, 2], [3, 4]]),
        ("1,2\n3,4\n", True, ["1", "2"], [[3, 4]]),
        ("1,2\n3,4", False, ["V0", "V1"], [[1, 2], [3, 4]]),
        ('"a, b", "c"\r\n1e-3, -2.5\r\n\r\n\n', "auto", ["a, b", "c"], [[0.001, -2.5]]),
        ("1_1,1_2\n1,2\n", "auto", ["1_1", "1_2"], [[1, 2]]),
        ("x\n1\n2\n", "auto", ["x"], [[1], [2]]),
    ],
)
def test_csv(csv_file, text, header, names, values):
    for found, columns in (
        read_csv(csv_file(text), header),
        read_csv(csv_file("\ufeff" + text), header),
        read_csv(csv_file(gzip.compress(text.encode()), "t.csv.gz"), header),
    ):
        assert list(columns) == names
        assert found.tolist() == values
        assert found.dtype == np.float64


def test_other_delimiters(csv_file):
    values, names = read_csv(csv_file("a;b\n1;2\n"), delimiter=";")
    assert (values.tolist(), names) == ([[1, 2]], ("a", "b"))


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1))
def test_csv_keeps_every_bit(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("bits") / "t.csv"
    path.write_text("\n".join(",".join(map(repr, row)) for row in rows))
    values, _ = read_csv(path, header=False)
    assert np.array_equal(values, np.array(rows))


@pytest.mark.parametrize(("text", "said"), [(",a\n1,2\n", "column 1 has no name"), ('a,b\n"1,2\n', "not a readable")])
def test_csv_refuses(csv_file, text, said):
    """As the command line does, whose tests have the other cases."""
    with pytest.raises(DataError, match=rf"t\.csv.*{said}"):
        read_csv(csv_file(text))


@pytest.mark.parametrize("read", [read_csv, read_npz, read_rdata])
def test_absent_file(tmp_path, read):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")


def test_npz(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.arange(6).reshape(3, 2), names=np.array(["a", "b"]), labels=np.zeros(3))
    values, names = read_npz(path)
    assert names == ("a", "b")
    assert values.tolist() == [[0, 1], [2, 3], [4, 5]]
    np.savez(path, x=np.zeros((3, 2)), y=np.ones((3, 2)))
    assert read_npz(path, array="y")[0].sum() == 6
    assert read_npz(path, array="y")[1] == ("V0", "V1")
    with pytest.raises(DataError, match=r"one two-dimensional array; it holds x \(3, 2\), y \(3, 2\)"):
        read_npz(path)
    np.savez(path, x=np.zeros((2, 2)), names=np.array(["a", "a"]))
    with pytest.raises(DataError, match="repeated: a"):
        read_npz(path)


def test_rdata(tmp_path):
    path = tmp_path / "t.RData"
    matrix = np.arange(6.0).reshape(3, 2)
    rdata.write_rda(path, {"set": {"x": matrix, "y": np.arange(3.0)}})
    values, names = read_rdata(path)
    assert names == ("V0", "V1")
    assert np.array_equal(values, matrix)
    values, names = read_rdata(path, table="set$x", transpose=True)
    assert np.array_equal(values, matrix.T)
    assert values.flags.c_contiguous
    assert names == ("V0", "V1", "V2")


def test_rdata_frame(tmp_path):
    path = tmp_path / "t.rda"
    rdata.write_rda(path, {"d": pd.DataFrame({"a": [1.5, 2.0], "b": [3, 4]})})
    values, names = read_rdata(path)
    assert names == ("a", "b")
    assert values.tolist() == [[1.5, 3], [2, 4]]


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"x": np.zeros((2, 2)), "y": np.zeros((2, 2))}, r"one two-dimensional array; it holds x \(2, 2\), y \(2, 2\)"),
        ({"x": np.zeros(2)}, "it holds nothing"),
        ({"d": pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series(["u", "v"], dtype=object)})}, "column 'b' is not numeric"),
        ({"x": np.array([[0.0, np.nan]])}, "row 1, column 2: a value is missing"),
    ],
)
def test_rdata_refuses(tmp_path, contents, said):
    path = tmp_path / "t.rda"
    rdata.write_rda(path, contents)
    with pytest.raises(DataError, match=said):
        read_rdata(path)


def test_without_rdata(tmp_path, monkeypatch):
    (tmp_path / "t.rda").touch()
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(DataError, match="needs the package rdata"):
        read_rdata(tmp_path / "t.rda")
