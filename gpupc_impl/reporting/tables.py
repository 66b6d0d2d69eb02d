"""A table, written as CSV (plain numbers), Markdown, and HTML for the report."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import write_csv


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[int] = ()) -> str:
    """A table in Markdown, without a line break at its end.

    Args:
        numeric: the columns that are set flush right.
    """
    rule = ["---:" if column in numeric else "---" for column in range(len(header))]
    lines = (header, rule, *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table ready to be written.

    Attributes:
        title: one line.
        header, rows: what Markdown and HTML show.
        notes: sentences below it: what was measured where, what the marks mean, why something is missing.
        plain: rows for the CSV.
        left: the columns that hold text.
        columns: those that the CSV begins with, where its rows do not say (see `write_csv`).
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    plain: Sequence[Mapping[str, Any]]
    left: Sequence[int] = (0, 1)
    columns: Sequence[str] = ()

    def write(self, csv_path: str | Path, md_path: str | Path, html_path: str | Path) -> None:
        write_csv(csv_path, self.plain, self.columns)
        Path(md_path).write_text(self.markdown(), encoding="utf-8")
        Path(html_path).write_text(self.html(), encoding="utf-8")

    def markdown(self) -> str:
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"**{self.title}**\n\n{markdown(self.header, self.rows)}\n\n{notes}"

    def html(self) -> str:
        classes = [""] * len(self.header)
        for column in self.left:
            long = any(len(row[column]) > 30 for row in self.rows)
            classes[column] = f' class="text{" long" if long else ""}"'

        def line(cells: Sequence[str], tag: str) -> str:
            pairs = zip(cells, classes, strict=True)
            return "<tr>" + "".join(f"<{tag}{name}>{html.escape(cell)}</{tag}>" for cell, name in pairs) + "</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return _HTML.format(title=html.escape(self.title), head=line(self.header, "th"), body=body, notes=notes)


_HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff; }}
h1 {{ font-size: 1.2em; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25em .6em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }}
th {{ border-bottom: 2px solid #111; vertical-align: bottom; white-space: normal; }}
.text {{ text-align: left; }}
.long {{ white-space: normal; overflow-wrap: anywhere; min-width: 18em; max-width: 30em; }}
tr:hover td {{ background: #f4f6f8; }}
ul {{ padding-left: 1.2em; max-width: 60em; color: #444; overflow-wrap: anywhere; }}
</style></head><body><h1>{title}</h1>
<table><thead>{head}</thead><tbody>
{body}
</tbody></table><ul>{notes}</ul></body></html>
"""
