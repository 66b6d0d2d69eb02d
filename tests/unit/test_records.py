"""The record format, its files, and the version of a method's code."""

import json
import sys

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.core import files
from gpupc_impl.measurement import records
from gpupc_impl.measurement.environment import environment


@pytest.fixture
def problem():
    return GaussianProblem.from_data(np.random.default_rng(0).normal(size=(20, 4)), alpha=0.1, max_level=2)


@pytest.fixture
def record(problem):
    return {
        "schema_version": 1,
        "setting": "s",
        "method": "m",
        "family": "gaussian",
        "reference": False,
        "canonical": True,
        "backend": "host",
        "params": {"theta": 64},
        "separating_sets": "canonical",
        "dataset": {"name": "d", "samples": 20},
        "problem": problem.facts(),
        "status": "ok",
        "why": None,
        "limits": {"time_s": 1.5, "memory_bytes": None, "device_memory_bytes": None},
        "time_s": {"cold": 1.0, "compile": 0.5, "warm": [0.3, 0.1, 0.2], "levels": [[0.3], [0.1], [0.2]]},
        "result": {
            "edges": 1,
            "levels_run": 1,
            "stopped_because": "complete",
            "edges_per_level": [1],
            "tests_per_level": [6],
            "undefined_tests": 0,
            "pseudo_inverses": 0,
            "skeleton_sha256": "a" * 64,
            "sepsets_sha256": "b" * 64,
        },
        "peak_bytes": {"process": 1000, "device": None},
        "code": "c" * 64,
        "reused_samples": 0,
        "environment": environment(1, 1),
    }


def test_every_key_of_the_schema_is_described():
    def walk(node, where):
        assert "description" in node, where
        for name, child in node.get("properties", {}).items():
            walk(child, f"{where}.{name}")
        if "properties" in node and where not in ("record.dataset", "record.problem"):
            assert node["additionalProperties"] is False, where

    walk(records.schema(), "record")


def test_round_trip(record, tmp_path):
    records.save(record, tmp_path / "deep" / "s.json")
    assert records.load(tmp_path / "deep" / "s.json") == record
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda r: r.update(extra=1), "extra"),
        (lambda r: r["time_s"].update(mean=1), "mean"),
        (lambda r: r.update(status="fine"), "$.status"),
        (lambda r: r.pop("why"), "why"),
        (lambda r: r["dataset"].pop("name"), "$.dataset"),
        (lambda r: r["result"].update(edges="many"), "$.result"),
    ],
)
def test_invalid_records_are_neither_saved_nor_loaded(record, tmp_path, change, where):
    change(record)
    with pytest.raises(records.InvalidRecord, match=r"s\.json is not a valid record") as failure:
        records.save(record, tmp_path / "s.json")
    assert where in str(failure.value)
    assert not list(tmp_path.iterdir())
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(records.InvalidRecord, match=r"s\.json"):
        records.load(tmp_path / "s.json")


def test_failures_have_no_result(record):
    record.update(status="timeout", why="too slow", result=None)
    record["time_s"].update(cold=None, compile=None, warm=[], levels=[])
    records.validate(record)


def test_other_families_bring_their_own_facts(record):
    record["problem"] = {"alpha": 0.1, "n_variables": 4, "max_level": None, "fingerprint": "d" * 64, "df_rule": "full"}
    records.validate(record)


def test_load_records_passes_over_unfinished_files(record, tmp_path):
    records.save({**record, "setting": "b"}, tmp_path / "two" / "b.json")
    records.save(record, tmp_path / "one" / "s.json")
    (tmp_path / "one" / ".s.123.json").write_text('{"schema_ver')
    loaded = records.load_records(tmp_path)
    assert [r["setting"] for r in loaded] == ["s", "b"]
    assert records.load_records([tmp_path / "one" / "s.json"]) == [record]


def test_a_file_that_is_not_json_is_named(tmp_path):
    (tmp_path / "s.json").write_text('{"schema_ver')
    with pytest.raises(records.InvalidRecord, match=r"s\.json is not JSON"):
        records.load_records(tmp_path)


def test_frame(record):
    failed = {**record, "setting": "f", "time_s": {"cold": None, "compile": None, "warm": [], "levels": []}}
    failed.update(status="timeout", why="too slow", result=None)
    frame = records.to_frame([record, failed])
    assert list(frame["setting"]) == ["s", "f"]
    assert frame.loc[0, "median_s"] == 0.2
    assert frame.loc[0, "problem.alpha"] == 0.1
    assert frame.loc[0, "time_s.warm"] == [0.3, 0.1, 0.2]
    assert frame[["median_s", "low_s", "result.edges"]].loc[1].isna().all()


def test_band():
    assert records.band([]) == (None, None, None)
    assert records.median([]) is None
    assert records.band([5.0]) == (5.0, 5.0, 5.0)
    assert records.band([4.0, 1.0, 2.0, 3.0, 0.0, 5.0]) == (1.0, 2.5, 4.0)


def test_write_whole_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write():
        with files.write_whole(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_without_jsonschema_a_record_is_written_and_said_to_be_unchecked(record, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    records.save(record, tmp_path / "s.json")
    assert "not validated" in caplog.text
    monkeypatch.undo()
    assert records.load(tmp_path / "s.json") == record
