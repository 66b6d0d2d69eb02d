"""HTML of results and studies, in which markup characters in names are escaped: what a notebook shows, and the
self-contained page of a run."""

from __future__ import annotations

import base64
import html as markup
import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import read_text, write_whole
from gpupc_impl.core.registry import methods
from gpupc_impl.views import MissingPackage
from gpupc_impl.views.result import Result, degrees_of, edges_of, n_edges, name_of, skeleton_of
from gpupc_impl.views.text import Cell, edge_rows, facts, level_rows, repeated

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

SMALLEST_SCALE = 0.75  # of a picture, which scrolls sideways on a narrower page, so that its text stays readable
ROWS_SHOWN = 10  # upper bound on the edges in a table of a notebook
EDGES_LISTED = 5000  # upper bound on the edges that a page lists
HUBS_LISTED, COMPONENTS_LISTED, MEMBERS_SHOWN = 15, 10, 8  # the most on a page, and of names of a component


def facts_table(rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and values."""
    lines = "".join(f"<tr><th>{markup.escape(name)}</th><td>{markup.escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def table(rows: Sequence[Sequence[Cell]], kind: str = "") -> str:
    """A table, of this class in the page, whose first row is the header."""
    is_number = [isinstance(cell, tuple) for cell in rows[min(1, len(rows) - 1)]]

    def written(cell: Cell, tag: str, number: bool) -> str:
        text, value = (cell, "") if isinstance(cell, str) else (cell[0], f' data-value="{cell[1]:.17g}"')
        return f"<{tag}{' class=number' * number}{value}>{markup.escape(text)}</{tag}>"

    def line(cells: Sequence[Cell], tag: str) -> str:
        return f"<tr>{''.join(written(cell, tag, number) for cell, number in zip(cells, is_number, strict=True))}</tr>"

    body = "".join(line(row, "td") for row in rows[1:])
    named = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{named}><thead>{line(rows[0], "th")}</thead><tbody>{body}</tbody></table></div>'


def picture(draw: Callable[[], Axes], alt: str = "") -> str:
    """The picture that a function draws in new axes; MissingPackage if matplotlib is not installed."""
    from gpupc_impl.views.plots import image  # imports matplotlib

    svg = image(draw)
    width = float(re.search(rb'width="([0-9.]+)pt"', svg)[1])
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    style = f"min-width:{SMALLEST_SCALE * width:.0f}pt"
    return f'<div class="scroll"><img alt="{markup.escape(alt)}" src="{source}" style="{style}"></div>'


# --- what a notebook shows ---
def html(result: Result) -> str:
    """The graph, the facts, the first edges and the levels of a result."""
    edges = n_edges(result)
    parts = [
        _picture(lambda: _overview(result)) if edges else "",
        facts_table(facts(result)),
        table(edge_rows(result, ROWS_SHOWN)) if edges else "",
        _more(edges, "<code>.to_frame()</code> has all, <code>.report(path)</code> makes a page"),
        table(level_rows(result), "levels"),
    ]
    return _shown(name_of(result), parts)


def study(title: str, frame: pandas.DataFrame, draw: Callable[[], Axes]) -> str:
    """The picture of a study and the first rows of its ``to_frame()``."""
    cells = [tuple(map(_cell, row)) for row in frame.head(ROWS_SHOWN).itertuples(index=False, name=None)]
    rows = table([tuple(map(str, frame.columns)), *cells])
    more = _more(len(frame), "<code>.to_frame()</code>")
    return _shown(title, [_picture(draw), rows if cells else "<p>There is no edge.</p>", more])


def _shown(title: str, parts: list[str]) -> str:
    style = f"<style>\n{_resource('notebook.css')}</style>"
    return f'<div class="gpupc">{style}<b>{markup.escape(title)}</b>{"".join(parts)}</div>'


def _more(rows: int, hint: str) -> str:
    return f"<p>… and {rows - ROWS_SHOWN:,} more: {hint}</p>" if rows > ROWS_SHOWN else ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _picture(draw: Callable[[], Axes]) -> str:
    """The picture; the empty text if matplotlib is not installed."""
    try:
        return picture(draw)
    except MissingPackage:
        return ""


def _overview(result: Result) -> Axes:
    from gpupc_impl.views.plots.graph import overview

    return overview(result)


# --- the page of a run ---
def write(result: Result, path: str | Path) -> None:
    """See `core.result_views.ResultViews.report`."""
    from gpupc_impl.views.plots.charts import degrees
    from gpupc_impl.views.plots.graph import has_many_variables
    from gpupc_impl.views.plots.heatmap import heatmap

    skeleton = skeleton_of(result)
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML page, and {Path(path).name} does not end with .html")
    title = f"{name_of(result)} of {len(skeleton.names):,} variables"
    read = [("What was read", facts_table([*skeleton.reading.items()]))] if skeleton.reading else []
    outcome = [*facts(result), ("stopped", skeleton.stopped_because)]
    graph = picture(lambda: _overview(result), "the graph") if n_edges(result) else "<p>There is no edge.</p>"
    how = table(level_rows(result), "levels") + picture(lambda: degrees(result)) + facts_table(_run(result))
    parts = [
        graph,
        _columns(*read, ("What was found", facts_table(outcome))),
        f"<h2>Edges</h2>{_edges(result)}" if n_edges(result) else "",
        _hubs(result) if has_many_variables(result) else "",
        _folded("How it was searched", how),
        _folded("By community", picture(lambda: heatmap(result), "the adjacency matrix")) if n_edges(result) else "",
    ]
    page = _resource("report.html").format(
        title=title,
        style=_resource("report.css"),
        body="\n".join(filter(None, parts)),
        version=importlib.import_module("gpupc_impl").__version__,
        script=_resource("report.js"),
    )
    with write_whole(path) as file:  # A data file's name need not be UTF-8.
        file.write(page.encode(errors="backslashreplace"))


def _resource(name: str) -> str:
    return read_text(Path(__file__).with_name(name))


def _columns(*sections: tuple[str, str]) -> str:
    """Sections with a title each, side by side where the page is wide enough."""
    shown = (f"<section><h2>{title}</h2>{content}</section>" for title, content in sections)
    return f'<div class="columns">{"".join(shown)}</div>'


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _edges(result: Result) -> str:
    """The table of edges, and the number of edges that it omits."""
    skeleton, tests, notes = skeleton_of(result), repeated(result), []
    if n_edges(result) > EDGES_LISTED:
        notes.append(f"The first {EDGES_LISTED:,} of {n_edges(result):,}; save(path) writes all.")
    if tests is not None:
        notes.append("The test of each edge with the largest p-value, which came nearest to removing it.")
    elif skeleton.problem is not None and skeleton.pmax is None:
        notes.append("The tests of the edges would take long again: strengths() makes them, for p-values and effects.")
    paragraph = f"<p>{' '.join(notes)}</p>" if notes else ""
    return paragraph + table(edge_rows(result, EDGES_LISTED, tests), "listing")


def _hubs(result: Result) -> str:
    """Tables of the variables with the most neighbours and of the largest connected components."""
    from scipy.sparse import csgraph, csr_array

    edges, names = edges_of(result), skeleton_of(result).names
    neighbours = degrees_of(result)
    graph = csr_array((np.ones(len(edges)), edges.T), shape=(len(names), len(names)))
    _, component = csgraph.connected_components(graph, directed=False)
    ordered = np.lexsort((-neighbours, component))  # in a component those with more neighbours come first
    groups = np.split(ordered, np.flatnonzero(np.diff(component[ordered])) + 1)
    groups = sorted((group for group in groups if len(group) > 1), key=len, reverse=True)
    order = (-neighbours).argsort(kind="stable")[:HUBS_LISTED]
    hubs = [(names[k], (f"{neighbours[k]:,}", neighbours[k])) for k in order if neighbours[k]]
    largest = []
    for group in groups[:COMPONENTS_LISTED]:
        members = ", ".join(names[k] for k in group[:MEMBERS_SHOWN]) + ", …" * (len(group) > MEMBERS_SHOWN)
        largest.append(((f"{len(group):,}", len(group)), members))
    return _columns(
        ("Hubs", table([("variable", "neighbours"), *hubs])),
        (f"Largest of {len(groups):,} components", table([("variables", "with the most neighbours"), *largest])),
    )


def _run(result: Result) -> list[tuple[str, str]]:
    """Names and values of the problem, the method and the run, from the result's facts."""
    skeleton = skeleton_of(result)
    run: dict[str, Any] = dict(skeleton.facts)
    problem = run.pop("problem", {})
    params = run.pop("params", {})
    method = methods().get(run.get("method", ""))
    rows: list[tuple[str, Any]] = [] if method is None else [("family", method.family)]
    rows += [(name, value) for name, value in problem.items() if value is not None]
    rows += [*run.items(), *((f"parameter {name}", value) for name, value in params.items())]
    rows += [("undefined tests", skeleton.undefined_tests), ("pseudo-inverses", skeleton.pseudo_inverses)]
    return [(name.replace("_", " "), str(value)) for name, value in rows]
