"""Publishes the runs of a workflow in a device's folder, and merges several folders into one; see `checking` as well.

Both work run by run. A run that several folders hold alike is taken once. If folders hold different content under one
name, that is a conflict: a message states the name, the keys that differ, and both values, and nothing is written
unless a rule settles the conflict.
"""

import dataclasses
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import write_csv
from gpupc_impl.measurement.folders import PLAIN_FILES, SHARING, Entry, Name, Reader, run_entry
from gpupc_impl.measurement.published import DATASETS, MACHINES, PublishedRuns, file_contents
from gpupc_impl.measurement.record import Record, machine_name

PREFERENCES = ("newest", "first")
"""Rules that settle conflicts: take the latest measurement, or the content of the first folder that has one. Content
without a date has the date of its folder's latest run; of equally recent entries the first folder's is taken."""

SHOWN_KEYS, SHOWN_CHARACTERS = 3, 60
"""The number of keys of a conflict whose values a message shows, and the length at which it cuts a value."""

OWN_NAMES = {MACHINES, DATASETS, SHARING, "records", "skeletons", *(name.partition("/")[0] for name in PLAIN_FILES)}
"""The files and folders at the top of a published folder that are written anew; others stay unchanged."""


class MergeError(ValueError):
    """Folders cannot be merged or published, and nothing was written; the message has one line per reason."""


@dataclasses.dataclass(frozen=True)
class Merged:
    """A summary of merging or publishing.

    Attributes:
        runs: the number of runs in the folder that was written.
        shared: the number of these runs that several folders held alike.
        settled: one sentence for each conflict that the rule settled.
        ignored: sentences about content that was not copied.
    """

    runs: int
    shared: int
    settled: Sequence[str]
    ignored: Sequence[str]


def merge(folders: Sequence[Path], into: Path, prefer: str | None = None) -> Merged:
    """Merge folders into a new published folder; either all content is written or none.

    Args:
        folders: at least one published folder or results folder of a workflow; the rule `first` follows this order.
        into: a folder that does not exist or is empty.
        prefer: one of `PREFERENCES`, which settles conflicts; None refuses conflicts.

    Raises:
        MergeError: a folder or a file in it cannot be read, there are conflicts, runs of one data set are of different
            problems, or the target is not empty.
    """
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise MergeError(f"{into} is there and not empty; name a new folder")
    readers = read(folders)
    chosen, shared, conflicts = _choose([reader.entries for reader in readers], prefer)
    refusals = [*_different_problems(chosen)]
    if conflicts and prefer is None:
        refusals += [*conflicts, f"--prefer {' or '.join(PREFERENCES)} settles conflicts"]
    if refusals:
        raise MergeError("\n".join(refusals))
    return _written(chosen, shared, conflicts, into, readers)


def publish(results: Path, into: Path) -> Merged:
    """Add the results of a workflow to a published folder; either all of them are written or none.

    A run, a data set or a file of the results replaces the one of the same name; all other content of the folder stays.
    The names of a cluster's nodes are left out.

    Raises:
        MergeError: files cannot be read, all of which the message names; or ``into`` holds other content than published
            runs.
    """
    update = into.is_dir() and any(into.iterdir())
    if update and not (into / MACHINES).is_file():
        raise MergeError(f"{into} is no folder of published runs: it has no {MACHINES}; name a new folder")
    readers = read([results, into] if update else [results])
    for name, entry in readers[0].entries.items():
        if name[0] == "run":
            readers[0].entries[name] = _without_node(entry)
    return _written(*_choose([reader.entries for reader in readers], "first"), into=into, readers=readers)


def own_folder(results: Path) -> Path:
    """Return the folder into which the results of a workflow are published if none is named: ``recorded/DEVICE`` in the
    results, where DEVICE is the GPU, or the processor with its threads, on which most kernels ran.

    Raises:
        MergeError: files cannot be read, or the folder has runs, but none of these results.
    """
    (reader,) = read([results])
    found = [entry.value.record for name, entry in reader.entries.items() if name[0] == "run"]
    ran = [record for record in found if record.status != "skipped"]
    if not ran:
        raise MergeError(f"{results} has no run: all were skipped, or nothing was measured")
    machines = Counter(
        machine_name(record.environment, record.backend, record.environment["threads"])
        for record in [record for record in ran if record.backend != "cpu"] or ran
    )
    machine = re.sub(r"\((R|TM)\)|@.*(?=,)", "", machines.most_common(1)[0][0])
    into = results / "recorded" / "-".join(re.findall("[a-z0-9]+", machine.lower()))
    if into.is_dir():
        published = PublishedRuns(into)
        mine = {(record.dataset, record.setting): record for record in ran}
        if not any(_without_node_name(mine[key]) == published.record(*key) for key in mine.keys() & set(published)):
            raise MergeError(f"{into} has the runs of somebody else; name a folder, such as {into}-2")
    return into


def read(folders: Sequence[Path]) -> list[Reader]:
    """Read folders."""
    readers = [Reader(folder) for folder in folders]
    if faults := [fault for reader in readers for fault in reader.faults]:
        raise MergeError("\n".join(faults))
    return readers


def _without_node(entry: Entry) -> Entry:
    return run_entry(entry.folder, dataclasses.replace(entry.value, record=_without_node_name(entry.value.record)))


def _without_node_name(record: Record) -> Record:
    environment = {name: fact for name, fact in record.environment.items() if name != "node"}
    return dataclasses.replace(record, environment=environment)


# --- choosing --------------------------------------------------------------------------------------------------------


def _choose(contents: Sequence[Mapping[Name, Entry]], prefer: str | None) -> tuple[dict[Name, Entry], int, list[str]]:
    """Choose the entry of each name; returns the entries, the number of runs that are alike, and sentences about
    conflicts."""
    newest = {entry.folder: "" for content in contents for entry in content.values()}
    for entry in (entry for content in contents for entry in content.values()):
        newest[entry.folder] = max(newest[entry.folder], entry.date)
    chosen: dict[Name, Entry] = {}
    conflicts: list[str] = []
    shared = 0
    for name in dict.fromkeys(name for content in contents for name in content):
        candidates = [content[name] for content in contents if name in content]
        if name[0] == "run":
            measured = [entry for entry in candidates if entry.value.record.status != "skipped"]
            candidates = _completed(measured or candidates)  # A skipped run gives way to one that was measured.
        taken = candidates[0]
        if prefer == "newest":  # max returns the first of equally recent entries.
            taken = max(candidates, key=lambda entry: entry.date or newest[entry.folder])
        differing = [entry for entry in candidates if any(_differences(entry.content, taken.content))]
        choice = f"; taken: {taken.folder}" if prefer else ""
        conflicts += [f"conflict: {label(name)}: {_difference(taken, entry)}{choice}" for entry in differing]
        shared += name[0] == "run" and len(candidates) > 1 and not differing
        chosen[name] = taken
    return chosen, shared, conflicts


def _completed(candidates: Sequence[Entry]) -> list[Entry]:
    """Return the candidates for a run, each with the verification and the skeleton that any folder has of the same
    record."""
    completed = []
    for run, folder in ((entry.value, entry.folder) for entry in candidates):
        for other in (entry.value for entry in candidates if entry.value.record == run.record):
            run = dataclasses.replace(
                run,
                verification=other.verification if run.verification is None else run.verification,
                skeleton=run.skeleton or other.skeleton,
            )
        completed.append(run_entry(folder, run))
    return completed


def label(name: Name) -> str:
    """Return the text by which messages name an entry."""
    return f"run of {name[2]} on {name[1]}" if name[0] == "run" else name[1] if name[0] == "file" else " ".join(name)


def _difference(taken: Entry, other: Entry) -> str:
    keys = [*_differences(taken.content, other.content)]
    shown = [
        f"{key or 'all of it'} is {_shown(mine)} in {taken.folder} and {_shown(its)} in {other.folder}"
        for key, mine, its in keys[:SHOWN_KEYS]
    ]
    more = f"; further: {', '.join(key for key, _, _ in keys[SHOWN_KEYS:])}" if len(keys) > SHOWN_KEYS else ""
    return f"{'; '.join(shown)}{more}"


_ABSENT = object()


def _differences(one: Any, other: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys under which two JSON values differ, each with both values; a dot separates the keys of a path.

    NaN is equal to NaN, and 1 is equal neither to 1.0 nor to true.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            inner = f"{key}.{name}" if key else str(name)
            yield from _differences(one.get(name, _ABSENT), other.get(name, _ABSENT), inner)
    elif json.dumps(one, sort_keys=True, default=str) != json.dumps(other, sort_keys=True, default=str):
        yield key, one, other


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."


def _different_problems(chosen: Mapping[Name, Entry]) -> Iterator[str]:
    """Yield sentences about data sets of which two folders have runs of different problems, which must not be compared.

    A method may solve a variant of a folder's problem, such as another test, so the folders need one problem in common.
    """
    of_folders: dict[str, dict[Any, dict[str, str]]] = {}  # by data set and folder: a run for each fingerprint
    for (kind, *rest), entry in chosen.items():
        if kind == "run" and entry.value.record.problem is not None:
            runs = of_folders.setdefault(rest[0], {}).setdefault(entry.folder, {})
            runs.setdefault(entry.value.record.problem["fingerprint"], rest[1])
    for dataset, folders in of_folders.items():
        (folder, runs), *others = folders.items()
        for other, its in others:
            if runs.keys().isdisjoint(its):
                (one, setting), (another, others_setting) = next(iter(runs.items())), next(iter(its.items()))
                yield (
                    f"{dataset}: problem.fingerprint is {_shown(one)} of {setting} in {folder} and "
                    f"{_shown(another)} of {others_setting} in {other}: one name for two "
                    "problems; measure them under one config, or give them two names"
                )


# --- writing ---------------------------------------------------------------------------------------------------------


def contents_of(chosen: Mapping[Name, Entry]) -> dict[str, bytes]:
    """Return the contents of a published folder's files by name."""
    of_kind: dict[str, dict[Any, Any]] = {"run": {}, "data set": {}, "file": {}}
    for (kind, *rest), entry in chosen.items():
        of_kind.setdefault(kind, {})[tuple(rest) if kind == "run" else rest[0]] = entry.value
    return file_contents(of_kind["run"], of_kind["data set"]) | of_kind["file"]


def _written(
    chosen: Mapping[Name, Entry], shared: int, conflicts: Sequence[str], into: Path, readers: Sequence[Reader]
) -> Merged:
    """Write a published folder, with the other files of ``into``, to a temporary folder, then replace ``into``."""
    into = into.absolute()
    part, before = (into.with_name(f".{into.name}.{os.getpid()}.{name}") for name in ("part", "before"))
    config = chosen.get(("file", "config.yaml"))
    order = list(config.content.get("datasets", ())) if config else []
    sharing = {name[1]: entry.value for name, entry in chosen.items() if name[0] == "sharing"}
    try:
        part.mkdir(parents=True)
        for path in into.iterdir() if into.is_dir() else ():
            if path.name not in OWN_NAMES:
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, part / path.name)
        for name, data in contents_of(chosen).items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(data)
        if sharing:
            names = sorted(sharing, key=lambda name: (order.index(name) if name in order else len(order), name))
            write_csv(part / SHARING, [row for name in names for row in sharing[name]])
        if into.exists():
            into.rename(before)
        part.rename(into)
    finally:
        if before.exists() and not into.exists():
            before.rename(into)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)
    ignored = [sentence for reader in readers for sentence in reader.ignored]
    return Merged(sum(name[0] == "run" for name in chosen), shared, conflicts, ignored)
