"""Trees of records merged: what is alike is one, what differs is named, and nothing is written by halves."""

import csv
import dataclasses
import json
import os
import re

import numpy as np
import pytest
from gpupc_impl.measurement.merge import MergeError, merge
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import GaussianProblem, cli, skeleton
from gpupc_impl.core.files import save_json, write_csv
from gpupc_impl.measurement import merge as module
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.record import Limits, Peaks, Record, Result, Times

DATA = np.random.default_rng(0).normal(size=(30, 4))
PROBLEM = GaussianProblem.from_data(DATA, alpha=0.1)
FOUND = skeleton(DATA, 0.1, method="stable-serial")
RECORD = Record(
    setting="s",
    method="stable-serial",
    family="gaussian",
    reference=True,
    canonical=True,
    backend="cpu",
    params={},
    separating_sets="canonical",
    dataset="d",
    problem=PROBLEM.facts(),
    status="ok",
    why=None,
    limits=Limits(),
    time_s=Times(1.0, 0.5, [0.3], [[0.3]]),
    result=Result(FOUND.n_edges, 1, "complete", [1], [6], 0, 0, FOUND.sha256, FOUND.sepsets.sha256),
    peak_bytes=Peaks(process=1000),
    code="c" * 64,
    environment=environment(1, 1) | {"measured_at": "2026-01-01T00:00:00+00:00"},
)


def on(day, seconds=0.3, **changes):
    """The record as measured on a day of January."""
    there = RECORD.environment | {"measured_at": f"2026-01-{day:02}T00:00:00+00:00"}
    return dataclasses.replace(RECORD, time_s=Times(warm=[seconds]), environment=there, **changes)


def put(tree, record=RECORD, skeleton=False):
    """Add a record to a tree, with what verification says of it; returns the tree."""
    path = tree / "records" / record.dataset / f"{record.setting}.json"
    record.save(path)
    if skeleton:
        FOUND.save(path.with_suffix(".npz"))
    save_json({"name": record.dataset}, tree / "problems" / f"{record.dataset}.json")
    table = tree / "verification.csv"
    rows = list(csv.DictReader(table.open())) if table.is_file() else []
    detail = f"{record.time_s.warm[0]}"
    write_csv(table, [*rows, {"dataset": record.dataset, "setting": record.setting, "detail": detail}])
    (tree / "config.yaml").write_text("alpha: 0.05\n")
    return tree


def contents(tree):
    """Files by name, of JSON what it says."""
    found = {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}
    return {name: json.loads(p.read_text()) if p.suffix == ".json" else p.read_bytes() for name, p in found.items()}


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def refused(tmp_path):
    """``refused(trees, message)``: merging them fails with that in the message, and leaves nothing behind."""

    def check(trees, *messages, prefer=None):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(MergeError) as error:
            merge(trees, tmp_path / "into", prefer)
        for message in messages:
            assert re.search(message, str(error.value)), error.value
        assert sorted(tmp_path.rglob("*")) == before

    return check


def test_what_is_alike_is_one_and_the_rest_is_united(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    put(put(one, on(1)), on(2, setting="only-a"))
    put(put(two, on(3, dataset="e")), on(1), skeleton=True)
    (one / "records.csv").write_text("")
    found = merge([one, two], tmp_path / "into")
    assert (found.records, found.shared, found.settled, found.left) == (3, 1, [], [f"{one}: records.csv"])
    merged = contents(tmp_path / "into")
    assert {name for name in merged if name.startswith("records/")} == {
        "records/d/s.json",
        "records/d/s.npz",  # of the tree that kept it
        "records/d/only-a.json",
        "records/e/s.json",
    }
    ours = rows(tmp_path / "into/verification.csv")
    assert [(row["dataset"], row["setting"]) for row in ours] == [("d", "s"), ("d", "only-a"), ("e", "s")]
    assert merged["config.yaml"] == b"alpha: 0.05\n"


@settings(max_examples=settings.default.max_examples // 5)
@given(places=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("de"), st.integers(1, 3)), min_size=1))
def test_any_order_and_any_grouping_give_the_same_records(places, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    trees = [folder / name for name in "abc"]
    for place, dataset, day in {*places} | {(place, "d", 1) for place in range(3)}:
        put(trees[place], on(day, dataset=dataset, setting=f"s{day}"))
    merge(trees, folder / "all")
    merge(trees[::-1], folder / "reversed")
    merge([trees[1], trees[2]], folder / "two")
    merge([folder / "two", trees[0]], folder / "grouped")
    whole = contents(folder / "all")
    table = whole.pop("verification.csv").splitlines()
    for other in (contents(folder / "reversed"), contents(folder / "grouped")):
        assert sorted(other.pop("verification.csv").splitlines()) == sorted(table)
        assert other == whole


def test_a_conflict_is_named_and_a_rule_settles_it(tmp_path, refused):
    one, two = put(tmp_path / "a", on(1, 0.25), skeleton=True), put(tmp_path / "b", on(2, 0.5))
    refused(
        [one, two],
        rf"conflict: records/d/s\.json: time_s\.warm is \[0\.25\] in {one} and \[0\.5\] in {two}; ",
        r"; environment\.measured_at is ",
        r"--prefer newest or first settles",
    )
    for prefer, trees, taken in (("first", (one, two), one), ("first", (two, one), two), ("newest", (one, two), two)):
        into = tmp_path / f"{prefer}-{taken.name}"
        found = merge(trees, into, prefer)
        assert len(found.settled) == 1
        assert found.settled[0].endswith(f"; taken: {taken}")
        assert contents(into) == contents(taken)  # the row of the table and the skeleton go with the record


def test_tables_configs_and_problems_may_be_in_conflict(tmp_path, refused):
    one, two = put(tmp_path / "a"), put(tmp_path / "b")
    write_csv(two / "verification.csv", [{"dataset": "d", "setting": "s", "detail": "by digests"}])
    refused([one, two], rf'verification\.csv, row d, s: detail is "0\.3" in {one} and "by digests" in {two}')
    merge([two, one], tmp_path / "first", "first")
    assert rows(tmp_path / "first/verification.csv")[0]["detail"] == "by digests"
    (two / "config.yaml").write_text("alpha: 0.01\nsettings: {}\n")
    save_json({"name": "d", "n_samples": 9}, two / "problems/d.json")
    refused(
        [one, two],
        r"config\.yaml: alpha is 0\.05 in .* and 0\.01 in .*; settings is absent in .* and \{\} in",
        r"problems/d\.json: n_samples is absent",
    )


def test_one_name_for_two_problems_is_refused_whatever_is_preferred(tmp_path, refused):
    other = GaussianProblem.from_data(DATA, alpha=0.2).facts()
    trees = [put(tmp_path / "a"), put(tmp_path / "b", on(2, setting="t", problem=other))]
    for prefer in (None, *module.PREFERENCES):
        refused(trees, r"^d: problem\.fingerprint is .*s\.json and .*t\.json: one name for two problems", prefer=prefer)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("records/d/s.json", "{", r"s\.json is damaged: s\.json is not JSON"),
        ("records/d/s.json", "{}", r"s\.json is damaged: s\.json is not a valid record: at \$: 'schema_version'"),
        ("records/d/other.json", None, r"other\.json is damaged: it is the record of s on d"),
        ("records/d/s.npz", "no archive", r"s\.json is damaged: its skeleton s\.npz cannot be read"),
        ("problems/d.json", "[", r"d\.json is damaged"),
        ("config.yaml", "a: [", r"config\.yaml is damaged: it is no YAML"),
        ("verification.csv", "dataset,setting\na,b,c\n", r"verification\.csv is damaged: it is no CSV: a row has not"),
        ("sharing.csv", "dataset,rows\nd,1\n", r"sharing\.csv is damaged: it has no column setting"),
        ("tests/t.json", "{}", r"t\.json is damaged"),
    ],
)
def test_what_is_damaged_is_named_and_refused(tmp_path, refused, name, damage, message):
    one, two = put(tmp_path / "a"), put(tmp_path / "b")
    (two / name).parent.mkdir(exist_ok=True)
    (two / name).write_text((two / "records/d/s.json").read_text() if damage is None else damage)
    refused([one, two, tmp_path / "c"], message, r"c is no folder", prefer="first")


def test_another_skeleton_beside_a_record_is_refused(tmp_path, refused):
    tree = put(tmp_path / "a")
    skeleton(DATA, 0.9, method="stable-serial").save(tree / "records/d/s.npz")
    refused([tree], r"its skeleton s\.npz is another's")


def test_nothing_is_left_of_a_merge_that_fails_in_the_middle(tmp_path, monkeypatch):
    one = put(tmp_path / "a")
    monkeypatch.setattr(module, "write_csv", lambda *_: (_ for _ in ()).throw(OSError("no space left on device")))
    with pytest.raises(OSError, match="no space"):
        merge([one], tmp_path / "into")
    assert os.listdir(tmp_path) == ["a"]


def test_the_command(tmp_path, capsys):
    one, two = put(tmp_path / "a", on(1)), put(tmp_path / "b", on(2))
    command = ["records", "merge", str(one), str(two), "--into", str(tmp_path / "into")]
    assert cli.main(command) == 2
    assert capsys.readouterr().err.startswith("error: conflict: records/d/s.json: environment.measured_at is")
    assert cli.main([*command, "--prefer", "newest"]) == 0
    assert "1 records, 0 of them in several trees alike" in capsys.readouterr().out
    assert cli.main(command) == 2
    assert "is there and not empty; name a new folder" in capsys.readouterr().err
