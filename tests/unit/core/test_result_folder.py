"""A folder of results is used by the calculation that it belongs to, and what is damaged in it is made again."""

from unittest import mock

import numpy as np
import pytest

from gpupc_impl import InvalidProblem
from gpupc_impl.core import result_folder
from gpupc_impl.core.result_folder import ResultFolder

SETTINGS = {"data": "a fingerprint", "seed": 3}
OUTCOME, ARRAYS = {"tests": 3}, {"pairs": np.array([[0, 1], [2, 5]])}


def opened(path, **settings):
    return ResultFolder(path, "study", {**SETTINGS, **settings})


def read(folder, name="one"):
    return folder.read(name, lambda outcome, arrays: (outcome, arrays["pairs"].tolist()))


def test_what_is_written_is_read(tmp_path):
    opened(tmp_path).write("one", OUTCOME, ARRAYS)
    assert read(opened(tmp_path)) == (OUTCOME, [[0, 1], [2, 5]])
    assert read(opened(tmp_path), "two") is None


def test_a_fault_of_the_parser_in_threads_is_no_damage(tmp_path, monkeypatch):
    opened(tmp_path).write("one", OUTCOME, ARRAYS)
    outcomes = iter([SystemError("AST constructor recursion depth mismatch"), (OUTCOME, ARRAYS)])
    monkeypatch.setattr(result_folder, "read_sealed", mock.Mock(side_effect=outcomes))
    assert read(opened(tmp_path)) == (OUTCOME, [[0, 1], [2, 5]])


def test_what_is_altered_or_of_another_place_is_not_read(tmp_path, caplog):
    folder = opened(tmp_path / "here")
    for where, name in ((folder, "one"), (folder, "two"), (opened(tmp_path / "there", seed=4), "one")):
        where.write(name, OUTCOME, ARRAYS)
    path = tmp_path / "here" / "one.npz"
    with np.load(path) as stored:
        np.savez(tmp_path / "altered.npz", described=stored["described"], pairs=stored["pairs"] ^ 1)
    planted = tmp_path / "altered.npz", path.with_name("two.npz"), tmp_path / "there" / "one.npz"
    for content in (*(each.read_bytes() for each in planted), b""):
        path.write_bytes(content)
        caplog.clear()
        assert read(folder) is None
        assert "is made again" in caplog.text


def test_a_folder_of_something_else_is_refused_and_left(tmp_path):
    opened(tmp_path).write("one", OUTCOME, ARRAYS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for change, message in (({"data": "b"}, "of other data, or another alpha"), ({"seed": 4}, "a study of seed 3")):
        with pytest.raises(InvalidProblem, match=message):
            opened(tmp_path, **change)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", ['{"rows": 1e400}', "[[1, 2]]", "null", '"ab"', "{"])
def test_settings_that_nothing_wrote_are_refused(tmp_path, content):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(InvalidProblem, match=r"holds a study of other|study\.json is damaged .*; remove the folder"):
        opened(tmp_path)


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidProblem, match=r"file' cannot be used: .*; name another"):
        opened(tmp_path / "file")
