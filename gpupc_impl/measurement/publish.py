"""Writes folders of published runs (`published`) from the results of workflows, and checks them.

The results of a workflow are config.yaml, experiments.json (the runs for which each part of the config asks),
records/DATASET/SETTING.json with the skeletons (.npz) beside them, problems/DATASET.json, verification/NAME.csv, and
the files that are copied whole.
"""

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import statistics
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import no_formula, parse_yaml, read_bytes, shortened, write_csv
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.digest import is_stale
from gpupc_impl.measurement.environment import git
from gpupc_impl.measurement.published import ALONE, CLOSED, DATASETS, MACHINES, NAME, PublishedRuns, RunKey, defaults_of
from gpupc_impl.measurement.record import (
    InvalidRecord,
    Record,
    load_tests,
    machine_name,
    parse,
    schema,
    schema_of_facts,
    schema_of_tests,
    validate,
)

EXPERIMENTS = "experiments.json"
SHARING = "sharing.csv"
COPIED = ("config.yaml", "tests/*.json", "timelines/*.csv", "verification/ci_tests.csv")
"""The files that are copied whole."""

KEPT_SKELETON_BYTES = 1 << 18  # the largest published skeleton of a graph whose truth is known

NAMED_AT_MOST = 3  # the upper bound on the runs that a fault of several runs names


class InvalidFolder(ValueError):
    """Folders cannot be read or published, and nothing was written; the message has one line per reason."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, the part of the config that requests it, the columns that verification adds, and its skeleton's file."""

    experiment: str
    record: Record
    verification: Mapping[str, str] | None = None
    skeleton: bytes | None = None


@dataclasses.dataclass
class Contents:
    """What a folder holds, with rows of sharing.csv by data set, and sentences about what is not copied."""

    runs: dict[RunKey, Run] = dataclasses.field(default_factory=dict)
    datasets: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    sharing: dict[str, list[dict[str, str]]] = dataclasses.field(default_factory=dict)
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    left_out: list[str] = dataclasses.field(default_factory=list)


def publish(results: Path, into: Path) -> Contents:
    """Add the results of a workflow, or a published folder, to a published folder; either all is written or nothing.
    `InvalidFolder` is raised if files cannot be read, or if ``into`` holds other content than published runs.

    A run, a data set or a file of the results replaces the one of the same name, unless the run was skipped; all else
    stays. The names of a cluster's nodes are left out.
    """
    update = into.is_dir() and any(into.iterdir())
    if update and not (into / MACHINES).is_file():
        raise InvalidFolder(f"{into} is no folder of published runs: it has no {MACHINES}; name a new folder")
    new, united = read(results), read(into) if update else Contents()
    for key, run in new.runs.items():
        if run.record.status != "skipped" or key not in united.runs:
            united.runs[key] = dataclasses.replace(run, record=_without_node(run.record))
    for name in ("datasets", "sharing", "files"):
        getattr(united, name).update(getattr(new, name))
    united.left_out = new.left_out
    _write(united, into)
    return united


def own_folder(results: Path) -> Path:
    """Return the folder into which the results of a workflow are published if none is named: ``recorded/DEVICE`` in the
    results, where DEVICE is the GPU, or the processor with its threads, on which most kernels ran. `InvalidFolder` is
    raised if the folder has runs, but none of these results."""
    ran = {key: run.record for key, run in read(results).runs.items() if run.record.status != "skipped"}
    if not ran:
        raise InvalidFolder(f"{results} has no run: all were skipped, or nothing was measured")
    with_kernels = [record for record in ran.values() if record.backend != "cpu"] or ran.values()
    names = (machine_name(each.environment, each.backend, each.environment["threads"]) for each in with_kernels)
    machine = re.sub(r"\((R|TM)\)|@.*(?=,)", "", statistics.mode(names))
    into = results / "recorded" / "-".join(re.findall("[a-z0-9]+", machine.lower()))
    if into.is_dir():
        published = PublishedRuns(into)
        if not any(_without_node(ran[key]) == published.record(*key) for key in ran.keys() & set(published)):
            raise InvalidFolder(f"{into} has the runs of somebody else; name a folder, such as {into}-2")
    return into


def _without_node(record: Record) -> Record:
    environment = {name: fact for name, fact in record.environment.items() if name != "node"}
    return dataclasses.replace(record, environment=environment)


# --- reading ---------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _noted(faults: list[str], path: Path) -> Iterator[None]:
    """Let errors in this context become faults of a file, which are sentences."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # A damaged file can raise nearly anything.
        kind = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
        faults.append(f"{path} is damaged: {kind}{shortened(str(error))}")


def read(folder: Path) -> Contents:
    """Read and validate a published folder or the results of a workflow; raises InvalidFolder with all faults."""
    contents, faults = Contents(), list[str]()
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is no folder")
    of_workflow = any(folder.glob("records/*/*.json"))
    with _noted(faults, folder / EXPERIMENTS if of_workflow else folder):
        (_read_results if of_workflow else _read_published)(folder, contents, faults)
    for path in (path for pattern in (*COPIED, SHARING) for path in sorted(folder.glob(pattern))):
        with _noted(faults, path):
            if path.resolve() != folder.resolve() / path.relative_to(folder):
                raise ValueError("a link leads to it; put the file itself there")
            data = read_bytes(path)
            rows = _rows(data) if path.suffix == ".csv" else []
            if path.suffix == ".json":
                validate(parse(data, path.name), path.name, schema_of_tests())
            elif path.suffix == ".yaml":
                parse_yaml(data.decode())
            if path.name != SHARING:
                contents.files[path.relative_to(folder).as_posix()] = data
                continue
            for row in rows:
                contents.sharing.setdefault(row["dataset"], []).append(row)
    if not (faults or contents.runs or any(name.startswith("tests/") for name in contents.files)):
        faults.append(f"{folder} holds no runs: it has neither records nor tests/TABLE.json")
    if faults:
        raise InvalidFolder("\n".join(faults))
    return contents


def _read_published(folder: Path, contents: Contents, faults: list[str]) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():  # It could bring any file of the reader into a merged folder.
            raise ValueError(f"{shortened(ascii(str(path)))} is a link; put the file itself there")
    published = PublishedRuns(folder)
    for name, facts in published.datasets.items():
        label = f"data set {shortened(ascii(name), 100)}"
        validate(facts, label, schema_of_facts())
        variables = (facts.get("problem") or {}).get("n_variables", math.inf)
        if any(max(edge) >= variables for edge in facts.get("true_edges") or ()):
            raise InvalidRecord(f"{label} has {variables:,} variables, and a true edge with another one")
        contents.datasets[name] = facts
    for key in published:
        with _noted(faults, folder):
            record, skeleton = published.record(*key), published.skeleton_file(*key)
            label = f"the run of {record.setting} on {record.dataset}"
            validate(record.to_json(), label, schema())
            if record.ok and (record.result is None or record.problem is None):
                raise InvalidRecord(f"{label} is ok, and has no result or no problem")
            kept = _skeleton(skeleton, record) if skeleton.is_file() else None
            contents.runs[key] = Run(published.experiments[key], record, published.verification(*key), kept)


def _read_results(folder: Path, contents: Contents, faults: list[str]) -> None:
    if not (folder / EXPERIMENTS).is_file():
        raise ValueError("it is missing; run the workflow again, which writes it")
    asked = parse(read_bytes(folder / EXPERIMENTS), EXPERIMENTS)
    if names := [name for name in asked if not NAME.fullmatch(name)]:
        raise ValueError(f"{EXPERIMENTS}: {shortened(ascii(names[0]), 100)} is no name of an experiment")
    experiments = {(d, s): name for name, its in asked.items() for d in its["datasets"] for s in its["settings"]}
    for path in sorted(folder.glob("problems/*.json")):
        with _noted(faults, path):
            facts = contents.datasets[path.stem] = parse(read_bytes(path), path.name)
            if facts.get("name") != path.stem:
                raise ValueError(f"its data set is {facts.get('name')!r}, and not that of the file's name")
    tables = {}
    for path in sorted(folder.glob("verification/*.csv")):
        with _noted(faults, path):
            rows = {(row["dataset"], row["setting"]): row for row in _rows(read_bytes(path))}
            tables[path.stem] = path.stat().st_mtime_ns, rows
    superfluous = unverified = 0
    for path in sorted(folder.glob("records/*/*.json")):
        key = path.parent.name, path.stem
        if (experiment := experiments.get(key)) is None:
            superfluous += 1
            continue
        verified_at, rows = tables.get(experiment) or tables.get(key[0]) or (0, {})
        row = rows.get(key) if verified_at >= path.stat().st_mtime_ns else None
        unverified += row is None
        with _noted(faults, path):
            record, skeleton = Record.load(path), path.with_suffix(".npz")
            if (record.dataset, record.setting) != key:
                raise InvalidRecord(f"it is the record of {record.setting} on {record.dataset}")
            if key[0] not in contents.datasets:
                raise ValueError(f"there is no problems/{key[0]}.json")
            kept = contents.datasets[key[0]].keys() & {"true_edges", "edges_with_hidden"} and skeleton.is_file()
            kept = kept and skeleton.stat().st_size <= KEPT_SKELETON_BYTES
            repeated = ("dataset", "setting", "method", "backend")
            columns = row and {column: cell for column, cell in row.items() if cell and column not in repeated}
            contents.runs[key] = Run(experiment, record, columns, _skeleton(skeleton, record) if kept else None)
    if superfluous:
        contents.left_out.append(f"{folder}: {superfluous:,} records that the config does not ask for")
    if unverified:
        contents.left_out.append(f"{folder}: verification of {unverified:,} records, which is missing or older")


def _skeleton(path: Path | zipfile.Path, record: Record) -> bytes:
    """Return the file of a record's skeleton; raises ValueError if it is that of another one."""
    try:
        digest = Skeleton.load(path).sha256
    except (ValueError, OSError) as error:
        raise ValueError(f"its skeleton {path.name} cannot be read: {error}") from error
    if record.result is None or digest != record.result.skeleton_sha256:
        raise ValueError(f"its skeleton {path.name} is another's: the digests differ")
    return read_bytes(path) if isinstance(path, Path) else path.read_bytes()


def _rows(data: bytes) -> list[dict[str, str]]:
    """Return the rows of a CSV file; raises ValueError if it is damaged."""
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"it is no CSV: {error}") from error
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("it is no CSV: a row has not as many values as the header has names")
    if formulas := [cell for row in rows for cell in (*row, *row.values()) if no_formula(cell) != cell]:
        raise ValueError(f"a spreadsheet takes {shortened(ascii(formulas[0]), 100)} for a formula")
    return rows


# --- writing ---------------------------------------------------------------------------------------------------------
def _write(contents: Contents, into: Path) -> None:
    """Write a folder, with files of ``into`` that are of no run, beside ``into``, then put it in the place of that."""
    into = into.absolute()
    part, before = (into.with_name(f".{into.name}.{os.getpid()}.{name}") for name in ("part", "before"))
    own = {MACHINES, DATASETS, SHARING, "records", "skeletons", *(name.partition("/")[0] for name in COPIED)}
    try:
        part.mkdir(parents=True)
        for path in into.iterdir() if into.is_dir() else ():
            if path.name not in own:
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, part / path.name)
        for name, data in {**files_of(contents), **contents.files}.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(data)
        if contents.sharing:
            write_csv(part / SHARING, [row for rows in contents.sharing.values() for row in rows])
        if into.exists():
            into.rename(before)
        part.rename(into)
    finally:
        if before.exists() and not into.exists():
            before.rename(into)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)


def files_of(contents: Contents) -> dict[str, bytes]:
    """Return the files that hold the runs and data sets, by name."""
    machines: dict[str, Mapping[str, Any]] = {}
    lines: dict[str, list[str]] = {}
    skeletons: dict[str, dict[str, bytes]] = {}
    for (dataset, setting), run in sorted(contents.runs.items()):
        machine = hashlib.sha256(json.dumps(run.record.environment, sort_keys=True).encode()).hexdigest()[:12]
        machines[machine] = run.record.environment
        lines.setdefault(run.experiment, []).append(_line(run, machine, contents.datasets[dataset]) + "\n")
        if run.skeleton is not None:
            skeletons.setdefault(run.experiment, {})[f"{dataset}/{setting}.npz"] = run.skeleton
    facts = {}
    for name, its in contents.datasets.items():  # without those that the facts of the problem repeat
        repeated = {"name": name, **(its.get("problem") or {})}
        facts[name] = {key: value for key, value in its.items() if key not in repeated or repeated[key] != value}
    return {
        **{MACHINES: _entries(machines), DATASETS: _entries(facts)},
        **{f"records/{experiment}.jsonl": "".join(each).encode() for experiment, each in lines.items()},
        **{f"skeletons/{experiment}.zip": _archive(each) for experiment, each in skeletons.items()},
    }


def _line(run: Run, machine: str, facts: Mapping[str, Any]) -> str:
    content, defaults = run.record.to_json(), defaults_of(facts)
    dataset, setting = content.pop("dataset"), content.pop("setting")
    del content["environment"]
    if content["problem"] == defaults["problem"]:
        del content["problem"]
    if dataset == {"name": run.record.dataset, **defaults["dataset"]}:
        dataset = run.record.dataset
    content["machine"] = machine
    if run.verification is not None:
        content["verification"] = dict(run.verification)
    return _compact({"dataset": dataset, "setting": setting, **content})


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def _entries(content: Mapping[str, Any]) -> bytes:
    """Format a JSON object with one line per key."""
    lines = ",\n".join(f"{json.dumps(key)}:{_compact(value)}" for key, value in sorted(content.items()))
    return f"{{\n{lines}\n}}\n".encode()


def _archive(members: Mapping[str, bytes]) -> bytes:
    """Return an archive whose bytes depend on its members only, which are compressed already."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(members.items()):
            member = zipfile.ZipInfo(name)  # Members are dated 1980-01-01.
            member.create_system, member.external_attr = 3, 0o644 << 16
            archive.writestr(member, content)
    return buffer.getvalue()


# --- checking --------------------------------------------------------------------------------------------------------
def check(folder: Path) -> list[str]:
    """Return the faults of a published folder, one sentence each; there are none if `publish` could have written it.

    The checks: records and tables of single tests fit their schemas, references to machines and data sets resolve, no
    run occurs twice, lines are sorted and compact, no entry is unused, and there are no home folders, no e-mail
    addresses and no names of hosts (of a cluster's node or of this machine).
    """
    try:
        contents = read(folder)
    except InvalidFolder as error:
        return str(error).splitlines()
    expected = files_of(contents)
    present = {p.relative_to(folder).as_posix() for kind in ("records", "skeletons") for p in folder.glob(f"{kind}/*")}
    faults = [f"{name} holds no run" for name in sorted(present - expected.keys())]
    for name, data in expected.items():
        path = folder / name
        if not path.is_file() or read_bytes(path) != data:
            faults.append(f"{name} is not what publishing writes: sorted, compact, and no unused entry")
    private = {
        "a home folder": re.compile(rb"/(home|Users|root)/"),
        # Possessive, and only from where a word begins: otherwise the time grows with the square of a word's length.
        "an e-mail address": re.compile(rb"(?<![\w.+-])[\w.+-]++@[\w-]++\.[A-Za-z]"),
    }
    if len(host := platform.node().encode()) > 4:  # Shorter names may be words.
        private["this machine's name"] = re.compile(rb"(?<![\w.-])" + re.escape(host) + rb"(?![\w-])")
    for name, data in (expected | contents.files).items():
        found = [what for what, pattern in private.items() if not name.endswith(".zip") and pattern.search(data)]
        faults += [f"{name} tells {what}" for what in found]
    for (dataset, setting), run in contents.runs.items():
        told, result = run.verification or {}, run.record.result
        if told.get("status") == "equal" and (named := told.get("compared_with")):
            other = contents.runs.get((dataset, named))
            if not other or not result or not other.record.result:
                faults.append(f"{setting} on {dataset} is compared with {named}, which has no answer here")
            elif other.record.result.skeleton_sha256 != result.skeleton_sha256:
                faults.append(f"{setting} on {dataset} is called equal to {named}, and their digests differ")
    nodes = {node for run in contents.runs.values() if (node := run.record.environment.get("node"))}
    return faults + [f"{MACHINES} names the host {node!r}, which publishing leaves out" for node in sorted(nodes)]


def unknown_origins(folder: Path) -> list[str]:
    """Return sentences about runs of a valid published folder whose code cannot be looked up in a commit. In a clone of
    the project that is not shallow, the commit must be in the history of the present one."""
    found: dict[str, list[str]] = {}
    for record in PublishedRuns(folder).records():
        commit, dirty = record.environment["git_commit"], record.environment["git_dirty"]
        why = "no commit is named; use a clone"
        if commit:
            why = f"files differed from commit {commit[:10]}; commit them" if dirty else _fault_of(commit, folder)
        if record.status != "skipped" and why:
            found.setdefault(why, []).append(f"{record.setting} on {record.dataset}")
    return [f"{_some(runs)}: {why}, and measure again" for why, runs in found.items()]


@functools.cache
def _fault_of(commit: str, folder: Path) -> str:
    if git("rev-parse", "--is-shallow-repository", folder=folder) != "false":
        return ""
    if git("ls-files", "--error-unmatch", ":/gpupc_impl/__init__.py", folder=folder) is None:
        return ""  # The folder lies in another repository.
    is_hash = re.fullmatch("[0-9a-f]{40}", commit)
    if is_hash and git("merge-base", "--is-ancestor", commit, "HEAD", folder=folder) is not None:
        return ""
    return f"commit {shortened(commit, 40)} is not in the history; use a commit of the project"


def stale_runs(folder: Path) -> tuple[list[str], list[str]]:
    """Return sentences about runs and single tests whose code has changed, and about those that cannot be compared."""
    runs = [(r.method, r.backend, r.code, f"{r.setting} on {r.dataset}") for r in PublishedRuns(folder).records()]
    for path in sorted(folder.glob("tests/*.json")):
        cells = [cell for cell in load_tests(path)["cells"] if "code" in cell]
        runs += [(c["method"], c["backend"], c["code"], f"{c['implementation']} in {path.stem}") for c in cells]
    changed, unknown = ([name for *code, name in runs if is_stale(*code) is answer] for answer in (True, None))
    return (
        [f"{_some(changed)}: the code has changed since the measurement; measure again"] if changed else [],
        [f"{_some(unknown)}: this machine lacks the program's library, so it is not compared"] if unknown else [],
    )


def _some(runs: Iterable[str]) -> str:
    """Return the names of different runs, of which at most `NAMED_AT_MOST` are told."""
    names = list(dict.fromkeys(runs))
    return ", ".join(names[:NAMED_AT_MOST]) + " and others" * (len(names) > NAMED_AT_MOST)


def differing_answers(folders: Iterable[Path]) -> list[str]:
    """Return a sentence for each run of valid published folders, outside of the open division, whose skeleton or
    canonical separating sets differ from those of another run on the same problem."""
    answers: dict[tuple[str, str], tuple[str, str]] = {}  # by problem and kind: the digest, and who found it
    faults = []
    for published in map(PublishedRuns, folders):
        for key in published:
            if published.division(*key) not in (CLOSED, ALONE):
                continue
            record = published.record(*key)
            assert record.problem is not None
            assert record.result is not None
            found = {"skeleton": record.result.skeleton_sha256}
            if record.canonical:
                found["separating sets"] = record.result.sepsets_sha256
            who = f"{record.setting} on {record.dataset} in {published.folder}"
            for kind, digest in found.items():
                first, other = answers.setdefault((record.problem["fingerprint"], kind), (digest, who))
                if digest != first:
                    faults.append(f"{who}: the {kind} {digest[:10]} of the same problem is {first[:10]} of {other}")
    return faults
