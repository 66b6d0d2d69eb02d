"""Writes the report, one self-contained page with the headlines and every table and figure, by paper."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpupc_impl.reporting.catalogue import Entry
from gpupc_impl.reporting.tables import Table, html_body, html_page

ORDER = ("cuPC", "Out-of-Core", "gpuPC", "GPU-CMIknn", "pair-scan", "Authors' programs", "Accuracy", "Runtimes")
"""The order of the sections; further sections follow."""

LAYOUT = """<style>
body { max-width: 1200px; margin: 0 auto; padding: 1em; font-size: 14px; }
nav a { display: inline-block; padding: .2em .5em; }
h2.paper { font-size: 1.3em; font-weight: bold; border-bottom: 2px solid #111; }
details { margin: .4em 0; border: 1px solid #ddd; border-radius: 4px; }
summary { cursor: pointer; padding: .5em; font-weight: 600; background: #f6f7f8; }
details > :not(summary) { margin-left: .7em; margin-right: .7em; }
.figure img { display: block; width: 100%; min-width: 560px; max-width: 1000px; margin: auto; }
.long { min-width: 14em; }
.headlines :is(td:nth-child(3), td:nth-child(4)) { white-space: normal; }
.headlines td:last-child { min-width: 24em; }
@media (max-width: 1240px) {
  .headlines thead { display: none; }
  .headlines tr { display: block; padding: .5em 0; border-bottom: 1px solid #ddd; }
  .headlines td { display: inline-block; border: 0; padding: .1em .4em; min-width: 0; white-space: normal; }
  .headlines td:last-child { display: block; min-width: 0; max-width: none; }
  .headlines td:nth-child(3)::before { content: "reported "; color: #666; }
  .headlines td:nth-child(4)::before { content: "measured "; color: #666; }
}
</style>"""


def report_page(
    introduction: Sequence[str],
    headlines: Table,
    entries: Sequence[Entry],
    captions: Mapping[str, str],
    files: Mapping[str, Mapping[str, str | Path]],
) -> str:
    """Return the page as HTML.

    Args:
        introduction: sentences about this run, one paragraph each.
        headlines: see `reporting.headlines`.
        entries: the tables and figures that were made.
        captions: the captions of the entries, by name.
        files: the written files of the entries, by name and kind (see `Entry.outputs`).
    """
    rank = {paper: position for position, paper in enumerate(ORDER)}
    papers = sorted({entry.paper for entry in entries}, key=lambda paper: (rank.get(paper, len(rank)), paper))
    parts = [
        LAYOUT,
        *(f"<p>{html.escape(text)}</p>" for text in introduction),
        f'<div class="headlines">{headlines.html()}</div>',
    ]
    parts += [f"<p>{html.escape(note)}</p>" for note in headlines.notes]
    parts.append(
        "<nav>" + "".join(f'<a href="#{_anchor(paper)}">{html.escape(paper)}</a>' for paper in papers) + "</nav>"
    )
    for paper in papers:
        parts.append(f'<h2 class="paper" id="{_anchor(paper)}">{html.escape(paper)}</h2>')
        own = sorted((entry for entry in entries if entry.paper == paper), key=_place)
        for position, entry in enumerate(own):
            shown = " open" if position == 0 and paper in ORDER[:4] else ""
            caption = html.escape(captions[entry.name].replace("``", ""))
            parts.append(f"<details{shown}><summary>{html.escape(entry.title)}</summary><p>{caption}</p>")
            parts.append(_content(entry, files[entry.name]) + "</details>")
    return html_page("GPU versions of the PC algorithm, reproduced and verified", "\n".join(parts))


def _place(entry: Entry) -> tuple[bool, bool, int]:
    """Return what orders a paper's entries: figures and then tables, by the paper's numbers; those without one last."""
    number = re.match(r"(?:Fig\.|Table) (\d+)", entry.title)
    return not entry.figure, number is None, int(number[1]) if number else 0


def _anchor(paper: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in paper.lower())


def _content(entry: Entry, files: Mapping[str, str | Path]) -> str:
    """Return the embedded picture of a figure, or the tables of a table."""
    if not entry.figure:
        return html_body(Path(files["html"]).read_text(encoding="utf-8"))
    picture = base64.b64encode(Path(files["svg"]).read_bytes()).decode()
    name = html.escape(entry.title, quote=True)
    return f'<div class="scroll figure"><img alt="{name}" src="data:image/svg+xml;base64,{picture}"></div>'
