"""Writes what the recorded runs say into the documentation: ``python -m workflow.pages.recorded``.

The headlines go into README.md and docs/index.md, a table of what was run into docs/recorded.md, and the verdicts about
all claims of the papers into docs/verdicts, as CSV and HTML.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpupc_impl.core.files import read_csv
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.cells import status_word
from gpupc_impl.reporting.claims import CLAIMS, headlines, in_markdown
from gpupc_impl.reporting.tables import markdown, plain
from workflow.lib.plan import ROOT, Plan, recorded_plans
from workflow.pages import marks

HEADLINES, RUNS = "headlines: `make images`", "runs: `make images`"
"""The comments in pages before the parts that this script writes."""


def verdicts(plans: Sequence[Plan], folder: Path) -> dict[str, list[Mapping[str, str]]]:
    """Write the claim tables of recorded runs into a folder; returns their rows by paper."""
    claims = {}
    for paper in CLAIMS:
        entry = entries()[f"{paper}_claims"]
        if sources := [source for plan in plans if (source := plan.recorded_source(entry))]:
            outputs = {kind: folder / f"{entry.name}.{kind}" for kind in entry.outputs()}
            entry.write(sources, {kind: str(path) for kind, path in outputs.items()})
            outputs["md"].unlink()  # The page and the CSV hold the same.
            claims[paper] = read_csv(outputs["csv"])
    return claims


def runs(plans: Sequence[Plan]) -> str:
    """Return a Markdown table of what was run on each device: for each part of its config the data sets, the settings,
    the runs that have a time with the median number of their repeats, and how the other runs ended."""
    rows = []
    for plan in plans:
        published = open_published(plan.folder)
        for name in [*plan.families, *plan.experiments]:
            batches = [plan.batches[batch] for batch in plan.batches_of([name])]
            keys = [(dataset, each) for batch in batches for dataset in batch.datasets for each in batch.settings]
            ran = [published.record(*each) for each in keys if each in published]
            if ran:
                rows.append([Path(plan.folder).name, name, *_counts(ran)])
    header = ["device", "family or experiment", "data sets", "settings", "runs with a time", "repeats", "other runs"]
    return markdown(header, rows, numeric=range(2, 6))


def _counts(ran: Sequence[Record]) -> list[str]:
    timed = [record for record in ran if record.ok]
    others = Counter(status_word(record.status) for record in ran if not record.ok)
    repeats = f"{statistics.median(record.repeats for record in timed):g}" if timed else "–"
    names = [{record.dataset for record in ran}, {record.setting for record in ran}, timed]
    ended = ", ".join(f"{count} {word}" for word, count in sorted(others.items()))
    return [*(f"{len(them):,}" for them in names), repeats, ended or "–"]


def write(root: Path) -> None:
    """Write the parts of the pages below a folder that is laid out like the project."""
    plans = recorded_plans({"recorded": None})
    claims = verdicts(plans, root / "docs/verdicts")
    table = headlines(claims, read_csv(ROOT / "results/reported/headlines.csv"))
    inside = "\n\n".join([in_markdown(table), *map(plain, table.notes)])
    for page in ("README.md", "docs/index.md"):
        marks.replace(root / page, {HEADLINES: inside})
    marks.replace(root / "docs/recorded.md", {RUNS: runs(plans)})


if __name__ == "__main__":
    write(ROOT)
