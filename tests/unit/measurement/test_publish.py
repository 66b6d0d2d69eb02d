"""Runs published and checked: what is damaged is refused, and nothing is written by halves."""

import dataclasses
import json
import os
import re
import subprocess
import zipfile

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, cli, skeleton
from gpupc_impl.core.files import read_csv, save_json, write_csv
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement import publish as module
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.publish import InvalidFolder, check, differing_answers, own_folder, publish, unknown_origins
from gpupc_impl.measurement.published import PublishedRuns, open_published
from gpupc_impl.measurement.record import InvalidRecord, Times
from tests.graphs import make_skeleton
from tests.records import record_of
from workflow.pages import devices

DATA = np.random.default_rng(0).normal(size=(30, 4))
PROBLEM = GaussianProblem.from_data(DATA, alpha=0.1)
LEVELS = {"tests_per_level": (6,), "edges_per_level": (1,), "seconds_per_level": (0.3,), "levels_run": 1}
FOUND = make_skeleton(4, [(2, 3)], names=PROBLEM.names, **LEVELS)
DATE = {"measured_at": "2026-01-01T00:00:00+00:00"}
RECORD = record_of(PROBLEM, FOUND, method="stable-serial", reference=True, environment=environment(1, 1) | DATE)


def on(day, seconds=0.3, **changes):
    """The record as measured on a day of January."""
    there = RECORD.environment | {"measured_at": f"2026-01-{day:02}T00:00:00+00:00"}
    return dataclasses.replace(RECORD, time_s=Times(warm=[seconds]), environment=there, **changes)


def put(tree, record=RECORD, skeleton=False, experiment="gaussian"):
    """Add a record to the results of a workflow, with what verification says of it; returns the tree."""
    path = tree / "records" / record.dataset / f"{record.setting}.json"
    record.save(path)
    if skeleton:
        FOUND.save(path.with_suffix(".npz"))
    facts = {"name": record.dataset, **record.problem, "true_edges": [[0, 1]], "problem": record.problem}
    save_json(facts, tree / "problems" / f"{record.dataset}.json")
    table = tree / "verification" / f"{experiment}.csv"
    lines = read_csv(table) if table.is_file() else []
    detail = f"{record.time_s.warm and record.time_s.warm[0]}"
    row = {"dataset": record.dataset, "setting": record.setting, "status": "equal", "detail": detail}
    write_csv(table, [*lines, row])
    (tree / "config.yaml").write_text("alpha: 0.05\n")
    asked = json.loads((tree / "experiments.json").read_text()) if (tree / "experiments.json").is_file() else {}
    part = asked.setdefault(experiment, {"datasets": [], "settings": []})
    part["datasets"].append(record.dataset)
    part["settings"].append(record.setting)
    save_json(asked, tree / "experiments.json")
    return tree


def published(tree, into):
    publish(tree, into)
    return into


def contents(tree):
    """The files by name, and what they contain."""
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


@pytest.fixture
def refused(tmp_path):
    """``refused(tree, message)``: publishing it fails with that in the message, and leaves nothing behind."""

    def expect(tree, message):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidFolder) as error:
            publish(tree, tmp_path / "into")
        assert re.search(message, str(error.value)), error.value
        assert sorted(tmp_path.rglob("*")) == before

    return expect


def test_folders_are_united_and_any_order_gives_the_same_bytes(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    put(put(one, on(1), skeleton=True), on(2, setting="only-a"))
    put(put(two, on(3, dataset="e"), experiment="fig"), on(1), skeleton=True)
    publish(one, tmp_path / "into")
    found = publish(published(two, tmp_path / "c"), tmp_path / "into")
    assert (len(found.runs), found.left_out) == (3, [])
    runs = PublishedRuns(tmp_path / "into")
    assert runs.experiments == {("d", "only-a"): "gaussian", ("d", "s"): "gaussian", ("e", "s"): "fig"}
    assert runs.records() == [on(2, setting="only-a"), on(1), on(3, dataset="e")]
    assert Skeleton.load(runs.skeleton_file("d", "s")).sha256 == FOUND.sha256
    assert not runs.skeleton_file("e", "s").is_file()
    assert runs.verification("d", "s") == {"status": "equal", "detail": "0.3"}
    assert (tmp_path / "into/config.yaml").read_text() == "alpha: 0.05\n"
    assert check(tmp_path / "into") == []
    for tree in (two, one):
        publish(tree, tmp_path / "reversed")
    assert contents(tmp_path / "reversed") == contents(tmp_path / "into")


BOMB = "\n".join(["a0: &a0 [lol]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10))])
"""YAML whose aliases stand for gigabytes."""


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("records/d/s.json", "{", r"s\.json is damaged: s\.json is not JSON"),
        ("records/d/s.json", "{}", r"s\.json is damaged: s\.json is not a valid record: at \$: 'schema_version'"),
        ("records/d/s.npz", "no archive", r"s\.json is damaged: its skeleton s\.npz cannot be read"),
        ("problems/d.json", "[", r"d\.json is damaged"),
        ("problems/d.json", '{"n_samples": 9, "problem": null}', r"d\.json is damaged: its data set is None"),
        ("config.yaml", "a: [", r"config\.yaml is damaged: ParserError: while"),
        ("verification/gaussian.csv", "dataset,setting\na,b,c\n", r"gaussian\.csv is damaged: it is no CSV: a row has"),
        ("config.yaml", BOMB, r"config\.yaml is damaged: YAMLError: with its aliases expanded it is longer"),
        ("experiments.json", "[]", r"experiments\.json is damaged"),
        *(
            ("experiments.json", json.dumps({name: {"datasets": ["d"], "settings": ["s"]}}), "is no name of an exper")
            for name in ("../../planted", "/planted", "", "a" * 300, "a\0", "a\n")
        ),
        ("verification/gaussian.csv", 'dataset,setting\n"d"x,s\n', r"gaussian\.csv is damaged: it is no CSV"),
        ("timelines/d.csv", 'block,ms\n"=HYPERLINK(""http://x"")",1\n', r"a spreadsheet takes '=HYPERLINK"),
        ("tests/t.json", "{}", r"t\.json is damaged"),
    ],
)
def test_what_is_damaged_is_named_and_refused(tmp_path, refused, name, damage, message):
    tree = put(tmp_path / "a")
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(damage)
    refused(tree, message)


def test_files_of_other_runs_are_refused(tmp_path, refused):
    one, two = put(tmp_path / "a"), put(put(tmp_path / "b"), on(1, setting="t"))
    (two / "records/d/t.json").write_text((two / "records/d/s.json").read_text())
    refused(two, r"t\.json is damaged: it is the record of s on d")
    skeleton(DATA, 0.9, method="stable-serial").save(one / "records/d/s.npz")
    refused(one, r"its skeleton s\.npz is another's")
    (one / "experiments.json").unlink()
    refused(one, r"experiments\.json is damaged: it is missing; run the workflow again")


def test_publishing_replaces_runs_and_leaves_the_others(tmp_path):
    into = published(put(put(tmp_path / "a", on(1)), on(1, setting="t")), tmp_path / "into")
    save_json([], into / "distributed/two-gpus.json")
    runs = open_published(into)
    write_csv(put(tmp_path / "b", on(2, 0.5)) / "sharing.csv", [{"dataset": "d", "setting": "s", "rows": "2"}])
    assert len(publish(tmp_path / "b", into).runs) == 2
    assert runs.record("d", "s") == on(1)
    runs = open_published(into)
    assert runs.records() == [on(2, 0.5), on(1, setting="t")]
    assert runs.verification("d", "s")["detail"] == "0.5"
    assert (into / "distributed/two-gpus.json").is_file()
    assert len(json.loads((into / "machines.json").read_text())) == 2
    before = contents(into)
    publish(tmp_path / "b", into)
    assert contents(into) == before
    assert check(into) == []


@pytest.mark.parametrize(
    ("named", "fault"), [("t", "called equal to t, and their digests differ"), ("u", "compared with u, which has no")]
)
def test_an_answer_is_equal_to_one_that_is_there(tmp_path, named, fault):
    other = dataclasses.replace(RECORD.result, skeleton_sha256="0" * 64)
    tree = put(put(tmp_path / "a", on(1)), on(1, setting="t", result=other))
    first, second = read_csv(tree / "verification/gaussian.csv")
    write_csv(tree / "verification/gaussian.csv", [first | {"compared_with": named}, second | {"compared_with": ""}])
    (found,) = check(published(tree, tmp_path / "into"))
    assert found.startswith(f"s on d is {fault}")


def test_a_skipped_run_gives_way_to_one_that_was_measured(tmp_path):
    skipped = {"status": "skipped", "why": "the config measures s on e only", "result": None}
    publish(put(tmp_path / "a"), tmp_path / "published")
    publish(put(tmp_path / "b", dataclasses.replace(on(2, **skipped), time_s=Times())), tmp_path / "published")
    assert PublishedRuns(tmp_path / "published").record("d", "s") == RECORD


def test_a_run_that_moves_to_another_experiment_stands_once(tmp_path):
    into = published(put(tmp_path / "a"), tmp_path / "into")
    publish(put(tmp_path / "b", experiment="fig"), into)
    assert PublishedRuns(into).experiments == {("d", "s"): "fig"}
    assert [path.name for path in into.glob("records/*")] == ["fig.jsonl"]


def test_what_is_not_asked_for_or_verified_is_named(tmp_path):
    tree = put(put(tmp_path / "a"), on(1, setting="t"))
    save_json({"gaussian": {"datasets": ["d"], "settings": ["s"]}}, tree / "experiments.json")
    os.utime(tree / "verification/gaussian.csv", (0, 0))  # older than the records
    found = publish(tree, tmp_path / "into")
    assert found.left_out == [
        f"{tree}: 1 records that the config does not ask for",
        f"{tree}: verification of 1 records, which is missing or older",
    ]
    runs = PublishedRuns(tmp_path / "into")
    assert list(runs) == [("d", "s")]
    assert runs.verification("d", "s") is None


def test_skeletons_are_kept_where_the_truth_is_known_and_they_are_small(tmp_path, monkeypatch):
    tree = put(tmp_path / "a", skeleton=True)
    assert PublishedRuns(published(tree, tmp_path / "one")).skeleton_file("d", "s").is_file()
    monkeypatch.setattr("gpupc_impl.measurement.publish.KEPT_SKELETON_BYTES", 10)
    assert not PublishedRuns(published(tree, tmp_path / "two")).skeleton_file("d", "s").is_file()
    monkeypatch.undo()
    save_json({"name": "d", "problem": None}, tree / "problems/d.json")
    assert not PublishedRuns(published(tree, tmp_path / "three")).skeleton_file("d", "s").is_file()


def test_names_of_nodes_are_not_published(tmp_path):
    record = on(1)
    told = dataclasses.replace(record, environment=record.environment | {"node": "gpu07"})
    into = published(put(tmp_path / "a", told), tmp_path / "into")
    assert PublishedRuns(into).records() == [record]
    machines = json.loads((into / "machines.json").read_text())
    save_json({name: {**facts, "node": "gpu07"} for name, facts in machines.items()}, into / "machines.json")
    assert "machines.json names the host 'gpu07', which publishing leaves out" in check(into)


def test_another_folder_is_not_published_into(tmp_path):
    (tmp_path / "into/records").mkdir(parents=True)
    with pytest.raises(InvalidFolder, match="into is no folder of published runs"):
        publish(put(tmp_path / "a"), tmp_path / "into")


@pytest.mark.parametrize("existing", [False, True])
def test_nothing_changes_where_publishing_fails_in_the_middle(tmp_path, monkeypatch, existing):
    one, into = put(tmp_path / "a"), tmp_path / "into"
    if existing:
        published(put(tmp_path / "b", on(1)), into)
    write_csv(one / "sharing.csv", [{"dataset": "d", "setting": "s", "rows": 2}])
    before = contents(tmp_path)
    monkeypatch.setattr(module, "write_csv", lambda *_: (_ for _ in ()).throw(OSError("no space left on device")))
    with pytest.raises(OSError, match="no space"):
        publish(one, into)
    assert contents(tmp_path) == before
    assert into.exists() == existing


def line_of(folder, **changes):
    """The only line of a folder, changed."""
    return json.dumps(json.loads((folder / "records/gaussian.jsonl").read_text()) | changes) + "\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder, line: line + line, r"line 2: the run of s on d is in records/gaussian\.jsonl already"),
        (lambda folder, line: line_of(folder, machine="0"), r"line 1: machines\.json has no machine '0'"),
        (lambda folder, line: line_of(folder, dataset="x"), r"line 1: datasets\.json has no data set 'x'"),
        (lambda folder, line: line_of(folder), r"gaussian\.jsonl is not what publishing writes: sorted, compact"),
        (
            lambda folder, line: line_of(folder, status="fine"),
            r"the run of s on d is not a valid record: at \$\.status",
        ),
        (lambda folder, line: line_of(folder, extra=1), r"line 1 is no run: .*'extra'"),
        (lambda folder, line: line.replace('"why":null', '"why":"/home/me"'), r"gaussian\.jsonl tells a home"),
        (  # which a search that begins again at each letter would take hours to find
            lambda folder, line: line.replace('"why":null', f'"why":"{"a" * 10**6} me@x.org"'),
            r"gaussian\.jsonl tells an e-mail",
        ),
        (lambda folder, line: line.replace('"why":null', '"why":"on host-7a"'), r"jsonl tells this machine's name"),
        (lambda folder, line: line + "\n", r"gaussian\.jsonl, line 2 is (no run|not)"),
        (lambda folder, line: line_of(folder, result=None), r"the run of s on d is ok, and has no result or no prob"),
        *(
            (lambda folder, line, number=number: line.replace('"warm":[0.3]', f'"warm":[{number}]'), r"time_s\.warm")
            for number in ("NaN", "Infinity", "1e999", "1e300", "-1", "0", "1" + "0" * 400, '"<b>"')
        ),
        (lambda folder, line: line.replace('"warm":[0.3]', '"warm":[]'), r"at \$\.time_s\.warm: \[\] should be non-e"),
        (lambda folder, line: line.replace('"edges":1', '"edges":1' + "0" * 30), r"at \$\.result\.edges: 1000"),
        (lambda folder, line: "{", r"records/gaussian\.jsonl, line 1 is not JSON"),
        (lambda folder, line: "[]\n", r"records/gaussian\.jsonl, line 1 is no run: it names no data set"),
        (lambda folder, line: "", r"holds no runs|machines\.json is not what publishing writes"),
    ],
)
def test_a_damaged_folder_is_found(tmp_path, monkeypatch, damage, message):
    monkeypatch.setattr("platform.node", lambda: "host-7a")
    folder = published(put(tmp_path / "a"), tmp_path / "into")
    path = folder / "records/gaussian.jsonl"
    path.write_text(damage(folder, path.read_text()))
    assert any(re.search(message, fault) for fault in check(folder)), check(folder)


@pytest.mark.parametrize(("old", "new"), [(None, b""), (b"PK\x03\x04", b"PK\x03\x05"), (b"d/s.npz", b"d/t.npz")])
def test_damaged_archives_of_skeletons_are_found(tmp_path, old, new):
    folder = published(put(tmp_path / "a", skeleton=True), tmp_path / "into")
    assert not check(folder)
    path = folder / "skeletons/gaussian.zip"
    content = path.read_bytes()
    path.write_bytes(content.replace(old, new, 1) if old else content[:-30])
    assert any("is damaged" in fault or "holds no run" in fault for fault in check(folder)), check(folder)


@pytest.mark.parametrize("damage", ["another", "no skeleton", "compressed"])
def test_an_archive_of_other_skeletons_or_of_gigabytes_is_found(tmp_path, refused, damage):
    """A small archive may unpack to any size, and tables count the errors of a skeleton that is none of the record."""
    folder = published(put(tmp_path / "a", skeleton=True), tmp_path / "published")
    other = tmp_path / "other.npz"
    skeleton(DATA, 0.9, method="stable-serial").save(other)
    content = {"another": other.read_bytes(), "no skeleton": b"<script>", "compressed": bytes(1 << 24)}[damage]
    with zipfile.ZipFile(folder / "skeletons/gaussian.zip", "w") as archive:
        kind = zipfile.ZIP_DEFLATED if damage == "compressed" else zipfile.ZIP_STORED
        archive.writestr("d/s.npz", content, compress_type=kind)
    message = {"another": "another's: the digests differ", "no skeleton": "cannot be read", "compressed": "compressed"}
    refused(folder, message[damage])
    assert any(message[damage] in fault for fault in check(folder))


@pytest.mark.parametrize("name", ["../../planted", "/planted", "", "a\0", "a\n::error::", "<b>", "=1", "-x", "a" * 300])
@pytest.mark.parametrize("key", ["dataset", "setting"])
def test_no_name_of_a_run_leads_out_of_a_folder(tmp_path, refused, name, key):
    """Skeletons are read, and pages written, under the names of a data set and a setting."""
    name = str(tmp_path / "outside") if name == "/planted" else name
    (tmp_path / "outside").mkdir()
    FOUND.save(tmp_path / "outside/s.npz")
    folder = published(put(tmp_path / "a"), tmp_path / "published")
    (folder / "records/gaussian.jsonl").write_text(line_of(folder, **{key: name}))
    facts = json.loads((folder / "datasets.json").read_text())
    (folder / "datasets.json").write_text(json.dumps({str(name): facts["d"]} if key == "dataset" else facts))
    refused(folder, "is no name of a data set or setting")
    with pytest.raises(InvalidRecord, match="is no name of a data set or setting"):
        devices.rows([folder])


@pytest.mark.parametrize("name", ["config.yaml", "notes.txt", "timelines", "records/gaussian.jsonl", "data/set"])
@pytest.mark.parametrize("of_workflow", [False, True])
def test_no_link_brings_files_of_the_reader_into_a_published_folder(tmp_path, refused, name, of_workflow):
    folder = put(tmp_path / "a")
    if not of_workflow:
        folder = published(folder, tmp_path / "published")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/credentials.csv").write_text("user,password\nme,secret\n")
    (tmp_path / "own.yaml").write_text("password: secret\n")
    target = tmp_path / ("own" if name == "timelines" else "own.yaml")
    (folder / name).parent.mkdir(exist_ok=True)
    if name.startswith("records") and not of_workflow:
        target = (folder / name).rename(tmp_path / "own.jsonl")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    if not of_workflow:
        assert any("is a link" in fault for fault in check(folder))
    if not of_workflow or name in ("config.yaml", "timelines"):
        refused(folder, "link")
    else:  # it is no part of what is published
        publish(folder, tmp_path / "into")
        assert b"secret" not in b"".join(contents(tmp_path / "into").values())


@pytest.mark.parametrize("edges", ["abc", [[0]], [[0, -1]], [[0, 1e999]], [[0, "1"]]])
def test_facts_that_no_data_set_has_are_found(tmp_path, edges):
    folder = published(put(tmp_path / "a"), tmp_path / "into")
    facts = json.loads((folder / "datasets.json").read_text())
    (folder / "datasets.json").write_text(json.dumps({"d": facts["d"] | {"true_edges": edges}}))
    assert any("data set 'd' is not a valid record: at $.true_edges" in fault for fault in check(folder))


def test_unused_entries_and_files_are_found(tmp_path):
    folder = published(put(tmp_path / "a", skeleton=True), tmp_path / "into")
    machines = json.loads((folder / "machines.json").read_text())
    (folder / "machines.json").write_text(json.dumps(machines | {"f" * 12: {}}))
    with zipfile.ZipFile(folder / "skeletons/fig.zip", "w"):
        pass
    faults = check(folder)
    assert any(fault.startswith("machines.json is not what publishing writes") for fault in faults)
    assert "skeletons/fig.zip holds no run" in faults


def made_by(record, commit, dirty=False):
    return dataclasses.replace(record, environment=record.environment | {"git_commit": commit, "git_dirty": dirty})


def test_records_whose_code_nobody_can_look_up_are_named(tmp_path):
    tree = put(put(tmp_path / "a", made_by(on(1), "1" * 40)), made_by(on(1, setting="t"), "2" * 40, dirty=True))
    found = unknown_origins(published(put(tree, made_by(on(1, setting="u"), None, None)), tmp_path / "into"))
    assert found == [
        "t on d: files differed from commit 2222222222; commit them, and measure again",
        "u on d: no commit is named; use a clone, and measure again",
    ]


def test_a_commit_that_is_not_in_the_history_is_named(tmp_path):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    (tmp_path / "gpupc_impl").mkdir()
    (tmp_path / "gpupc_impl/__init__.py").touch()
    git("add", ".")
    git("commit", "-m", "first")
    tree = put(put(tmp_path / "a", made_by(on(1), git("rev-parse", "HEAD"))), made_by(on(1, setting="t"), "1" * 40))
    found = unknown_origins(published(tree, tmp_path / "into"))
    assert found == [f"t on d: commit {'1' * 40} is not in the history; use a commit of the project, and measure again"]


def test_folders_have_the_same_answers_on_the_same_problem(tmp_path):
    """In the closed division; what differs from the reference's is in the open one, where that is no fault."""
    other = dataclasses.replace(RECORD.result, skeleton_sha256="0" * 64)
    one, two = (published(put(put(tmp_path / n, on(1)), on(1, setting="t")), tmp_path / f"{n}-into") for n in "ab")
    assert differing_answers([one, two]) == []
    tree = put(put(tmp_path / "c", on(1)), on(1, setting="t", result=other))
    lines = read_csv(tree / "verification/gaussian.csv")
    write_csv(tree / "verification/gaussian.csv", [lines[0], lines[1] | {"status": "unexplained"}])
    opened = published(tree, tmp_path / "open")
    assert differing_answers([one, opened]) == []
    assert [PublishedRuns(opened).division("d", setting) for setting in "st"] == ["closed", "open"]
    three = published(put(tmp_path / "d", on(1, result=other)), tmp_path / "another")
    assert PublishedRuns(three).division("d", "s") == "alone"
    (fault,) = differing_answers([one, three])
    said = f"s on d in {three}: the skeleton 0000000000 of the same problem is {FOUND.sha256[:10]} of s"
    assert fault.startswith(said)


def test_a_folder_is_named_after_the_device(tmp_path):
    here = RECORD.environment | {"cpu": "A(R) C7 @ 2GHz", "threads": 1}
    tree = put(tmp_path / "results", dataclasses.replace(on(1), environment=here))
    into = own_folder(tree)
    assert into == tree / "recorded/a-c7-1-thread"
    publish(tree, into)
    put(tree, dataclasses.replace(on(2, setting="t"), environment=here))
    assert own_folder(tree) == into  # it goes on
    (tree / "records/d/s.json").unlink()
    with pytest.raises(InvalidFolder, match=r"has the runs of somebody else; name a folder, such as .*a-c7-1-thread-2"):
        own_folder(tree)


def test_the_commands(tmp_path, capsys, monkeypatch):
    first, second = made_by(on(1), "1" * 40), made_by(on(2, setting="t"), "2" * 40)
    one, two, into = put(tmp_path / "a", first), put(tmp_path / "b", second), tmp_path / "into"
    for tree, runs in ((one, 1), (two, 2), (one, 2)):
        assert cli.main(["records", "publish", str(tree), str(into)]) == 0
        assert capsys.readouterr().out == f"written: {into}: {runs} runs\n"
    assert cli.main(["records", "check", str(into)]) == 0
    assert capsys.readouterr().out == f"{into} is complete and valid: runs: 2 closed\n"
    assert cli.main(["records", "check", "--current", str(into)]) == 2
    assert ": s on d, t on d: the code has changed since the measurement; measure again" in capsys.readouterr().err
    current = {"code": code_version(get_method(first.method), first.backend)}
    newer = put(tmp_path / "now", dataclasses.replace(first, **current))
    publish(put(newer, dataclasses.replace(second, **current)), into)
    assert cli.main(["records", "check", "--current", str(into)]) == 0
    monkeypatch.chdir(tmp_path)
    assert cli.main(["records", "check"]) == 2
    assert "recorded has no folder of published runs; name one" in capsys.readouterr().err
