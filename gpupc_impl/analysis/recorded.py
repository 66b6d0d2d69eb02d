"""The runs recorded on a real GPU: ``python -m gpupc_impl.analysis.recorded results/recorded/nvidia-h200``."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.analysis.measured import number, read_json
from gpupc_impl.core.records import band


def read(folder: str | Path) -> list[dict[str, Any]]:
    """All records below a folder, a subfolder a data set."""
    return read_json(sorted(Path(folder).glob("*/*.json")))


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """A table a family: settings in rows, data sets in columns; then what measured them.

    A cell is the median of the whole run in milliseconds with its 20-80 % band, and behind the stroke the median of the
    levels alone, without the transfers and the collection of the separating sets on the host.
    """
    records = list(records)
    parts = []
    for family in dict.fromkeys(record["family"] for record in records):
        mine = [record for record in records if record["family"] == family]
        datasets = sorted({r["dataset"]["name"]: _tests(mine, r["dataset"]["name"]) for r in mine}.items(), key=_second)
        settings = list(
            dict.fromkeys(r["setting"] for r in sorted(mine, key=lambda r: (not r["reference"], r["setting"])))
        )
        rows = [["", *(name for name, _ in datasets)], ["---", *["---:"] * len(datasets)]]
        cells = {(r["setting"], r["dataset"]["name"]): _cell(r) for r in mine}
        rows += [[setting, *(cells.get((setting, name), "") for name, _ in datasets)] for setting in settings]
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in _provenance(records))]) + "\n"


def _tests(records: Sequence[Mapping[str, Any]], dataset: str) -> int:
    """Tests of the run that made fewest: how much there is to do on a data set."""
    done = [r["result"] for r in records if r["dataset"]["name"] == dataset and r["result"]]
    return min((sum(result["tests_per_level"]) for result in done), default=0)


def _second(item: tuple[str, int]) -> tuple[int, str]:
    return item[1], item[0]


def _cell(record: Mapping[str, Any]) -> str:
    if record["status"] != "ok":
        return {"skipped": "not run"}.get(record["status"], record["status"])
    low, median, high = (number(1000 * seconds) for seconds in band(record["time_s"]["warm"]))
    levels = statistics.median(map(sum, record["time_s"]["levels"]))
    return f"{median} [{low}–{high}] / {number(1000 * levels)}"


def _provenance(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ran the records: a line for each different answer."""
    lines = []
    for record in records:
        machine, device, gpu = record["environment"], record["environment"]["device"], record["environment"]["gpu"]
        if record["backend"] == "cuda" and device:
            ran = (
                f"GPU methods: {device['device']}, driver {gpu['driver']}, NVRTC {device['nvrtc']}, "
                f"CuPy {device['cupy']}, Python {machine['python']}"
            )
        else:
            ran = f"CPU references: {machine['cpu']}, {machine['threads']} threads, Python {machine['python']}"
        lines.append(f"{ran}; commit {(machine['git_commit'] or 'unknown')[:10]}{'+' if machine['git_dirty'] else ''}")
    repeats = sorted({len(record["time_s"]["warm"]) for record in records if record["status"] == "ok"})
    lines.append(f"warm runs of a setting, in interleaved rounds: {', '.join(map(str, repeats))}")
    return list(dict.fromkeys(lines))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.analysis.recorded", description=__doc__)
    parser.add_argument("folder", type=Path, help="results/recorded/DEVICE")
    folder = parser.parse_args(argv).folder
    records = read(folder)
    if not records:
        parser.error(f"{folder} holds no records (DATASET/SETTING.json)")
    print(markdown(records), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
