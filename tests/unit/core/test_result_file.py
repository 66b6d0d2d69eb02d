"""Results written into folders that others may write to, and to paths that are none."""

import os

import numpy as np
import pytest

from gpupc_impl import InvalidProblem, Skeleton, bootstrap, pc, skeleton
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.registry import InvalidParameter

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


WAYS = (*(f"{kind}{suffix}" for kind in ("skeleton", "cpdag") for suffix in (*SUFFIXES, ".html")),)


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


def test_a_search_names_a_folder_that_is_none():
    with pytest.raises((InvalidParameter, InvalidProblem), match=r"parameter folder is 'a.x00b'; no path can have"):
        skeleton(DATA, method="distributed", backend="host", workers=1, folder="a\0b")


def test_the_old_file_is_left_where_writing_fails(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(TypeError), write_whole(path) as file:
        file.writelines([b"new", None])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("result", "old")]
