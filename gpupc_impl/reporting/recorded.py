"""The runs recorded on a real GPU: ``python -m gpupc_impl.reporting.recorded results/recorded/nvidia-h200``."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.record import Record, load_records
from gpupc_impl.reporting import tables
from gpupc_impl.reporting.cells import grouped, number, status_word


def read(folder: str | Path) -> list[Record]:
    """All records of a folder (``records/DATASET/SETTING.json``)."""
    return load_records(sorted(Path(folder).glob("records/*/*.json")))


def read_tests(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The timings of single CI tests of a folder (``tests/TABLE.json``), by table."""
    return {path.stem: read_json(path) for path in sorted(Path(folder).glob("tests/*.json"))}


def markdown(records: Iterable[Record]) -> str:
    """Tables of data sets in rows and settings in columns, one for all that share their settings; the fastest and the
    slowest of grids of launch parameters; then what ran them.

    A cell is the median of the whole run in milliseconds with its 20-80 % band, and behind the stroke the median of the
    levels alone, without the transfers and the collection of the separating sets on the host.
    """
    records = list(records)
    settings: dict[str, list[Record]] = {}
    grids: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: (not r.reference, r.setting)):
        if re.fullmatch(rf"{re.escape(record.method)}(-\d+)+", record.setting):
            grids.setdefault((record.dataset, record.method), []).append(record)
        else:
            settings.setdefault(record.dataset, []).append(record)
    groups: dict[tuple[str, ...], list[str]] = {}
    for dataset, its in settings.items():
        groups.setdefault((its[0].family, *(record.setting for record in its)), []).append(dataset)
    parts = []
    for (_, *columns), datasets in sorted(groups.items()):
        rows = []
        for dataset in sorted(datasets, key=lambda name: (_variables(settings[name]), name)):
            cells = {record.setting: _cell(record) for record in settings[dataset]}
            rows.append([dataset, *(cells[column] for column in columns)])
        parts.append(tables.markdown(["ms", *columns], rows, numeric=range(1, len(columns) + 1)))
    if grids:
        parts.append(_extremes(grids))
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in _provenance(records))]) + "\n"


def _extremes(grids: Mapping[tuple[str, str], Sequence[Record]]) -> str:
    """Of each method's grid on a data set the configuration with the fastest levels, and that with the slowest."""
    rows = []
    for (dataset, method), its in sorted(grids.items(), key=lambda each: (each[0][1], _variables(each[1]))):
        done = sorted((record for record in its if record.ok), key=_levels)
        if not done:
            continue
        ends = [f"{record.setting.removeprefix(method + '-')}: {_cell(record)}" for record in (done[0], done[-1])]
        rows.append([dataset, method, str(len(its)), *ends])
    header = ["ms", "method", "configurations", "fastest levels", "slowest levels"]
    return tables.markdown(header, rows, numeric=(2, 3, 4))


def single_tests(timed: Mapping[str, Mapping[str, Any]]) -> str:
    """Single CI tests in milliseconds, medians: a line a cell of the tables, a column an implementation."""
    names = list(dict.fromkeys(cell["implementation"] for its in timed.values() for cell in its["cells"]))
    header = ["table", "n", "perm", "k", "|S|", *names]
    rows = []
    for table, its in timed.items():
        lines: dict[tuple, dict[str, str]] = {}
        for cell in its["cells"]:
            key = tuple(str(cell[name]) for name in ("samples", "permutations", "k_cmi", "set_size"))
            done = cell["status"] == "ok"
            shown = number(1000 * statistics.median(cell["seconds"])) if done else "DNF"
            lines.setdefault(key, {})[cell["implementation"]] = shown
        rows += [
            [table.removeprefix("cmiknn_"), *key, *(found.get(n, "") for n in names)] for key, found in lines.items()
        ]
    return tables.markdown(header, rows, numeric=range(1, len(header))) + "\n"


def _variables(records: Sequence[Record]) -> int:
    return next((record.problem["n_variables"] for record in records if record.problem), 0)


def _cell(record: Record) -> str:
    if not record.ok:
        return status_word(record.status)
    low, median, high = (number(1000 * seconds) for seconds in (record.low, record.median, record.high))
    levels = _levels(record)
    alone = f" / {number(1000 * levels)}" if levels else ""  # the authors' programs do not tell
    return f"{median} [{low}–{high}]{alone}"


def _levels(record: Record) -> float:
    """Seconds of the levels alone."""
    return statistics.median(map(sum, record.time_s.levels))


def _provenance(records: Sequence[Record]) -> list[str]:
    """What ran the records: a line for each different answer, with its data sets where there are several."""
    lines = grouped((_ran(record), record.dataset) for record in records)
    fewest = min(map(len, lines.values()), default=0)
    shown = [ran + (f" ({', '.join(names)} only)" if fewest == len(names) < 3 else "") for ran, names in lines.items()]
    repeats = sorted({record.repeats for record in records if record.ok})
    return [*shown, f"warm runs of a setting, in interleaved rounds: {', '.join(map(str, repeats))}"]


def _ran(record: Record) -> str:
    machine, device, gpu = record.environment, record.environment["device"], record.environment["gpu"]
    if record.backend == "cuda" and device:
        ran = (
            f"GPU methods: {device['device']}, driver {gpu['driver']}, NVRTC {device['nvrtc']}, "
            f"CuPy {device['cupy']}, Python {machine['python']}"
        )
    else:
        ran = f"CPU references: {machine['cpu']}, {machine['threads']} threads, Python {machine['python']}"
    return f"{ran}; commit {record.commit or 'unknown'}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.reporting.recorded", description=__doc__)
    parser.add_argument("folder", type=Path, help="results/recorded/DEVICE")
    folder = parser.parse_args(argv).folder
    records = read(folder)
    if not records:
        parser.error(f"{folder} holds no records (records/DATASET/SETTING.json)")
    print(markdown(records), end="")
    if tests := read_tests(folder):
        print("\n" + single_tests(tests), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
