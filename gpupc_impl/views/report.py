"""A self-contained HTML page of a run."""

from __future__ import annotations

import base64
import html as markup
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.registry import methods
from gpupc_impl.views.plots import as_svg, require
from gpupc_impl.views.plots.charts import degrees, seconds_per_level, tests_per_level
from gpupc_impl.views.plots.graph import has_many_variables, plot
from gpupc_impl.views.plots.heatmap import heatmap
from gpupc_impl.views.result import Result, skeleton_of
from gpupc_impl.views.text import edge_rows, facts, html_facts, html_table, level_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGES_LISTED = 1000
"""Upper bound on the edges that the page lists."""


def write(result: Result, path: str | Path) -> None:
    """See `core.shown.Shown.report`."""
    require()
    Path(path).write_text(page(result), encoding="utf-8")


def page(result: Result) -> str:
    """The page as HTML."""
    skeleton = skeleton_of(result)
    kind = "CPDAG" if isinstance(result, CPDAG) else "Skeleton"
    rows = edge_rows(result, EDGES_LISTED)
    listed = f"The first {EDGES_LISTED:,} of {skeleton.n_edges:,}." if skeleton.n_edges > EDGES_LISTED else ""
    graph = [] if has_many_variables(result) else [("Graph", _pictures(result, plot))]
    no_edge = "<p>There is no edge.</p>"
    parts = [
        ("What was found", html_facts(facts(result)) + f"<p>Stopped: {markup.escape(skeleton.stopped_because)}.</p>"),
        ("Data and test", html_facts(_test(result))),
        ("Levels", html_table(level_rows(result)) + _pictures(result, tests_per_level, seconds_per_level)),
        *graph,
        ("By community", _pictures(result, heatmap) if skeleton.n_edges else no_edge),
        ("Neighbours", _pictures(result, degrees)),
        ("Edges", f"<p>{listed}</p>{html_table(rows)}" if skeleton.n_edges else no_edge),
    ]
    body = "\n".join(f"<h2>{title}</h2>\n{content}" for title, content in parts)
    title = f"{kind} of {len(skeleton.names):,} variables"
    return _PAGE.format(title=title, body=body, version=importlib.import_module("gpupc_impl").__version__)


def _test(result: Result) -> list[tuple[str, str]]:
    """Names and values of the data, the test and the run, from the result's facts."""
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


def _pictures(result: Result, *draw: Callable[[Result], Axes]) -> str:
    pictures = (base64.b64encode(as_svg(lambda function=function: function(result))).decode() for function in draw)
    return "".join(f'<img alt="" src="data:image/svg+xml;base64,{picture}">' for picture in pictures)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 75em; color: #111; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin: 2em 0 .5em; border-bottom: 1px solid #ddd; }}
table {{ border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .15em .8em; text-align: left; overflow-wrap: anywhere; vertical-align: top; }}
tbody tr:nth-child(odd) {{ background: #f4f6f8; }}
thead th {{ border-bottom: 1px solid #111; }} tbody th {{ font-weight: normal; color: #555; }}
img {{ max-width: 100%; height: auto; margin: .5em 1em .5em 0; vertical-align: top; }}
</style></head><body><h1>{title}</h1>
{body}
<p>Made by gpupc {version}.</p>
</body></html>
"""
