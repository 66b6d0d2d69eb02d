"""Users' tables: what is read, and one clear line for everything that is refused."""

import os
import threading

import numpy as np
import pytest

from gpupc_impl.tables import DataError, TableFormat, read_numbers, read_numpy, read_table
from gpupc_impl.tables.text import TextTable


@pytest.fixture
def table(tmp_path):
    """Writes a text and reads it as a table: values, names."""

    def read(text, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if "row_names" in options:
            table = read_table(path, form=TableFormat(**options))
            return table.values.tolist(), table.names
        values, names = read_numbers(path, **options)
        return values.tolist(), names

    return read


NUMBERS = [[1.5, 2.0], [3.0, 4.0]]


QUOTED, SPACES = '"a","b"\n1.5, 2\n"3",4\n', "a b\n1.5 2\n3   4\n"
PLAIN = ["a,b\n1.5,2\n3,4\n", "a,b\r\n1.5,2\r\n3,4", "a;b\n1.5;2\n3;4\n", "a\tb\n1.5\t2\n3\t4\n"]


@pytest.mark.parametrize("text", [*PLAIN, QUOTED, SPACES])
def test_reads_tables_with_a_header(table, text):
    assert table(text) == (NUMBERS, ["a", "b"])


def test_reads_tables_without_a_header(table):
    assert table("1.5,2\n3,4\n") == (NUMBERS, None)
    assert table("1.5 2\n3 4\n", name="table.txt") == (NUMBERS, None)
    assert table("7\n8\n") == ([[7.0], [8.0]], None)


def test_header_may_be_said(table):
    assert table("1,2\n1.5,2\n3,4\n", header=True) == (NUMBERS, ["1", "2"])
    assert table("1,2\n3,4\n", header=False) == ([[1.0, 2.0], [3.0, 4.0]], None)


@pytest.mark.parametrize("first", ["1,2,3", "0,1,2"])
def test_a_header_of_plain_numbers_is_asked_about(table, first):
    with pytest.raises(DataError, match=r"the first line holds the numbers . to .; say --header or --no-header"):
        table(f"{first}\n4,5,6\n")


def test_a_header_of_text_and_numbers_is_asked_about(table):
    with pytest.raises(DataError, match=r"both text \('a'\) and a number \('2'\); say --header or --no-header"):
        table("a,2\n4,5\n")
    assert table("a,2\n1.5,2\n3,4\n", header=True) == (NUMBERS, ["a", "2"])


@pytest.mark.parametrize(
    "text",
    [
        "id,a,b\nx,1.5,2\ny,3,4\n",
        '"","a","b"\n"1",1.5,2\n"2",3,4\n',  # R: write.csv
        '"a" "b"\n"1" 1.5 2\n"2" 3 4\n',  # R: write.table
        ",a,b\n0,1.5,2\n1,3,4\n",  # pandas: to_csv
    ],
)
def test_row_names(table, text):
    assert table(text, row_names=True) == (NUMBERS, ["a", "b"])
    with pytest.raises(DataError, match=r"--row-names if .* names the rows"):
        table(text, row_names=False)


def test_row_names_without_a_header(table):
    assert table("x,1.5,2\ny,3,4\n", row_names=True) == (NUMBERS, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "table.csv is empty"),
        ("a,b\n", "table.csv has a header and no data"),
        ("a,b\n1,2\n3,x\ny,4\n", r"table.csv, line 3, column 2 \('b'\): 'x' is not a number$"),
        ("a,b\n1,2\n3,\nNA,4\n", r"line 3, column 2 \('b'\): '' is a missing value; drop such rows or impute them"),
        (f"a,b\n1,2\n3,{'9' * 400}\n", r"line 3, column 2 \('b'\): '9{40}.* is infinite; drop"),
        ("a,b\n1,2\n3,4,5\n", "table.csv, line 3: 3 cells where the lines before have 2"),
        ("a,b,a\n1,2,3\n", "variable names must differ; repeated: a"),
        (b"\x80\xfe\x00\x01,\x80", "not a readable text table: "),
    ],
)
def test_refuses_tables(table, text, message):
    with pytest.raises(DataError, match=message):
        table(text)


def test_reads_numpy_files(tmp_path):
    np.save(tmp_path / "data.npy", np.array(NUMBERS, np.float32))
    read = read_table(tmp_path / "data.npy")
    assert (read.values.tolist(), read.values.dtype, read.names) == (NUMBERS, np.float64, None)
    np.savez(tmp_path / "data.npz", values=NUMBERS, names=["a", "b"])
    read = read_table(tmp_path / "data.npz")
    assert (read.values.tolist(), read.names) == (NUMBERS, ["a", "b"])


def test_refuses_numpy_files(tmp_path):
    (tmp_path / "bad.npy").write_text("no array")
    with pytest.raises(DataError, match=r"not a readable \.npy file"):
        read_table(tmp_path / "bad.npy")
    np.save(tmp_path / "object.npy", np.array([[None, 1]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"not a readable \.npy file: .*pickle"):
        read_table(tmp_path / "object.npy")
    np.save(tmp_path / "nan.npy", [[1, 2], [np.nan, 4]])
    with pytest.raises(DataError, match=r"row 2, column 1: a value is missing \(1 such in all\)"):
        read_numpy(tmp_path / "nan.npy")


def test_a_pipe_is_read_once(tmp_path):
    """The shell's <(...), of which nothing can be read again: trailing blank lines make pandas give up."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a,b\n1.5,2\n3,4\n\n",))
    writer.start()
    read = read_table(pipe)
    writer.join()
    assert (read.values.tolist(), read.names) == (NUMBERS, ["a", "b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "was changed while it was read"), ("a,b\n", "was changed"), ("a,b\n1,2,3\n", "line 2: 3 cells where")],
)
def test_a_table_that_changes_while_it_is_read_is_said(tmp_path, content, message):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    table = TextTable(path, TableFormat())
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        table.text()


def test_blocks_of_lines_are_the_table(tmp_path, monkeypatch):
    """Also with a missing value in the last column, where a line that is too short has one as well."""
    values = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-100, 200, 100)
    values[[20, 49], [0, 2]] = np.nan
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    (tmp_path / "table.csv").write_text(text)
    for cells in (1 << 20, 30, 1):
        monkeypatch.setattr("gpupc_impl.tables.text.CELLS_AT_ONCE", cells)
        read = read_table(tmp_path / "table.csv").values
        assert read.flags.c_contiguous
        np.testing.assert_array_equal(read, values)
    (tmp_path / "short.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="line 3: 1 cells where the lines before have 2"):
        read_table(tmp_path / "short.csv")


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_labels(tmp_path, end):
    (tmp_path / "words.csv").write_text("a,b,c\n x ,1, 99999999999999999999\n y,-2,3\nx,1,3" + end)
    table = read_table(tmp_path / "words.csv", kind="labels")
    values, names = table.values, table.names
    assert values.to_numpy().tolist() == [["x", 1, 99999999999999999999], ["y", -2, 3], ["x", 1, 3]]
    assert names == ["a", "b", "c"]


def test_a_blank_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "blank.csv").write_text("1;2;3\n\n7;8;\n7;8;9")
    for kind in ("numbers", "labels"):
        with pytest.raises(DataError, match=r"blank.csv, line 2: a blank line before the end"):
            read_table(tmp_path / "blank.csv", kind=kind)
