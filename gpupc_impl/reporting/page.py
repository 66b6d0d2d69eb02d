"""Writes the report, one self-contained page with the headlines and every table and figure, by paper."""

import base64
import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpupc_impl.reporting.catalogue import Entry
from gpupc_impl.reporting.runs import by_key
from gpupc_impl.reporting.tables import Table, html_body, html_page, resource
from gpupc_impl.verification.verify import misses_nothing

ORDER = ("cuPC", "Out-of-Core", "gpuPC", "GPU-CMIknn", "Authors' programs", "Runtimes")
"""The order of the sections; further sections follow."""

FIRST = "overview"  # the figure that stands at the top of the report

KNOWN = ("alone", "random", "near-threshold", "convention", "explained")
"""The statuses of the verification of answers that differ for a known reason, or that no other answer is there for."""

LIMITS = ("timeout", "oom", "refused")


def outcome(records: Sequence[Mapping[str, str]], verification: Iterable[Mapping[str, str]]) -> tuple[bool, str]:
    """Return whether every answer of this machine is right as far as is known, and a sentence that counts them."""
    rows = {(row["dataset"], row["setting"]): row for row in verification}
    there = {row["dataset.name"] for row in records if row["status"] != "skipped"}
    ended: dict[str, list[str]] = {}
    absent: Counter[str] = Counter()
    for row in records:
        run = row["dataset.name"], row["setting"]
        end = row["status"]
        if end == "ok":
            end = rows[run]["status"] if run in rows else "not verified"
        elif end == "skipped" and run[0] in there and run in rows and misses_nothing(rows[run]):
            end = "not run"  # only a compiler or a GPU is missing
        ended.setdefault(end, []).append(" ".join(run))
        if end == "skipped" and not row["why"].startswith("the config measures"):
            absent[row["why"].partition(": ")[0]] += 1  # the addresses that were tried follow
    equal, known, limited = (sum(len(ended.get(e, [])) for e in ends) for ends in (["equal"], KNOWN, LIMITS))
    differ = [run for end in ("unexplained", "not verified") for run in ended.get(end, [])]
    fine_ends = {"equal", *KNOWN, *LIMITS, "skipped", "unexplained", "not verified"}
    failed = [run for end, runs in ended.items() if end not in fine_ends for run in runs]
    parts = [f"{equal:,} answers equal", _named(differ, "differ"), _named(failed, "failed")]
    parts += [f"{known:,} known to differ, or without another to compare with"] * bool(known)
    parts += [f"{limited:,} ended at a limit of time or memory"] * bool(limited)
    parts += [f"{count:,} not there: {why}" for why, count in absent.items()] or ["none is missing"]
    return bool(equal) and not differ and not failed, f"This machine: {'; '.join(parts)}."


def _named(runs: Sequence[str], word: str) -> str:
    """Return how many runs ended so, with the names of the first few."""
    names = f" ({', '.join(runs[:5])}{', …' * (len(runs) > 5)})" if runs else ""
    return f"{len(runs):,} {word}{names}"


def report_page(
    state: tuple[bool, str],
    introduction: Sequence[str],
    headlines: Table,
    entries: Sequence[Entry],
    captions: Mapping[str, str],
    files: Mapping[str, Mapping[str, str | Path]],
) -> str:
    """Return the page as HTML: the `outcome` of this machine, the headlines, paragraphs about this run, and the tables
    and figures that were made, whose captions and files (by kind, see `Entry.outputs`) are given by name."""
    papers = by_key(sorted(entries, key=place), lambda entry: entry.paper)
    picture = next((_content(entry, files[entry.name]) for entry in entries if entry.name == FIRST), "")
    anchors = {paper: re.sub(r"\W", "-", paper.lower()) for paper in papers}
    links = "".join(f'<a href="#{anchors[paper]}">{html.escape(paper)}</a>' for paper in papers)
    parts = [
        f"<style>{resource('report.css')}</style>",
        f'<p class="{"good" if state[0] else "bad"}">{html.escape(state[1])}</p>',
        *(f"<p><b>{html.escape(note)}</b></p>" for note in headlines.notes),
        picture,
        f'<div class="headlines">{headlines.html()}</div>',
        *(f"<p>{html.escape(text)}</p>" for text in introduction),
        f"<nav>{links}</nav>",
    ]
    for paper, own in papers.items():
        parts.append(f'<h2 class="paper" id="{anchors[paper]}">{html.escape(paper)}</h2>')
        for position, entry in enumerate(own):
            shown = " open" if position == 0 and paper in ORDER[:4] else ""
            caption = html.escape(captions[entry.name].replace("``", ""))
            parts.append(f"<details{shown}><summary>{html.escape(entry.title)}</summary><p>{caption}</p>")
            at_top = "<p>The figure stands at the top of the page.</p>" if entry.name == FIRST else ""
            parts.append((at_top or _content(entry, files[entry.name])) + "</details>")
    return html_page("GPU versions of the PC algorithm, reproduced and verified", "\n".join(parts))


def place(entry: Entry) -> tuple[int, str, bool, bool, int]:
    """Return what orders entries: by paper, figures and then tables, by the paper's numbers; those without one last."""
    rank = ORDER.index(entry.paper) if entry.paper in ORDER else len(ORDER)
    number = re.match(r"(?:Fig\.|Tables?) (\d+)", entry.title)
    return rank, entry.paper, not entry.figure, number is None, int(number[1]) if number else 0


def _content(entry: Entry, files: Mapping[str, str | Path]) -> str:
    """Return the embedded picture of a figure, or the tables of a table."""
    if not entry.figure:
        return html_body(Path(files["html"]).read_text(encoding="utf-8"))
    picture = base64.b64encode(Path(files["svg"]).read_bytes()).decode()
    name = html.escape(entry.title, quote=True)
    return f'<div class="scroll figure"><img alt="{name}" src="data:image/svg+xml;base64,{picture}"></div>'
