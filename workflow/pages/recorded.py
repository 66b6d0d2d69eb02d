"""Writes what the recorded runs say into the documentation: ``python -m workflow.pages.recorded``.

The headlines go into README.md, from which the site has them. The verdicts about all claims of the papers, and what was
run how often for each table and figure, go into docs/verdicts, as CSV and HTML.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_csv
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import day
from gpupc_impl.reporting.catalogue import EVERY, Entry, entries
from gpupc_impl.reporting.claims import CLAIMS, headlines, in_markdown
from gpupc_impl.reporting.page import place
from gpupc_impl.reporting.runs import Source, heading, load, load_single_tests
from gpupc_impl.reporting.tables import Block, Table, plain, write_tables
from workflow.lib.plan import ROOT, Plan, recorded_plans
from workflow.lib.single_tests import DIMENSIONS

HEADLINES = "headlines: `make images`"  # the comment before the headlines


def replace(page: Path, parts: Mapping[str, str]) -> None:
    """Replace parts of a page, each between ``<!-- NAME -->`` and ``<!-- end -->``, by their names. ValueError is
    raised if the page lacks the comments of a part, and it stays as it is."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"the page has no comment {begin.strip()} with a comment {end} below it")
        text = f"{head}{begin}\n{part}\n\n{end}{tail}"
    page.write_text(text, encoding="utf-8")


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


def measured(plan: Plan) -> Block:
    """Return the table of what was run for each table and figure, and the heading of the recorded folder."""
    rows = []
    for entry in sorted(plan.outputs().values(), key=place):
        source = None if entry.family == EVERY or entry.name.endswith("_claims") else plan.recorded_source(entry)
        if source and (runs := _runs(entry, source)):
            datasets, settings, warm, environments = map(list, zip(*runs, strict=True))
            finished, days = sorted(filter(None, warm)), sorted(filter(None, map(day, environments)))
            row = {"paper": entry.paper, "table or figure": entry.title, "data sets": len(set(datasets))}
            row |= {"settings": len(set(settings)), "runs that finished": f"{len(finished)} of {len(runs)}"}
            row |= {"warm runs": " to ".join(dict.fromkeys(map(str, finished[:1] + finished[-1:])))}
            rows.append(row | {"measured": " to ".join(dict.fromkeys(days[:1] + days[-1:]))})
    notes = ["A run is a setting on a data set: a cold run, then warm ones. Of single tests, a data set is a case."]
    texts = [list(map(str, row.values())) for row in rows]
    everything = Source(plan.folder, "", {}, runs=list(open_published(plan.folder)))
    return heading(everything, {}), Table("What was run how often", list(rows[0]), texts, notes, rows)


def _runs(entry: Entry, source: Source) -> list[tuple[Any, str, int, Mapping[str, Any]]]:
    """Return the data set, the setting, the number of warm runs, 0 without an answer, and the environment of each."""
    if not entry.tests:
        asked = (run for run in load(source) if run.status != "skipped")
        return [(run.dataset, run.setting, len(run.time_s.warm) * run.ok, run.environment) for run in asked]
    timed = load_single_tests(source.files["tests"][0])
    found = []
    for cell in (cell for cell in timed["cells"] if cell["status"] != "skipped"):
        case, count = tuple(map(cell.get, DIMENSIONS)), len(cell["seconds"]) * (cell["status"] == "ok")
        found.append((case, cell["implementation"], count, timed["environments"][cell["backend"]]))
    return found


def write(root: Path) -> None:
    """Write the parts of the pages below a folder that is laid out like the project."""
    plans = recorded_plans({"recorded": None})
    claims = verdicts(plans, root / "docs/verdicts")
    outputs = {f"{kind}_path": root / "docs/verdicts" / f"runs.{kind}" for kind in ("csv", "html", "md")}
    write_tables(list(map(measured, plans)), **outputs)
    outputs["md_path"].unlink()
    table = headlines(claims, read_csv(ROOT / "results/reported/headlines.csv"))
    inside = "\n\n".join([in_markdown(table), *map(plain, table.notes)])
    replace(root / "README.md", {HEADLINES: inside})


if __name__ == "__main__":
    write(ROOT)
