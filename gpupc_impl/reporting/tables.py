"""Writes tables as CSV (plain numbers), Markdown, and HTML for the report, with one block of rows for each machine."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import write_csv, write_text
from gpupc_impl.reporting.sources import Heading

OF_PAPERS = ("paper", "reported")
"""The values of a CSV's column ``source`` for the papers' own numbers, which belong to no machine of ours."""


VERDICT_COLOURS = {
    **{"holds": "#cdeedd", "more": "#d3e6fa", "stronger": "#d3e6fa"},
    **dict.fromkeys(("less", "weaker", "less and more", "mixed"), "#ffe2c4"),
    **dict.fromkeys(("modelled", "chained"), "#e6dcf5"),
    **dict.fromkeys(("not run", "not comparable"), "#eeeeee"),
}
"""The background of a verdict in HTML."""


FOLDED_BELOW = 0.5
"""A machine's table of verdicts is folded away if a smaller share of its rows has one."""


def plain(text: str) -> str:
    """A text as Markdown shows it: what would be HTML, a link or a new line in it stays text of the same line."""
    return _MARKUP.sub(lambda markup: html.escape(markup.group()).replace("(", "\\("), " ".join(text.splitlines()))


_MARKUP = re.compile(r"<(?=[a-z/!?])|&(?=#?\w+;)|(?<=\])[(]", re.IGNORECASE)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[int] = ()) -> str:
    """Return a table in Markdown, without a line break at its end; cells are `plain` texts.

    Args:
        numeric: the columns that are aligned to the right.
    """
    rule = ["---:" if column in numeric else "---" for column in range(len(header))]
    lines = (header, rule, *rows)
    return "\n".join("| " + " | ".join(plain(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table ready to be written.

    Attributes:
        title: the title, which is one line.
        header, rows: the cells of Markdown and HTML.
        notes: sentences below the table: machines, the meaning of marks, and the reasons for missing numbers.
        plain: rows for the CSV.
        left: the columns that hold text.
        verdict: the column of verdicts, which are coloured.
        columns: the first columns of the CSV, if its rows do not determine them (see `write_csv`).
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    plain: Sequence[Mapping[str, Any]]
    left: Sequence[int] = (0, 1)
    columns: Sequence[str] = ()
    verdict: int | None = None

    @property
    def judged_share(self) -> float:
        """The share of the rows that have a verdict other than "not run"; 1 for a table without verdicts."""
        if self.verdict is None or not self.rows:
            return 1.0
        return sum(row[self.verdict] != "not run" for row in self.rows) / len(self.rows)

    def markdown(self) -> str:
        """Return the table in Markdown; a table without rows is empty, without its header."""
        return markdown(self.header, self.rows) if self.rows else ""

    def html(self) -> str:
        """Return the table in HTML; a table without rows is empty, without its header."""
        if not self.rows:
            return ""
        classes = [""] * len(self.header)
        for column in self.left:
            long = any(len(row[column]) > 30 for row in self.rows)
            classes[column] = f' class="text{" long" if long else ""}"'

        def cell(text: str, column: int, tag: str) -> str:
            colour = VERDICT_COLOURS.get(text) if column == self.verdict else None
            style = f' style="background: {colour}"' if colour else ""
            return f"<{tag}{classes[column]}{style}>{html.escape(text)}</{tag}>"

        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(cell(text, column, tag) for column, text in enumerate(cells)) + "</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        head = line(self.header, "th")
        return f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


Block = tuple[Heading, Table]
"""The table of one machine."""


def write_tables(blocks: Sequence[Block], csv_path: str | Path, md_path: str | Path, html_path: str | Path) -> None:
    """Write the tables of several machines as blocks below each other, and one CSV of all their rows."""
    write_csv(csv_path, *csv_rows([(heading, table.plain, table.columns) for heading, table in blocks]))
    write_text(md_path, _markdown_page(blocks))
    write_text(html_path, _html_page(blocks))


def csv_rows(
    blocks: Sequence[tuple[Heading, Sequence[Mapping[str, Any]], Sequence[str]]],
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the rows of several machines, with the machine in the first column ``device``, and the columns' names.

    The papers' own numbers appear once, without a machine.

    Args:
        blocks: the heading, rows and columns of each machine.
    """
    rows: list[Mapping[str, Any]] = []
    columns: dict[str, None] = {}
    printed: set[str] = set()
    for heading, own, names in blocks:
        columns |= dict.fromkeys(["device", *names])
        for row in own:
            if row.get("source") in OF_PAPERS:
                if str(row) not in printed:
                    rows.append({"device": "", **row})
                printed.add(str(row))
            else:
                rows.append({"device": heading.name, **row})
    return rows, list(columns)


def _notes(blocks: Sequence[Block]) -> tuple[list[list[str]], list[str]]:
    """Return the notes of each block, and the notes that all of several blocks share."""
    if len(blocks) == 1:
        return [list(blocks[0][1].notes)], []
    shared = [note for note in blocks[0][1].notes if all(note in table.notes for _, table in blocks)]
    return [[note for note in table.notes if note not in shared] for _, table in blocks], shared


def _markdown_page(blocks: Sequence[Block]) -> str:
    own, shared = _notes(blocks)
    parts = [f"**{plain(blocks[0][1].title)}**\n\n"]
    for (heading, table), notes in zip(blocks, own, strict=True):
        parts.append(f"**{plain(str(heading))}**\n\n" + (f"{table.markdown()}\n\n" if table.rows else ""))
        parts.append("".join(f"- {plain(note)}\n" for note in notes) + "\n" * bool(notes and len(blocks) > 1))
    if shared:
        parts.append("All of these:\n\n" + "".join(f"- {plain(note)}\n" for note in shared))
    return "".join(parts)


def _html_page(blocks: Sequence[Block]) -> str:
    own, shared = _notes(blocks)
    parts = []
    for (heading, table), notes in zip(blocks, own, strict=True):
        look, text = "gpu" if heading.gpu else "cpu", html.escape(heading.text)
        title = f'<h2 class="{look}"><span>{heading.kind}</span> {text}</h2>'
        content = f"{table.html()}\n{_html_list(notes)}"
        if len(blocks) > 1 and table.judged_share < FOLDED_BELOW:
            content = f"<details><summary>{_count_of_verdicts(table)}</summary>\n{content}\n</details>"
        parts += [title, content]
    return html_page(blocks[0][1].title, "\n".join([*parts, *([_html_list(shared)] if shared else [])]))


def html_page(title: str, body: str) -> str:
    """Return a self-contained page of tables, which are sorted by a click on a column's head."""
    return _HTML.format(title=html.escape(title), style=STYLE, body=body, script=SORT)


def html_body(page: str) -> str:
    """Return the tables of a page that `html_page` made, without its title."""
    return page.partition("</h1>\n")[2].partition("\n<script>")[0]


def _count_of_verdicts(table: Table) -> str:
    judged = round(len(table.rows) * table.judged_share)
    return f"{judged} of {len(table.rows)} sentences have a number of this machine: show them"


def _html_list(notes: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>"


STYLE = """
body { font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff; }
h1 { font-size: 1.2em; }
h2 { font-size: 1em; font-weight: normal; margin: 1.8em 0 .6em; padding: .2em .6em .2em 0; }
h2 span { display: inline-block; font-weight: bold; color: #fff; padding: .2em .7em; margin: -.2em .4em -.2em 0; }
h2.gpu, h2.cpu { display: flex; align-items: start; }
h2 span { flex: none; }
.gpu { background: #d9f0e8; } .gpu span { background: #00785a; }
.cpu { background: #e8e8e8; } .cpu span { background: #666; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .6em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #111; vertical-align: bottom; white-space: normal; cursor: pointer; }
.text { text-align: left; }
.long { white-space: normal; overflow-wrap: anywhere; min-width: 18em; max-width: 30em; }
tr:hover td { background: #f4f6f8; }
ul { padding-left: 1.2em; max-width: 60em; color: #444; overflow-wrap: anywhere; }
"""

SORT = """
document.addEventListener("click", event => {
  const head = event.target.closest("th"), table = head && head.closest("table");
  if (!head) return;
  const column = head.cellIndex, down = head.dataset.down = head.dataset.down ? "" : "1";
  const value = row => row.cells[column].textContent;
  const number = text => parseFloat(text.replace(/[^0-9.eE-]/g, ""));
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = value(a), y = value(b), p = number(x), q = number(y);
    return isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q;
  });
  table.tBodies[0].append(...(down ? rows : rows.reverse()));
});
"""

_HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body><h1>{title}</h1>
{body}
<script>{script}</script>
</body></html>
"""
