"""Tables, and what writes them as CSV (plain numbers), Markdown, and HTML for the report.

Each machine has a block of rows of its own.
"""

import dataclasses
import html
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_text, write_csv, write_text
from gpupc_impl.reporting.runs import Heading

VERDICT_COLOURS = {
    **{"holds": "#cdeedd", "holds more strongly": "#d3e6fa", "holds less strongly": "#ffe2c4"},
    **{"contradicted": "#f8cccc", "cannot be judged": "#eeeeee"},
}
"""The background of a verdict in HTML."""

FOLDED_BELOW = 0.5  # a machine's table of verdicts is folded away if a smaller share of its rows has one


@dataclasses.dataclass(frozen=True)
class Table:
    """A table ready to be written: the cells of Markdown and HTML, sentences below them, and the rows of the CSV
    (`plain`). The columns `left` hold text, and the column `verdict` verdicts, which are coloured."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    plain: Sequence[Mapping[str, Any]]
    left: Sequence[int] = (0, 1)
    verdict: int | None = None

    @property
    def judged(self) -> int:
        """The number of rows that could be judged; all rows of a table without verdicts."""
        return sum(self.verdict is None or row[self.verdict] != "cannot be judged" for row in self.rows)

    def html(self) -> str:
        """Return the table in HTML; a table without rows is empty, without its header."""
        if not self.rows:
            return ""
        classes = [""] * len(self.header)
        for column in self.left:
            long = any(len(row[column]) > 30 for row in self.rows)
            classes[column] = f' class="text{" long" if long else ""}"'

        def line(cells: Sequence[str], tag: str) -> str:
            return f"<tr>{''.join(cell(text, column, tag) for column, text in enumerate(cells))}</tr>"

        def cell(text: str, column: int, tag: str) -> str:
            colour = VERDICT_COLOURS.get(text) if column == self.verdict else None
            style = f' style="background: {colour}"' if colour else ""
            return f"<{tag}{classes[column]}{style}>{html.escape(text)}</{tag}>"

        body = "\n".join(line(row, "td") for row in self.rows)
        head = line(self.header, "th")
        return f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


Block = tuple[Heading, Table]


def write_tables(blocks: Sequence[Block], csv_path: str | Path, md_path: str | Path, html_path: str | Path) -> None:
    """Write the tables of several machines as blocks below each other, and one CSV of all their rows."""
    write_csv(csv_path, csv_rows([(heading, table.plain) for heading, table in blocks]))
    write_text(md_path, _markdown_page(blocks))
    write_text(html_path, _html_page(blocks))


def csv_rows(blocks: Sequence[tuple[Heading, Sequence[Mapping[str, Any]]]]) -> list[Mapping[str, Any]]:
    """Return the rows of several machines, with the machine in the first column ``device``. The papers' own numbers
    (``source`` is "paper") appear once, without a machine."""
    rows: dict[str, Mapping[str, Any]] = {}
    for heading, own in blocks:
        for row in own:
            named = {"device": "" if row.get("source") == "paper" else heading.name, **row}
            key = str(named) if row.get("source") == "paper" else str(len(rows))
            rows.setdefault(key, named)
    return list(rows.values())


def plain(text: str) -> str:
    """Return a text as Markdown shows it, on one line, with nothing that would be HTML or a link."""
    return _MARKUP.sub(lambda markup: html.escape(markup.group()).replace("(", "\\("), " ".join(text.splitlines()))


_MARKUP = re.compile(r"<(?=[a-z/!?])|&(?=#?\w+;)|(?<=\])[(]", re.IGNORECASE)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[int] = ()) -> str:
    """Return a table of `plain` texts in Markdown, with `numeric` columns aligned to the right."""
    rule = ["---:" if column in numeric else "---" for column in range(len(header))]
    cells = [[plain(cell).replace("|", "\\|") for cell in line] for line in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


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
        parts.append(f"**{plain(str(heading))}**\n\n")
        if table.rows:
            parts.append(f"{markdown(table.header, table.rows)}\n\n")
        parts.append("".join(f"- {plain(note)}\n" for note in notes) + "\n" * bool(notes and len(blocks) > 1))
    if shared:
        parts.append("All of these:\n\n" + "".join(f"- {plain(note)}\n" for note in shared))
    return "".join(parts)


def _html_page(blocks: Sequence[Block]) -> str:
    own, shared = _notes(blocks)
    parts = []
    for (heading, table), notes in zip(blocks, own, strict=True):
        look, text = "gpu" if heading.gpu else "cpu", html.escape(heading.text)
        content = f"{table.html()}\n{_html_list(notes)}"
        if parts and table.judged < FOLDED_BELOW * len(table.rows):
            summary = f"{table.judged} of {len(table.rows)} sentences can be judged on this machine: show them"
            content = f"<details><summary>{summary}</summary>\n{content}\n</details>"
        parts += [f'<h2 class="{look}"><span>{heading.kind}</span> {text}</h2>', content]
    return html_page(blocks[0][1].title, "\n".join([*parts, *([_html_list(shared)] if shared else [])]))


def _html_list(notes: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>"


def html_page(title: str, body: str) -> str:
    """Return a self-contained page of tables, which are sorted by a click on a column's head."""
    frame, style, script = (resource(f"page.{kind}") for kind in ("html", "css", "js"))
    return frame.format(title=html.escape(title), style=style, body=body, script=script)


def resource(name: str) -> str:
    return read_text(Path(__file__).with_name(name))


def html_body(page: str) -> str:
    """Return the tables of a page that `html_page` made, without its title."""
    return page.partition("</h1>\n")[2].partition("\n<script>")[0]
