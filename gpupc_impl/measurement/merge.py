"""Records of several machines in one tree: ``python -m gpupc_impl records merge A B --into DIR``.

A tree is what the workflow leaves in ``results``, or recording in ``results/recorded/DEVICE``. What is taken over:

    config.yaml
    records/DATASET/SETTING.json, and the skeleton (.npz) beside it
    problems/DATASET.json, tests/TABLE.json, timelines/DATASET.csv
    verification/NAME.csv, verification.csv, sharing.csv: row by row, with the record that a row is about

What several trees hold alike is one entry. What they hold differently under one name is a conflict: it is named with
its file, its keys and both values, and nothing is written unless a rule chooses.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import parse_json, read_text, write_csv
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.yaml_text import parse_yaml
from gpupc_impl.measurement.record import InvalidRecord, Record, load_tests

PREFERENCES = ("newest", "first")
"""Rules that settle conflicts: what was measured last, or what the first tree that has it holds. Of a file without a
date the newest is that of the tree with the newest record; of equally new ones it is the first."""

ALL_FILES = ("config.yaml", "records/*/*.json", "problems/*.json", "tests/*.json", "timelines/*.csv")
ALL_TABLES = ("verification/*.csv", "verification.csv", "sharing.csv")
"""Files that are taken over whole, and those of which every row is of a record."""

SHOWN_KEYS = 3
"""Keys of a conflict whose values are shown; the others are named."""

SHOWN_CHARACTERS = 60
"""Where a shown value is cut."""


class MergeError(ValueError):
    """Trees cannot be merged, and nothing was written; the message has a line a reason."""


@dataclasses.dataclass(frozen=True)
class Merged:
    """What was done.

    Attributes:
        records: records in the new tree.
        shared: those of them that several trees held alike.
        settled: conflicts that the rule settled, a sentence each.
        left: files that are no part of a tree of records, by tree and the folder or file at its top; not taken over.
    """

    records: int
    shared: int
    settled: Sequence[str]
    left: Sequence[str]


@dataclasses.dataclass(frozen=True)
class _Entry:
    """What one tree holds under a name.

    Attributes:
        path: where the tree is, and the file in it.
        content: by key, or by row of a table.
        record: where it is one.
    """

    tree: Path
    name: str
    content: Any
    record: Record | None = None

    @property
    def path(self) -> Path:
        return self.tree / self.name

    @property
    def date(self) -> str:
        """When it was measured: ISO 8601 in UTC, so that texts compare as times do; "" where that is not known."""
        return self.record.environment.get("measured_at", "") if self.record else ""


def merge(trees: Sequence[Path], into: Path, prefer: str | None = None) -> Merged:
    """Merge trees of records into a new one, all of it or none.

    Args:
        trees: at least one; the order says which is the first.
        into: a folder that is not there, or is empty.
        prefer: one of `PREFERENCES`, which settles conflicts; None refuses them.

    Raises:
        MergeError: a tree or a file in it cannot be read, there are conflicts, records of one data set are of different
            problems, or the target is not empty.
    """
    into = into.absolute()
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise MergeError(f"{into} is there and not empty; name a new folder")
    faults: list[str] = []
    files: dict[str, list[_Entry]] = {}
    tables: dict[str, list[_Entry]] = {}
    for tree in trees:
        _read(tree, files, tables, faults)
    if faults:
        raise MergeError("\n".join(faults))
    choice = _Choice(trees, prefer, _newest_of(trees, files))
    chosen = {name: choice.of_file(name, entries) for name, entries in files.items()}
    rows = {name: choice.of_table(name, entries, files) for name, entries in tables.items()}
    others = [*_different_problems(chosen.values())]
    if choice.conflicts and prefer is None:
        others += [*choice.conflicts, f"--prefer {' or '.join(PREFERENCES)} settles conflicts"]
    if others:
        raise MergeError("\n".join(others))
    _write(into, chosen, rows, tables, files)
    records = [name for name, entry in chosen.items() if entry.record]
    return Merged(
        len(records),
        sum(len(files[name]) > 1 and _alike(files[name]) for name in records),
        choice.conflicts,
        [*_left_out(trees)],
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(tree: Path, files: dict[str, list[_Entry]], tables: dict[str, list[_Entry]], faults: list[str]) -> None:
    """Add what a tree holds, and a sentence for each file that cannot be read."""
    if not tree.is_dir():
        faults.append(f"{tree} is no folder")
        return
    if not any(tree.glob("records/*/*.json")) and not any(tree.glob("tests/*.json")):
        faults.append(f"{tree} holds no records: it has no records/DATASET/SETTING.json and no tests/TABLE.json")
    for patterns, found in ((ALL_FILES, files), (ALL_TABLES, tables)):
        for path in (path for pattern in patterns for path in sorted(tree.glob(pattern))):
            name = path.relative_to(tree).as_posix()
            try:
                entry = _entry(tree, name)
            except (ValueError, RecursionError, OSError) as error:
                faults.append(f"{path} is damaged: {error}")
            else:
                found.setdefault(name, []).append(entry)


def _entry(tree: Path, name: str) -> _Entry:
    """A file's entry.

    Raises:
        ValueError: it is damaged, `InvalidRecord` among others.
    """
    path = tree / name
    top, suffix = name.partition("/")[0], path.suffix
    if top == "records":
        record = Record.load(path)
        if (record.dataset, record.setting) != (path.parent.name, path.stem):
            raise InvalidRecord(f"it is the record of {record.setting} on {record.dataset}")
        _check_skeleton(path.with_suffix(".npz"), record)
        return _Entry(tree, name, record.to_json(), record)
    if top == "tests":
        return _Entry(tree, name, load_tests(path))
    if suffix == ".yaml":
        return _Entry(tree, name, _yaml(path))
    text = read_text(path)
    if suffix == ".json":
        return _Entry(tree, name, parse_json(text))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise ValueError(f"it is no CSV: {error}") from error
    if any(None in line or None in line.values() for line in lines):
        raise ValueError("it is no CSV: a row has not as many values as the header has names")
    if top == "timelines":
        return _Entry(tree, name, {"steps": lines})
    if missing := {"dataset", "setting"} - set(reader.fieldnames or ()):
        raise ValueError(f"it has no column {' and no column '.join(sorted(missing))}")
    return _Entry(tree, name, lines)


def _check_skeleton(path: Path, record: Record) -> None:
    """Raise ValueError for a skeleton that is not what the record found."""
    if not path.is_file():
        return
    try:
        found = Skeleton.load(path).sha256
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"its skeleton {path.name} cannot be read: {error}") from error
    if record.result is None or found != record.result.skeleton_sha256:
        raise ValueError(f"its skeleton {path.name} is another's: the digests differ")


def _yaml(path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError("comparing configs needs the package pyyaml; pip install pyyaml") from error
    try:
        return parse_yaml(read_text(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error}") from error


def _newest_of(trees: Sequence[Path], files: Mapping[str, Sequence[_Entry]]) -> dict[Path, str]:
    """The date of each tree's newest record."""
    newest = dict.fromkeys(trees, "")
    for entry in (entry for entries in files.values() for entry in entries):
        newest[entry.tree] = max(newest[entry.tree], entry.date)
    return newest


# --- choosing --------------------------------------------------------------------------------------------------------


class _Choice:
    """Which entry is taken of each name.

    Attributes:
        conflicts: the sentences about those that differ, whether the rule settled them or there is none.
    """

    def __init__(self, trees: Sequence[Path], prefer: str | None, newest: Mapping[Path, str]):
        self.order = {tree: place for place, tree in reversed([*enumerate(trees)])}
        self.prefer, self.newest = prefer, newest
        self.conflicts: list[str] = []

    def of_file(self, name: str, entries: Sequence[_Entry]) -> _Entry:
        """One of the entries of a file: the same content in all trees, or what the rule prefers."""
        chosen = self._preferred(entries)
        for other in entries:
            self._compare(name, chosen, other)
        return chosen

    def of_table(
        self, name: str, entries: Sequence[_Entry], files: Mapping[str, Sequence[_Entry]]
    ) -> list[dict[str, str]]:
        """The rows of a table, by data set in the order of their first appearance.

        Of a record that is in conflict the rows of the tree whose record is taken; else, where the rows differ, they
        are in conflict themselves.
        """
        groups: dict[str, dict[str, list[_Entry]]] = {}
        for entry in entries:
            for row in entry.content:
                its = groups.setdefault(row["dataset"], {}).setdefault(row["setting"], [])
                if not its or its[-1].tree != entry.tree:
                    its.append(_Entry(entry.tree, name, []))
                its[-1].content.append(row)
        found: list[dict[str, str]] = []
        for dataset, settings in groups.items():
            for setting, candidates in settings.items():
                measured = files.get(f"records/{dataset}/{setting}.json", [])
                if measured:
                    taken = self._preferred(measured)
                    alike = {entry.tree for entry in measured if _same(entry.content, taken.content)}
                    candidates = [entry for entry in candidates if entry.tree in alike] or candidates
                chosen = self._preferred(candidates)
                for other in candidates:
                    where = f"{name}, row {dataset}, {setting}"
                    self._compare(where, _by_number(chosen), _by_number(other))
                found += chosen.content
        return found

    def _preferred(self, entries: Sequence[_Entry]) -> _Entry:
        first = min(entries, key=lambda entry: self.order[entry.tree])
        if self.prefer != "newest":
            return first
        date = max(entry.date or self.newest[entry.tree] for entry in entries)
        ones = [entry for entry in entries if (entry.date or self.newest[entry.tree]) == date]
        return min(ones, key=lambda entry: self.order[entry.tree])

    def _compare(self, where: str, chosen: _Entry, other: _Entry) -> None:
        if _same(chosen.content, other.content):
            return
        keys = [*_differences(chosen.content, other.content)]
        shown = [
            f"{key or 'all of it'} is {_shown(mine)} in {chosen.tree} and {_shown(its)} in {other.tree}"
            for key, mine, its in keys[:SHOWN_KEYS]
        ]
        more = f"; further: {', '.join(key for key, _, _ in keys[SHOWN_KEYS:])}" if len(keys) > SHOWN_KEYS else ""
        taken = f"; taken: {chosen.tree}" if self.prefer else ""
        self.conflicts.append(f"conflict: {where}: {'; '.join(shown)}{more}{taken}")


def _by_number(entry: _Entry) -> _Entry:
    """A table's rows as one mapping: what differs is then named by column, or by the row's number and column."""
    rows = entry.content
    numbered = rows[0] if len(rows) == 1 else {str(number): row for number, row in enumerate(rows, 1)}
    return dataclasses.replace(entry, content=numbered)


def _same(one: Any, other: Any) -> bool:
    """Whether two contents of JSON are the same; a float that is no number is the same as itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


_ABSENT = object()


def _differences(one: Any, other: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys under which two contents differ, with both values."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        if not _same(one, other):
            yield prefix, one, other
        return
    for key in dict.fromkeys([*one, *other]):
        name = f"{prefix}.{key}" if prefix else str(key)
        if key in one and key in other:
            yield from _differences(one[key], other[key], name)
        else:
            yield name, one.get(key, _ABSENT), other.get(key, _ABSENT)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."


def _alike(entries: Sequence[_Entry]) -> bool:
    return all(_same(entries[0].content, entry.content) for entry in entries[1:])


def _different_problems(chosen: Iterable[_Entry]) -> Iterator[str]:
    """Sentences about data sets whose records would be of different problems: side by side they would mean nothing."""
    first: dict[str, tuple[_Entry, str]] = {}
    for entry in chosen:
        if entry.record is None or entry.record.problem is None:
            continue
        dataset, its = entry.record.dataset, entry.record.problem["fingerprint"]
        known, ours = first.setdefault(dataset, (entry, its))
        if ours != its:
            yield (
                f"{dataset}: problem.fingerprint is {_shown(ours)} in {known.path} and {_shown(its)} in "
                f"{entry.path}: one name for two problems; measure them under one config, or give them two names"
            )


def _left_out(trees: Sequence[Path]) -> Iterator[str]:
    """What lies at the top of the trees and is no part of what is merged."""
    known = {pattern.partition("/")[0] for pattern in (*ALL_FILES, *ALL_TABLES)}
    for tree in trees:
        if others := sorted(path.name for path in tree.iterdir() if path.name not in known):
            yield f"{tree}: {', '.join(others)}"


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(
    into: Path,
    chosen: Mapping[str, _Entry],
    rows: Mapping[str, Sequence[Mapping[str, str]]],
    tables: Mapping[str, Sequence[_Entry]],
    files: Mapping[str, Sequence[_Entry]],
) -> None:
    """The new tree, made beside its place and moved there when it is whole."""
    into.parent.mkdir(parents=True, exist_ok=True)
    part = into.with_name(f".{into.name}.{os.getpid()}")
    try:
        part.mkdir()
        for name, entry in chosen.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry.path, part / name)
            if entry.record:
                holding = [each.path for each in [entry, *files[name]] if _same(each.content, entry.content)]
                found = (path.with_suffix(".npz") for path in holding)
                if skeleton := next((path for path in found if path.is_file()), None):
                    shutil.copyfile(skeleton, (part / name).with_suffix(".npz"))
        for name, lines in rows.items():
            columns = [column for entry in tables[name] for row in entry.content[:1] for column in row]
            write_csv(part / name, lines, columns)
        os.replace(part, into)
    finally:
        shutil.rmtree(part, ignore_errors=True)
