"""A self-contained HTML page of a run: the graph, the facts of data and result, the edges, and folded sections."""

import importlib
import importlib.resources
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import write_whole
from gpupc_impl.core.registry import methods
from gpupc_impl.views import edges
from gpupc_impl.views.html import facts_table, picture, table
from gpupc_impl.views.plots import require
from gpupc_impl.views.plots.charts import degrees, seconds_per_level, tests_per_level
from gpupc_impl.views.plots.excerpt import components, overview
from gpupc_impl.views.plots.graph import has_many_variables
from gpupc_impl.views.plots.heatmap import heatmap
from gpupc_impl.views.result import Result, adjacency_of, n_edges, skeleton_of, title_of
from gpupc_impl.views.text import facts, level_rows

EDGES_LISTED = 5000
"""Upper bound on the edges that the page lists."""

HUBS_LISTED, COMPONENTS_LISTED, MEMBERS_SHOWN = 15, 10, 8
"""Upper bounds on the hubs and components that the page of a large graph lists, and on the names of a component."""


def write(result: Result, path: str | Path) -> None:
    """See `core.result_views.ResultViews.report`."""
    require()
    with write_whole(path) as file:  # A data file's name need not be UTF-8.
        file.write(page(result).encode(errors="backslashreplace"))


def page(result: Result) -> str:
    """Return the page as HTML."""
    skeleton = skeleton_of(result)
    title = f"{title_of(result)} of {len(skeleton.names):,} variables"
    reading = list((skeleton.reading or {}).items())
    outcome = [*facts(result), ("stopped", skeleton.stopped_because)]
    graph = picture(lambda: overview(result), "the graph") if n_edges(result) else "<p>There is no edge.</p>"
    parts = [
        graph,
        _columns(
            ("What was read", facts_table(reading)) if reading else None, ("What was found", facts_table(outcome))
        ),
        f"<h2>Edges</h2>{_edges(result)}" if n_edges(result) else "",
        _hubs(result) if has_many_variables(result) else "",
        _folded("How it was searched", _how(result)),
        _folded("By community", picture(lambda: heatmap(result), "the adjacency matrix")) if n_edges(result) else "",
    ]
    files = importlib.resources.files("gpupc_impl.views")
    return _PAGE.format(
        title=title,
        style=files.joinpath("report.css").read_text(encoding="utf-8"),
        body="\n".join(filter(None, parts)),
        version=importlib.import_module("gpupc_impl").__version__,
        script=files.joinpath("report.js").read_text(encoding="utf-8"),
    )


def _columns(*sections: tuple[str, str] | None) -> str:
    """Sections with a title each, side by side where the page is wide enough."""
    shown = (f"<section><h2>{section[0]}</h2>{section[1]}</section>" for section in sections if section)
    return f'<div class="columns">{"".join(shown)}</div>'


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _edges(result: Result) -> str:
    """The table of edges, and the number of edges that it omits."""
    skeleton = skeleton_of(result)
    tests = edges.repeated(result)
    notes = []
    if n_edges(result) > EDGES_LISTED:
        notes.append(f"The first {EDGES_LISTED:,} of {n_edges(result):,}; save(path) writes all.")
    if tests is not None:
        notes.append("The test of each edge with the largest p-value, which came nearest to removing it.")
    elif skeleton.problem is not None and skeleton.pmax is None:
        notes.append("The tests of the edges would take long again: strengths() makes them, for p-values and effects.")
    paragraph = f"<p>{' '.join(notes)}</p>" if notes else ""
    return paragraph + table(edges.edge_rows(result, EDGES_LISTED, tests), "listing")


def _hubs(result: Result) -> str:
    """Tables of the variables with the most neighbours and of the largest connected components."""
    adjacency, names = adjacency_of(result), skeleton_of(result).names
    neighbours, groups = adjacency.sum(axis=1), components(adjacency)
    order = (-neighbours).argsort(kind="stable")[:HUBS_LISTED]
    hubs = [(names[k], (f"{neighbours[k]:,}", neighbours[k])) for k in order if neighbours[k]]
    largest = [
        (
            (f"{len(group):,}", len(group)),
            ", ".join(names[k] for k in group[:MEMBERS_SHOWN]) + ", …" * (len(group) > MEMBERS_SHOWN),
        )
        for group in groups[:COMPONENTS_LISTED]
    ]
    return _columns(
        ("Hubs", table([("variable", "neighbours"), *hubs])),
        (f"Largest of {len(groups):,} components", table([("variables", "with the most neighbours"), *largest])),
    )


def _how(result: Result) -> str:
    """The levels as a table and as charts, and the facts of the run."""
    charts = (picture(lambda draw=draw: draw(result)) for draw in (degrees, tests_per_level, seconds_per_level))
    levels = table(level_rows(result), "levels")
    return f'{levels}<div class="charts">{"".join(charts)}</div>{facts_table(_run(result))}'


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


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
{style}</style></head><body><h1>{title}</h1>
{body}
<p>Made by gpupc {version}.</p>
<script>
{script}</script></body></html>
"""
