"""Prints published runs as Markdown: ``python -m gpupc_impl.reporting.recorded results/recorded/DEVICE``."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting import tables
from gpupc_impl.reporting.cells import grouped, label, number, status_word

SEED = re.compile(r"-seed\d+")
"""The part of a data set's name that contains its seed."""


def read_tests(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Read the timings of single CI tests of a folder (``tests/TABLE.json``), by table."""
    return {path.stem: read_json(path) for path in sorted(Path(folder).glob("tests/*.json"))}


def markdown(records: Iterable[Record]) -> str:
    """Return tables of runs, followed by the machines that ran them.

    Data sets are rows and settings are columns; data sets with the same settings share a table, and data sets that
    differ in their seed alone share a row. Of a grid of launch parameters only the fastest and the slowest
    configuration are shown. A cell contains the median of the whole run in milliseconds with its 20-80 % band and,
    after the slash, the median of the levels alone, without transfers and the collection of the separating sets on the
    host.
    """
    records = list(records)
    settings: dict[str, list[Record]] = {}
    grids: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: (not r.reference, r.setting)):
        if re.fullmatch(rf"{re.escape(record.method)}(-\d+)+", record.setting):
            grids.setdefault((record.dataset, record.method), []).append(record)
        else:
            settings.setdefault(record.dataset, []).append(record)
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for dataset, of_dataset in settings.items():
        columns = (of_dataset[0].family, *(record.setting for record in of_dataset))
        groups.setdefault(columns, {}).setdefault(SEED.sub("", dataset), []).append(dataset)
    parts = []
    for (_, *columns), series in sorted(groups.items()):
        rows = []
        for name, datasets in sorted(series.items(), key=lambda item: (_variables(settings[item[1][0]]), item[0])):
            by_setting = [[settings[dataset][position] for dataset in datasets] for position in range(len(columns))]
            who = datasets[0] if len(datasets) == 1 else f"{name}, median of {len(datasets)} seeds"
            rows.append([who, *map(_cell, by_setting)])
        parts.append(tables.markdown(["ms", *map(label, columns)], rows, numeric=range(1, len(columns) + 1)))
    if grids:
        parts.append(_extremes(grids))
    return "\n\n".join([*parts, "\n".join(f"- {tables.plain(line)}" for line in _provenance(records))]) + "\n"


def _extremes(grids: Mapping[tuple[str, str], Sequence[Record]]) -> str:
    """Return a table of the configurations of each grid with the fastest and the slowest levels."""
    rows = []
    for (dataset, method), grid in sorted(grids.items(), key=lambda item: (item[0][1], _variables(item[1]))):
        finished = sorted((record for record in grid if record.ok), key=_levels)
        if not finished:
            continue
        ends = [
            f"{record.setting.removeprefix(method + '-')}: {_cell([record])}" for record in (finished[0], finished[-1])
        ]
        rows.append([dataset, label(method), str(len(grid)), *ends])
    header = ["ms", "method", "configurations", "fastest levels", "slowest levels"]
    return tables.markdown(header, rows, numeric=(2, 3, 4))


def single_tests(timings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the medians of single CI tests in milliseconds, with a row per case and a column per implementation."""
    names = list(dict.fromkeys(cell["implementation"] for table in timings.values() for cell in table["cells"]))
    header = ["table", "n", "perm", "k", "|S|", *names]
    rows = []
    for name, table in timings.items():
        lines: dict[tuple, dict[str, str]] = {}
        for cell in table["cells"]:
            key = tuple(str(cell[fact]) for fact in ("samples", "permutations", "k_cmi", "set_size"))
            finished = cell["status"] == "ok"
            text = number(1000 * statistics.median(cell["seconds"])) if finished else status_word(cell["status"])
            lines.setdefault(key, {})[cell["implementation"]] = text
        rows += [
            [name.removeprefix("cmiknn_"), *key, *(texts.get(n, "") for n in names)] for key, texts in lines.items()
        ]
    return tables.markdown(header, rows, numeric=range(1, len(header))) + "\n"


def _variables(records: Sequence[Record]) -> int:
    return next((record.problem["n_variables"] for record in records if record.problem), 0)


def _cell(records: Sequence[Record]) -> str:
    """Format the times of a run; for several seeds, the band of their medians and the number of failures."""
    finished = [record for record in records if record.ok]
    failed = grouped((status_word(record.status), record.dataset) for record in records if not record.ok)
    words = [f"{len(names)} {word}" if len(records) > 1 else word for word, names in failed.items()]
    if not finished:
        return ", ".join(words)
    if len(records) == 1:
        low, median, high = records[0].low, records[0].median, records[0].high
    else:
        low, median, high = np.quantile([record.median for record in finished], (0.2, 0.5, 0.8))
    levels = [seconds for record in finished if (seconds := _levels(record))]  # Some programs do not time their levels.
    alone = f" / {number(1000 * statistics.median(levels))}" if levels else ""
    band = f"{number(1000 * median)} [{number(1000 * low)}–{number(1000 * high)}]{alone}"
    return "; ".join([band, *words])


def _levels(record: Record) -> float:
    """Return the median over the runs of the total seconds of all levels; 0 if none was timed."""
    return statistics.median(map(sum, record.time_s.levels or [[]]))


def _provenance(records: Sequence[Record]) -> list[str]:
    """Return a line per machine and commit, with its data sets if there are only two, and a line about repeats."""
    groups = grouped((_machine(record), record.dataset) for record in records)
    fewest = min(map(len, groups.values()), default=0)
    lines = [
        line + (f" ({', '.join(names)} only)" if fewest == len(names) < 3 else "") for line, names in groups.items()
    ]
    repeats = sorted({record.repeats for record in records if record.ok})
    return [*lines, f"warm runs of a setting, in interleaved rounds: {', '.join(map(str, repeats))}"]


def _machine(record: Record) -> str:
    """Return the hardware, software and commit of a record."""
    machine, device, gpu = record.environment, record.environment["device"], record.environment["gpu"]
    if record.backend == "cuda" and device:
        text = (
            f"GPU methods: {device['device']}, driver {gpu['driver']}, NVRTC {device['nvrtc']}, "
            f"CuPy {device['cupy']}, Python {machine['python']}"
        )
    else:
        text = f"CPU references: {machine['cpu']}, {machine['threads']} threads, Python {machine['python']}"
    return f"{text}; commit {record.commit or 'unknown'}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.reporting.recorded", description=__doc__)
    parser.add_argument("folder", type=Path, help="results/recorded/DEVICE")
    folder = parser.parse_args(argv).folder
    records = open_published(folder).records()
    if not records:
        parser.error(f"{folder} holds no published runs (records/EXPERIMENT.jsonl)")
    print(markdown(records), end="")
    if timings := read_tests(folder):
        print("\n" + single_tests(timings), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
