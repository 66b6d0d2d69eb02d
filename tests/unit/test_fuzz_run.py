"""Fuzzing at will, for seconds: one reader, a call that goes on, and what several calls found as one table."""

import json

import pytest

from tests.fuzz import run


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # set back at the end


def test_a_reader_with_a_seed_and_a_call_that_goes_on(tmp_path):
    summary = tmp_path / "sub" / "bif.json"
    call = ["bif", "--minutes", "0.01", "--slice-seconds", "0.2", "--summary", str(summary)]
    assert run.main([*call, "--seed", "3"]) == 0
    first = run.read_summary(summary)
    assert first["commits"]
    assert first["machines"]
    assert first["targets"].keys() == {"bif"}
    bif = first["targets"]["bif"]
    assert bif["seeds"] == [3]
    assert bif["inputs"] > bif["answers"] > 0
    assert run.main([*call, "--seed", "4", "--commit", "abc"]) == 0
    second = run.read_summary(summary)
    assert set(second["commits"]) == {*first["commits"], "abc"}
    again = second["targets"]["bif"]
    assert again["seeds"] == [3, 4]
    for name in ("turns", "seconds", "inputs", "answers"):
        assert again[name] > bif[name]


def summary(path, seeds, machine="x86_64, 2 cores", **changes):
    counts = {"seeds": seeds, "turns": 1, "seconds": 2.5, "inputs": 10, "answers": 4, "slowest_s": 0.5}
    counts |= {"memory_growth_bytes": 7, "faults": {}} | changes
    found = {"commits": ["abc"], "machines": [machine], "pythons": ["3.12.1"], "targets": {"csv": counts}}
    path.write_text(json.dumps(found))
    return str(path)


def test_summaries_are_merged(tmp_path):
    def fault(count):
        return {"ValueError in a.py:f": {"what": "ValueError: x", "input": f"csv-{count}.csv", "count": count}}

    paths = [
        summary(tmp_path / "a.json", [0], slowest_s=3.0),
        summary(tmp_path / "b.json", [1], "aarch64, 64 cores", faults=fault(2)),
        summary(tmp_path / "c.json", [2, 5], faults=fault(3), memory_growth_bytes=99),
    ]
    merged = tmp_path / "merged.json"
    assert run.main(["--merge", *paths, "--summary", str(merged)]) == 1  # a fault
    found = run.read_summary(merged)
    assert found["machines"] == ["aarch64, 64 cores", "x86_64, 2 cores"]
    assert found["targets"]["csv"] == {
        "seeds": [0, 1, 2, 5],
        **{"turns": 3, "seconds": 7.5, "inputs": 30, "answers": 12, "slowest_s": 3.0, "memory_growth_bytes": 99},
        "faults": {"ValueError in a.py:f": {"what": "ValueError: x", "input": "csv-2.csv", "count": 5}},
    }


def test_what_cannot_be_merged_is_said(tmp_path):
    merged = str(tmp_path / "merged.json")
    one, other = (summary(tmp_path / name, [0, number]) for number, name in enumerate(("a.json", "b.json"), 1))
    with pytest.raises(SystemExit, match="csv with seed 0 is in another summary"):
        run.main(["--merge", one, other, "--summary", merged])
    for content in ("[]", "{}", "x", '"x"'):
        (tmp_path / "odd.json").write_text(content)
        with pytest.raises(SystemExit, match="no summary of this program"):
            run.main(["--merge", str(tmp_path / "odd.json"), "--summary", merged])
    assert not (tmp_path / "merged.json").exists()
