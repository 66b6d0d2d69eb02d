"""Writes what the recorded runs say into the documentation: ``python -m workflow.pages.recorded``.

The headlines go into README.md, from which the site has them, and the verdicts about all claims of the papers into
docs/verdicts, as CSV and HTML.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.claims import CLAIMS, headlines, in_markdown
from gpupc_impl.reporting.tables import plain
from workflow.lib.plan import ROOT, Plan, recorded_plans

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


def write(root: Path) -> None:
    """Write the parts of the pages below a folder that is laid out like the project."""
    plans = recorded_plans({"recorded": None})
    claims = verdicts(plans, root / "docs/verdicts")
    table = headlines(claims, read_csv(ROOT / "results/reported/headlines.csv"))
    inside = "\n\n".join([in_markdown(table), *map(plain, table.notes)])
    replace(root / "README.md", {HEADLINES: inside})


if __name__ == "__main__":
    write(ROOT)
