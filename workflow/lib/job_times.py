"""Prints when each job of a workflow ran, and what the core sets of measurements waited for.

``python -m workflow.lib.job_times [FOLDER]`` reads what the last run in a folder left: Snakemake's metadata of every
output and, if the cores were divided (`workflow.lib.core_sets`), the times at which a set was asked for, taken and
released. A job that ran more than once is shown with its last run.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from workflow.lib.core_sets import TIMES

WIDTH = 72
"""The width in characters of a bar that covers the whole run."""


class Span(NamedTuple):
    """A job, or the use of a core set by a job: when it was asked for, began and ended, in Unix seconds."""

    name: str
    asked: float
    start: float
    end: float


def jobs(folder: Path) -> list[Span]:
    """Return the last run of each job of which Snakemake kept metadata; the name of a job is that of its log."""
    found: dict[str, Span] = {}
    for path in (folder / ".snakemake/metadata").iterdir():
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.get("starttime") and facts.get("endtime"):
            name = str(Path(facts["log"][0]).with_suffix("").relative_to("logs")) if facts["log"] else facts["rule"]
            job = Span(name, facts["starttime"], facts["starttime"], facts["endtime"])
            found[name] = max(job, found.get(name, job))
    return sorted(found.values(), key=lambda job: (job.start, job.name))


def stays(folder: Path, since: float) -> list[Span]:
    """Return the uses of core sets by jobs since a time, in the order in which the sets were taken."""
    path = folder / TIMES
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(f"{name}: {job}", *map(float, times)) for name, job, *times in csv.reader(file)]
    return sorted((Span(*row) for row in rows if row[1] >= since), key=lambda stay: (stay.name[:4], stay.start))


def chart(spans: Sequence[Span], begin: float, end: float) -> list[str]:
    """Return a line for each span: its start and seconds, the name, and a bar of dots while it waited and hashes while
    it ran."""
    scale = WIDTH / max(end - begin, 1e-9)
    lines = []
    for span in spans:
        first, taken, last = (round((each - begin) * scale) for each in span[1:])
        bar = " " * first + "." * (taken - first) + "#" * max(1, last - taken)
        lines.append(f"{span.start - begin:7.1f} {span.end - span.start:7.1f}  {span.name[:44]:44} {bar}")
    return lines


def report(folder: Path) -> str:
    """Return the charts of the jobs and of the core sets, and for how long each kind of core set was taken."""
    ran = jobs(folder)
    if not ran:
        return "Snakemake has no metadata here; give the folder in which it ran"
    begin, end = min(job.start for job in ran), max(job.end for job in ran)
    lines = [f"{end - begin:.1f} s, {len(ran)} jobs", "  start seconds", *chart(ran, begin, end)]
    if measured := stays(folder, begin - 1):
        lines += ["", "core sets (. waiting, # measuring)", *chart(measured, begin, end)]
        for kind in ("gpu", "references"):
            seconds = sum(stay.end - stay.start for stay in measured if stay.name.startswith(kind))
            lines.append(f"{kind}: taken for {seconds:.1f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
