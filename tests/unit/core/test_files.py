"""Files in folders that are open to others, and files that hold anything."""

import csv
import operator
import os
import re
import time

import numpy as np
import pytest
import yaml

from gpupc_impl import GaussianProblem, InvalidProblem, Skeleton
from gpupc_impl.core import files
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import MAX_EXPANDED, parse_yaml
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.measurement.record import InvalidRecord, Record
from gpupc_impl.tables import read_table

NO_FILES = {"pipe": "pipe", "folder": ".", "link to a pipe": "link", "null character": "a\0b"}
NO_FILES |= {"half a character": "\ud800", "too long": "a" * 300}


READERS = (files.read_json, files.read_csv, files.load_array, load_problem, Skeleton.load, Record.load)


@pytest.mark.parametrize("read", [*READERS, BackgroundKnowledge.from_file])
@pytest.mark.parametrize("name", NO_FILES.values(), ids=NO_FILES)
def test_nothing_waits_for_what_is_no_file(read, name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises((OSError, InvalidProblem)):
        read(tmp_path / name)


FORMULAS = ["=1+1", "\r=1+1", "\n=1+1", "\t@a", "＝1+1", " \u200b+1+1", "\ufeff-a", "a\r=1+1", "a\r\n=1+1", "a;=1+1"]
FORMULAS += ["a, b\t@sum(A1)", '"\r=1+1', "-"]
NUMBERS = ["-1.5", "+2", "-inf"]


def test_no_cell_of_a_csv_is_a_formula_and_none_breaks_its_row(tmp_path):
    rows = [{"name": name, "=column": name, "number": -1.5} for name in (*FORMULAS, *NUMBERS)]
    files.write_csv(tmp_path / "table.csv", rows)
    content = (tmp_path / "table.csv").read_bytes().decode()
    for delimiter in ("\n", "\r", "\r\n"):  # whatever a program takes for a line's end
        table = list(csv.reader(content.replace("\r\n", "\n").replace("\n", delimiter).splitlines(keepends=True)))
        assert len(table) == len(rows) + 1
        assert all(len(row) == 3 for row in table)
        for cell in (cell for row in table for cell in row):
            for part in re.split("[;\t]", cell):  # and as a column's
                assert part in NUMBERS or part.strip()[:1] not in ("=", "+", "-", "@", "＝"), cell
    read = [row["name"] for row in files.read_csv(tmp_path / "table.csv")]
    assert [name.replace("'", "") for name in read] == FORMULAS + NUMBERS
    assert read[len(FORMULAS) :] == NUMBERS
    assert [name.count("'") for name in read] == [1] * len(FORMULAS) + [0] * len(NUMBERS)


def test_a_header_that_lies_takes_no_memory(tmp_path):
    path = tmp_path / "array.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 45,)})
    for mapped in (False, True):
        with pytest.raises(ValueError, match="declares"):
            files.load_array(path, mapped=mapped)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".xlsx", ".csv", ".csv.gz"])
@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 300, "folder", "none"])
def test_a_table_at_no_path_is_said(tmp_path, name, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(OSError, match=r"this is no path|too long|directory|No such file"):
        read_table(tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".xlsx"])
def test_no_pipe_is_waited_for_where_a_table_is_no_text(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(OSError, match="no regular file"):
        read_table(tmp_path / f"pipe{suffix}")


def test_deeply_nested_json_is_said(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        files.read_json(path)
    with pytest.raises(InvalidRecord, match="nested too deeply"):
        Record.load(path)


def test_aliases_cannot_stand_for_gigabytes():
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)]
    started = time.monotonic()
    with pytest.raises(yaml.YAMLError, match=f"longer than {MAX_EXPANDED:,}"):
        parse_yaml("\n".join(lines))
    assert time.monotonic() - started < 1
    assert parse_yaml("a: &a [1, 2]\nb: *a\nc: {<<: {d: 1}}") == {"a": [1, 2], "b": [1, 2], "c": {"d": 1}}


@pytest.mark.parametrize("text", ["- " * 50_000 + "a", "? " * 50_000, "[" * 3000])
def test_what_is_nested_too_deeply_is_said(text):
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["1:" * 200 + "1.0", "!!int ''", "!!float '_'", "!!bool maybe", "!!timestamp soon"])
def test_a_value_that_does_not_fit_its_tag(text):
    with pytest.raises(ValueError, match="does not have the type that its tag states"):
        parse_yaml(text)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a device", "folder"])
def test_no_pipe_and_no_device_is_replaced(tmp_path, kind):
    """As root a rename would replace /dev/null."""
    path = tmp_path / "place"
    {
        "pipe": lambda: os.mkfifo(path),
        "link to a pipe": lambda: (os.mkfifo(tmp_path / "pipe"), path.symlink_to(tmp_path / "pipe")),
        "link to a device": lambda: path.symlink_to(os.devnull),
        "folder": path.mkdir,
    }[kind]()
    # Following a link changes its time of access, and nothing else.
    known = operator.attrgetter("st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns")
    before = known(path.lstat())
    with pytest.raises(OSError, match=r"no regular file, and would be replaced; name another.*place"):
        files.write_text(path, "text")
    assert known(path.lstat()) == before


def test_a_link_at_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "known").symlink_to(tmp_path / "mine")
    files.save_json([], tmp_path / "known")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "known").is_symlink()


def test_a_problem_beside_a_matrix_that_is_no_file(tmp_path):
    """The name of the matrix is in the problem's file, so it may be anything."""
    np.save(tmp_path / "matrix.npy", np.eye(3))
    problem = GaussianProblem.from_correlation(np.load(tmp_path / "matrix.npy", mmap_mode="r"), n_samples=9)
    problem.save(tmp_path / "problem.npz")
    assert load_problem(tmp_path / "problem.npz").fingerprint == problem.fingerprint
    (tmp_path / "matrix.npy").unlink()
    os.mkfifo(tmp_path / "matrix.npy")
    with pytest.raises(InvalidProblem, match="cannot be read"):
        load_problem(tmp_path / "problem.npz")
