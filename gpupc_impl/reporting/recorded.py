"""The runs recorded on a real GPU: ``python -m gpupc_impl.reporting.recorded results/recorded/nvidia-h200``."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.measurement.record import band
from gpupc_impl.reporting.measured import number, read_json


def read(folder: str | Path) -> list[dict[str, Any]]:
    """All records below a folder, a subfolder a data set."""
    return [record for record in read_json(sorted(Path(folder).glob("*/*.json"))) if "setting" in record]


def read_tests(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The timings of single CI tests below a folder (``ci_tests/TABLE.json``), by table."""
    return {path.stem: read_json([path])[0] for path in sorted(Path(folder).glob("ci_tests/*.json"))}


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """Tables of data sets in rows and settings in columns, one for all that share their settings; then what ran them.

    A cell is the median of the whole run in milliseconds with its 20-80 % band, and behind the stroke the median of the
    levels alone, without the transfers and the collection of the separating sets on the host.
    """
    records = list(records)
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda r: (not r["reference"], r["setting"])):
        settings.setdefault(record["dataset"]["name"], []).append(record)
    groups: dict[tuple[str, ...], list[str]] = {}
    for dataset, its in settings.items():
        groups.setdefault((its[0]["family"], *(record["setting"] for record in its)), []).append(dataset)
    parts = []
    for (_, *columns), datasets in sorted(groups.items()):
        rows = [["ms", *columns], ["---", *["---:"] * len(columns)]]
        for dataset in sorted(datasets, key=lambda name: (_variables(settings[name]), name)):
            cells = {record["setting"]: _cell(record) for record in settings[dataset]}
            rows.append([dataset, *(cells[column] for column in columns)])
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in _provenance(records))]) + "\n"


def single_tests(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Single CI tests in milliseconds, medians: a line a cell of the tables, a column an implementation."""
    rows = [["table", "n", "perm", "k", "\\|S\\|"], ["---"] + ["---:"] * 4]
    names = list(dict.fromkeys(cell["implementation"] for table in tables.values() for cell in table["cells"]))
    rows[0] += names
    rows[1] += ["---:"] * len(names)
    for table, timed in tables.items():
        lines: dict[tuple, dict[str, str]] = {}
        for cell in timed["cells"]:
            key = tuple(str(cell[name]) for name in ("samples", "permutations", "k_cmi", "set_size"))
            done = cell["status"] == "ok"
            shown = number(1000 * statistics.median(cell["seconds"])) if done else "DNF"
            lines.setdefault(key, {})[cell["implementation"]] = shown
        rows += [
            [table.removeprefix("cmiknn_"), *key, *(found.get(n, "") for n in names)] for key, found in lines.items()
        ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _variables(records: Sequence[Mapping[str, Any]]) -> int:
    return next((record["problem"]["n_variables"] for record in records if record["problem"]), 0)


def _cell(record: Mapping[str, Any]) -> str:
    if record["status"] != "ok":
        return {"skipped": "not run"}.get(record["status"], record["status"])
    low, median, high = (number(1000 * seconds) for seconds in band(record["time_s"]["warm"]))
    levels = statistics.median(map(sum, record["time_s"]["levels"]))
    return f"{median} [{low}–{high}] / {number(1000 * levels)}"


def _provenance(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ran the records: a line for each different answer, with its data sets where there are several."""
    lines: dict[str, list[str]] = {}
    for record in records:
        machine, device, gpu = record["environment"], record["environment"]["device"], record["environment"]["gpu"]
        if record["backend"] == "cuda" and device:
            ran = (
                f"GPU methods: {device['device']}, driver {gpu['driver']}, NVRTC {device['nvrtc']}, "
                f"CuPy {device['cupy']}, Python {machine['python']}"
            )
        else:
            ran = f"CPU references: {machine['cpu']}, {machine['threads']} threads, Python {machine['python']}"
        ran += f"; commit {(machine['git_commit'] or 'unknown')[:10]}{'+' if machine['git_dirty'] else ''}"
        lines.setdefault(ran, []).append(record["dataset"]["name"])
    fewest = min(lines.values(), key=lambda names: len(set(names)), default=[])
    shown = [
        ran + (f" ({', '.join(dict.fromkeys(names))} only)" if len(set(fewest)) == len(set(names)) < 3 else "")
        for ran, names in lines.items()
    ]
    repeats = sorted({len(record["time_s"]["warm"]) for record in records if record["status"] == "ok"})
    return [*shown, f"warm runs of a setting, in interleaved rounds: {', '.join(map(str, repeats))}"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.reporting.recorded", description=__doc__)
    parser.add_argument("folder", type=Path, help="results/recorded/DEVICE")
    folder = parser.parse_args(argv).folder
    records = read(folder)
    if not records:
        parser.error(f"{folder} holds no records (DATASET/SETTING.json)")
    print(markdown(records), end="")
    if tests := read_tests(folder):
        print("\n" + single_tests(tests), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
