"""Results written into folders that others may write to, and to paths that are none."""

import contextlib
import csv
import os

import numpy as np
import pandas
import pytest

from gpupc_impl import CPDAG, GaussianProblem, InvalidProblem, Skeleton, bootstrap, pc, skeleton
from gpupc_impl.core.files import save_json, write_csv, write_whole
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.gaussian.large import exact_correlation

SUFFIXES = (".npz", ".csv", ".graphml", ".gml", ".dot", ".json")
DATA = np.random.default_rng(0).normal(size=(60, 4)).cumsum(axis=1)


@pytest.fixture(scope="module")
def graph():
    return pc(DATA, method="stable-serial")


def written_by(graph):
    """Functions of a path that write a file, by name."""
    ways = {f"skeleton{suffix}": graph.skeleton.save for suffix in SUFFIXES}
    ways |= {f"cpdag{suffix}": graph.save for suffix in SUFFIXES}
    return ways | {"skeleton.html": graph.skeleton.report, "cpdag.html": graph.report}


def other_files():
    """Functions of a path that write other files than results, by name."""
    problem = GaussianProblem.from_data(DATA)

    def matrix(path):
        with contextlib.suppress(ValueError):  # The matrix is mapped at the end, from where the link leads.
            exact_correlation(problem.correlation, path)

    return {
        "checkpoint": lambda path: skeleton(problem, method="out-of-core-block", backend="host", checkpoint=str(path)),
        "matrix.npy": matrix,
        "problem.npz": problem.save,
        "table.csv": lambda path: write_csv(path, [{"column": "cell"}]),
        "text.json": lambda path: save_json("text", path),
    }


WAYS = (*(f"{kind}{suffix}" for kind in ("skeleton", "cpdag") for suffix in (*SUFFIXES, ".html")),)


@pytest.mark.parametrize("way", [*WAYS, *other_files()])
def test_nothing_is_written_through_a_link_that_another_user_puts_at_the_temporary_file(
    graph, tmp_path, monkeypatch, way
):
    if way.endswith(".html"):
        pytest.importorskip("matplotlib")
    precious, folder = tmp_path / "precious", tmp_path / "open to others"
    precious.write_bytes(b"precious")
    folder.mkdir()
    system_open, swapped = os.open, []

    def open_and_swap(path, flags, *args, **options):
        descriptor = system_open(path, flags, *args, **options)
        if flags & os.O_EXCL and os.path.dirname(path) == str(folder):
            os.unlink(path)
            os.symlink(precious, path)
            swapped.append(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_swap)
    (written_by(graph) | other_files())[way](folder / way)
    assert swapped
    assert {file.name for file in folder.iterdir()} <= {way}  # A finished search removes its checkpoint.
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize("way", WAYS)
def test_a_name_of_many_bytes_is_written(graph, tmp_path, way):
    if way.endswith(".html"):
        pytest.importorskip("matplotlib")
    path = tmp_path / f"{'😀' * 60}{os.path.splitext(way)[1]}"
    written_by(graph)[way](path)
    assert path.stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if way.endswith(".npz"):
        assert Skeleton.load(path) == graph.skeleton


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_path_that_is_none_is_named(graph, tmp_path, name):
    for way, write in written_by(graph).items():
        with pytest.raises(OSError, match=r"no path can have a null character or a lone surrogate.*b\.\w+'"):
            write(f"{tmp_path}/{name}{os.path.splitext(way)[1]}")
    path = f"{tmp_path}/{name}"
    for parameter in ("checkpoint", "timeline"):
        with pytest.raises(InvalidParameter, match=f"parameter {parameter} is .*no path can have a null character"):
            skeleton(DATA, method="out-of-core-block", backend="host", **{parameter: path})
    with pytest.raises(OSError, match="no path can have a null character"):
        bootstrap(DATA, 2, method="stable-serial", folder=path)


def test_the_old_file_is_left_where_writing_fails(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(TypeError), write_whole(path) as file:
        file.writelines([b"new", None])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("result", "old")]


@pytest.mark.parametrize("kind", [Skeleton, CPDAG])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_no_program_finds_a_formula_inside_of_a_name_wherever_it_splits_lines(tmp_path, kind, delimiter):
    names = ("x;=1+1", "y\t=cmd|' /C calc'!A0;", "z\n=1+1", "w\r@sum(A1)", "a;-3.5", "plain")
    table = pandas.DataFrame(np.random.default_rng(0).normal(size=(90, 6)).cumsum(axis=1), columns=list(names))
    found = pc(table, method="stable-serial", max_level=0)
    (found if kind is CPDAG else found.skeleton).save(tmp_path / "graph.csv")
    with open(tmp_path / "graph.csv", newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file, delimiter=delimiter) for cell in row]
    assert any("1+1" in cell for cell in cells)
    assert not [cell for cell in cells if cell.lstrip("\t\r\n").startswith(("=", "+", "@"))]


def test_a_page_names_a_data_file_whose_name_is_not_utf_8(tmp_path):
    pytest.importorskip("matplotlib")
    data = tmp_path / os.fsdecode(b"\xff.npy")
    np.save(data, DATA)
    skeleton(data, method="stable-serial").report(tmp_path / "page.html")
    assert r"\udcff.npy" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_search_names_a_folder_that_is_none():
    with pytest.raises((InvalidParameter, InvalidProblem), match=r"parameter folder is 'a.x00b'; no path can have"):
        skeleton(DATA, method="distributed", backend="host", workers=1, folder="a\0b")
