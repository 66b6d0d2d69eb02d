"""Recorded runs beside this machine's: headings, stale marks, what was not run, and tables of several blocks."""

import json
import types

import pytest

from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.reporting import catalogue, cells, runs
from gpupc_impl.reporting.runs import Source, absent_note, heading

CURRENT = code_version(get_method("cupc-s"), "cuda")


def record(setting="cupc-s", backend="cuda", code=CURRENT, commit="0123456789abcdef", at=None, warm=(1.0, 2.0)):
    device = {"device": {"device": "NVIDIA H200"}} if backend == "cuda" else {}
    when = {"measured_at": f"{at}T12:00:00+00:00"} if at else {}
    result = {"edges": 3, "levels_run": 2, "tests_per_level": [10, 5], "edges_per_level": [4, 3]}
    return {
        **{"setting": setting, "method": setting, "family": "gaussian", "reference": backend == "cpu"},
        **{"backend": backend, "dataset": {"name": "nci-60"}, "code": code, "status": "ok", "result": result},
        "time_s": {"cold": 3.0, "warm": list(warm), "levels": [[t / 2, t / 4] for t in warm]},
        "environment": {"git_commit": commit, "cpu": "Some CPU"} | device | when,
    }


@pytest.fixture
def source(tmp_path, publish):
    """``source(records)``: a device with these records, published."""

    def make(records, verified=True):
        publish(records, tmp_path / "h200", {} if verified else dict.fromkeys(each["setting"] for each in records))
        keys = [(content["dataset"]["name"], content["setting"]) for content in records]
        return Source(str(tmp_path / "h200"), "cuda", {}, runs=keys)

    return make


def heading_of(source):
    return heading(source, {"runs": catalogue.READERS["runs"](source)})


def test_a_heading_names_device_days_and_commits(source):
    later = record("cupc-e", code=code_version(get_method("cupc-e"), "cuda"), at="2026-11-21")
    found = heading_of(source([record(at="2026-11-20"), later]))
    assert str(found) == "GPU: NVIDIA H200, recorded 2026-11-20 to 2026-11-21, commit 0123456789"
    assert (found.name, found.gpu) == ("h200", True)


def test_a_heading_speaks_of_the_kernels_and_not_of_the_references_beside_them(source):
    reference = record("stable-serial", "cpu", code=code_version(get_method("stable-serial"), "cpu"), commit="f" * 16)
    assert str(heading_of(source([reference, record()]))) == "GPU: NVIDIA H200, recorded, commit 0123456789"


def test_this_machine_is_not_recorded_and_never_stale(here):
    found = heading_of(here([record(backend="host", code="0" * 64)]))
    assert str(found) == "CPU cores: Some CPU, 2 threads, this machine, commit 0123456789"
    assert not found.gpu


def test_a_record_of_other_code_is_stale_and_marked(source):
    recorded = source([record(), record("cupc-e", code="0" * 64), record("no-such-method")])
    found = {run.setting: run for run in catalogue.READERS["runs"](recorded)}
    stale = {"cupc-s": False, "cupc-e": True, "no-such-method": True}
    assert {name: run.stale for name, run in found.items()} == stale
    assert cells.time_cell(found["cupc-s"]) == "1.50 (1.20–1.80)"
    assert cells.time_cell(found["cupc-e"]) == "1.50 (1.20–1.80) ‡"
    assert cells.STALE_NOTE in cells.remarks(found.values())
    assert cells.STALE_NOTE not in cells.remarks([found["cupc-s"]])
    assert heading_of(recorded).text.endswith("stale ‡: 2 of 3 runs")
    assert found["cupc-e"].counts  # marked, not dropped


def test_a_recorded_run_without_verification_enters_no_mean(source):
    (run,) = catalogue.READERS["runs"](source([record()], verified=False))
    assert (run.verification, run.counts) == ("not-verified", False)
    assert cells.time_cell(run).endswith(" ?")
    assert any(note.startswith("? ") for note in cells.remarks([run]))


def test_a_published_run_is_alone_only_where_no_other_run_of_the_data_set_finished(source):
    """Three data sets: one run, one run beside another that did not finish, and two runs that finished."""
    other = record("cupc-e") | {"status": "timeout", "result": None, "time_s": {"warm": [], "levels": []}}
    records = [record() | {"dataset": {"name": name}} for name in ("one", "failed", "two")]
    records += [other | {"dataset": {"name": "failed"}}, record("cupc-e") | {"dataset": {"name": "two"}}]
    found = {(run.dataset, run.setting): run for run in catalogue.READERS["runs"](source(records))}
    statuses = {dataset: found[dataset, "cupc-s"].verification for dataset in ("one", "failed", "two")}
    assert statuses == {"one": "alone", "failed": "alone", "two": "equal"}
    alone = found["one", "cupc-s"]
    assert (alone.counts, alone.differing_edges) == (True, "")
    assert cells.time_cell(alone).endswith(" °")
    assert any(note.startswith("° ") for note in cells.remarks([alone]))


def test_a_known_difference_of_another_program_has_a_reason_and_no_other_has(tmp_path, publish):
    """cuPC's program with 1618 edges on MCC is explained; with other edges, on other data or by ours it is not."""
    runs_of = [("mcc", "cupc-authors", 1618), ("mcc", "cupc-s", 1618), ("mcc", "gpucsl", 1618)]
    runs_of.append(("nci-60", "cupc-authors", 1618))
    records = []
    for dataset, method, edges in runs_of:
        content = record(method)
        records.append(content | {"dataset": {"name": dataset}, "result": content["result"] | {"edges": edges}})
    publish(records, tmp_path, dict.fromkeys((method for _, method, _ in runs_of), "unexplained"))
    keys = [(dataset, method) for dataset, method, _ in runs_of]
    found = catalogue.READERS["runs"](Source(str(tmp_path), "cuda", {}, runs=keys))
    assert [run.verification for run in found] == ["explained", *["unexplained"] * 3]
    assert cells.time_cell(found[0]).startswith("1.50 (1.20–1.80) ≠")
    (note,) = (note for note in cells.remarks(found) if note.startswith("≠ "))
    assert note.startswith("≠ mcc: cuPC-S, authors' program: the skeleton differs")
    assert note.endswith("(docs/numerics.md).")
    assert not found[0].counts  # its time is of another skeleton


def test_the_worst_mark_is_shown():
    words = ("random", "unexplained", "equal")
    verified = [types.SimpleNamespace(median=1.0, verification=word, stale=word == "equal") for word in words]
    assert cells.mark(*verified) == " ✗ ‡"
    assert cells.mark(*verified, None) == ""  # no number, no mark


def test_cells_of_single_tests_are_compared_one_by_one(monkeypatch):
    of_method = {"method": "cupc-s", "backend": "cuda", "status": "ok"}
    content = [of_method | {"code": CURRENT}, of_method | {"code": "0" * 64}, of_method]
    monkeypatch.setattr(runs, "load_tests", lambda path: {"cells": json.loads(json.dumps(content))})
    assert [cell["stale"] for cell in runs.load_single_tests("x", recorded=True)["cells"]] == [False, True, False]
    assert not any(cell["stale"] for cell in runs.load_single_tests("x")["cells"])


def test_what_was_not_run_is_listed_by_settings():
    source = Source("h200", "cuda", {}, absent=[("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "y")])
    assert absent_note(source) == ["Requested by the config but not run: x, y on a, b; y on c."]
    assert absent_note(Source("h200", "cuda", {})) == []


def test_a_recorded_skeleton_may_be_missing(source):
    (run,) = catalogue.READERS["runs"](source([record()]))
    assert run.skeleton is None
