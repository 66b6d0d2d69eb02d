"""Writes the headlines of recorded runs between two marks of pages:
``python -m workflow.pages.headlines README.md docs/index.md``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.headlines import CLAIMS, headlines, in_markdown
from gpupc_impl.reporting.tables import plain
from workflow.lib.plan import ROOT, recorded_plans
from workflow.pages import marks


def recorded_claims() -> dict[str, list[Mapping[str, str]]]:
    """Return the claim tables of recorded runs, by paper; a paper without recorded runs has no table."""
    plans = recorded_plans({"recorded": None})
    claims = {}
    with tempfile.TemporaryDirectory() as folder:
        for paper in CLAIMS:
            entry = entries()[f"{paper}_claims"]
            if sources := [source for plan in plans if (source := plan.recorded_source(entry))]:
                outputs = {kind: f"{folder}/{paper}.{kind}" for kind in entry.outputs()}
                entry.write(sources, outputs)
                claims[paper] = read_csv(outputs["csv"])
    return claims


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.headlines", description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", help="Markdown files with the two marks")
    pages = parser.parse_args(argv).pages
    table = headlines(recorded_claims(), read_csv(ROOT / "results/reported/headlines.csv"))
    inside = "\n\n".join([in_markdown(table), *map(plain, table.notes)])
    for page in pages:
        try:
            marks.replace(page, {"headlines: `make images`": inside})
        except ValueError as error:
            parser.error(f"{page}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
