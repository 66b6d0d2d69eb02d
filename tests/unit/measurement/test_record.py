"""The record, its file and its numbers; files that are there whole or not at all."""

import dataclasses
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.core.files import read_csv
from gpupc_impl.measurement.record import InvalidRecord, Limits, Record, Result, Times, band, day, schema, to_frame
from tests.records import record_of


@pytest.fixture
def record():
    problem = GaussianProblem.from_data(np.random.default_rng(0).normal(size=(20, 4)), alpha=0.1, max_level=2)
    times = Times(1.0, 0.5, [0.3, 0.1, 0.2], [[0.3], [0.1], [0.2]])
    result = Result(1, 1, "complete", [1], [6], 0, 0, "a" * 64, "b" * 64)
    own = {"backend": "host", "params": {"theta": 64}, "dataset_facts": {"samples": 20}, "limits": Limits(time_s=1.5)}
    return record_of(problem, **own, time_s=times, result=result)


def failed(record):
    return dataclasses.replace(record, status="timeout", why="too slow", result=None, time_s=Times(warm=[5.0]))


def test_every_key_of_the_schema_is_described():
    def walk(node, where):
        assert "description" in node, where
        for name, child in node.get("properties", {}).items():
            walk(child, f"{where}.{name}")
        if "properties" in node and where not in ("record.dataset", "record.problem"):
            assert node["additionalProperties"] is False, where

    walk(schema(), "record")


def test_round_trip(record, tmp_path):
    for each in (record, failed(record)):
        each.save(tmp_path / "deep" / "s.json")
        assert Record.load(tmp_path / "deep" / "s.json") == each
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda r: r.update(extra=1), "extra"),
        (lambda r: r.update(status="fine"), "$.status"),
        (lambda r: r.pop("why"), "why"),
        (lambda r: r["dataset"].pop("name"), "$.dataset"),
        (lambda r: r["result"].update(edges="many"), "$.result"),
    ],
)
def test_invalid_records_are_not_loaded(record, tmp_path, change, where):
    content = record.to_json()
    change(content)
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(InvalidRecord, match=r"s\.json is not a valid record") as failure:
        Record.load(tmp_path / "s.json")
    assert where in str(failure.value)


def test_invalid_records_are_not_saved(record, tmp_path):
    with pytest.raises(InvalidRecord, match=r"s\.json is not a valid record: at \$\.status"):
        dataclasses.replace(record, status="fine").save(tmp_path / "s.json")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_json_is_named(tmp_path):
    (tmp_path / "s.json").write_text('{"schema_ver')
    with pytest.raises(InvalidRecord, match=r"s\.json is not JSON"):
        Record.load(tmp_path / "s.json")


def test_numbers_for_tables(record):
    assert (record.low, record.median, record.high) == pytest.approx((0.14, 0.2, 0.26))
    assert (record.repeats, record.edges, record.levels, record.tests) == (3, 1, 1, 6)
    late = failed(record)
    assert (late.low, late.median, late.high, late.edges, late.levels, late.tests) == (None,) * 6


def test_what_ran_it(record):
    machine = {**record.environment, "cpu": "A CPU", "threads": 4, "git_commit": "0123456789abc", "git_dirty": True}
    record = dataclasses.replace(record, environment=machine)
    assert record.commit == "0123456789+"
    assert record.machine == "A CPU, 4 threads"
    assert dataclasses.replace(record, params={"workers": 3}).machine == "A CPU, 3 threads"
    assert dataclasses.replace(record, method="stable-serial").machine == "A CPU, 1 thread"
    gpu = {**machine, "device": {"device": "A GPU"}, "git_commit": None}
    assert dataclasses.replace(record, backend="cuda", environment=gpu).machine == "A GPU"
    assert dataclasses.replace(record, environment=gpu).commit is None
    dated = {**machine, "measured_at": "2026-11-21T23:59:00+00:00"}
    assert day(dated) == "2026-11-21"
    undated = {name: fact for name, fact in machine.items() if name != "measured_at"}  # as records once were
    assert day(undated) is None


def test_frame(record):
    frame = to_frame([record, failed(record)])
    assert list(frame["status"]) == ["ok", "timeout"]
    assert list(frame["median_s"]) == [0.2, 5.0]
    assert frame.loc[0, "problem.alpha"] == 0.1
    assert frame.loc[0, "time_s.warm"] == [0.3, 0.1, 0.2]
    assert frame[["result.edges", "time_s.cold"]].loc[1].isna().all()


def test_records_as_csv_have_no_formula_and_what_was_not_measured_is_empty(record, tmp_path, monkeypatch):
    formula = dataclasses.replace(failed(record), why="\r=1+1")
    paths = [tmp_path / f"{name}.json" for name in "ab"]
    for path, each in zip(paths, (record, formula), strict=True):
        each.save(path)
    for stream in ("stdout", "stderr"):  # which the script redirects
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    outputs = SimpleNamespace(records=tmp_path / "records.csv", verification=tmp_path / "verification.csv")
    places = {"log": [tmp_path / "log"], "input": SimpleNamespace(verification=[]), "output": outputs}
    places["params"] = SimpleNamespace(records=paths)
    script = Path(__file__).parents[3] / "workflow/scripts/collect.py"
    runpy.run_path(str(script), {"snakemake": SimpleNamespace(**places)})
    one, other = read_csv(tmp_path / "records.csv")
    assert (one["setting"], one["why"], float(one["median_s"])) == (record.setting, "", band(record.time_s.warm)[1])
    assert (other["why"], other["result.edges"]) == ("\r'=1+1", "")


def test_band():
    assert band([]) == (None, None, None)
    assert band([5.0]) == (5.0, 5.0, 5.0)
    assert band([4.0, 1.0, 2.0, 3.0, 0.0, 5.0]) == (1.0, 2.5, 4.0)
