"""A self-contained HTML page of a run."""

import base64
import html as markup
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.registry import methods
from gpupc_impl.views.plots import Axes, as_svg, require
from gpupc_impl.views.plots.charts import degrees, seconds_per_level, tests_per_level
from gpupc_impl.views.plots.graph import has_many_variables, plot
from gpupc_impl.views.plots.heatmap import heatmap
from gpupc_impl.views.result import Result, skeleton_of
from gpupc_impl.views.text import edge_rows, facts, html_facts, html_table, level_rows

EDGES_LISTED = 1000
"""Upper bound on the edges that the page lists."""

HUBS_LISTED, COMPONENTS_LISTED, SHOWN = 15, 8, 8
"""Upper bounds on the hubs and components that the page of a large graph lists, and on the names of a component."""


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
    no_edge = "<p>There is no edge.</p>"
    communities = ("By community", _pictures(result, heatmap) if skeleton.n_edges else no_edge)
    if has_many_variables(result):
        first = [("Hubs and components", _hubs(result)), communities]
    else:
        first = [("Graph", _pictures(result, plot))]
    parts = [
        *first,
        ("What was found", html_facts(facts(result)) + f"<p>Stopped: {markup.escape(skeleton.stopped_because)}.</p>"),
        ("Edges", f"<p>{listed}</p>{html_table(rows)}" if skeleton.n_edges else no_edge),
        *([] if communities in first else [communities]),
        ("Neighbours", _pictures(result, degrees)),
        ("Levels", html_table(level_rows(result)) + _pictures(result, tests_per_level, seconds_per_level)),
        ("Data and test", html_facts(_test(result))),
    ]
    body = "\n".join(f"<h2>{title}</h2>\n{content}" for title, content in parts)
    title = f"{kind} of {len(skeleton.names):,} variables"
    return _PAGE.format(title=title, body=body, version=importlib.import_module("gpupc_impl").__version__)


def _hubs(result: Result) -> str:
    """Tables of the variables with the most neighbours and of the largest connected components."""
    from scipy import sparse

    skeleton = skeleton_of(result)
    neighbours = skeleton.adjacency.sum(axis=1)
    hubs = np.argsort(-neighbours, kind="stable")[:HUBS_LISTED]
    _, labels = sparse.csgraph.connected_components(sparse.csr_array(skeleton.adjacency), directed=False)
    sizes = np.bincount(labels)
    largest = np.argsort(-sizes, kind="stable")[:COMPONENTS_LISTED]
    components = [
        (f"{sizes[label]:,}", ", ".join(skeleton.names[k] for k in members[:SHOWN]) + " …" * (len(members) > SHOWN))
        for label in largest
        if len(members := sorted(np.flatnonzero(labels == label), key=lambda k: -neighbours[k])) > 1
    ]
    return html_table(
        [("variable", "neighbours"), *((skeleton.names[k], f"{neighbours[k]:,}") for k in hubs if neighbours[k])]
    ) + html_table([("variables", "component, by number of neighbours"), *components])


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
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 75em; color: #111; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin: 2em 0 .5em; border-bottom: 1px solid #ddd; }}
table {{ display: block; overflow: auto; max-height: 40em;
  border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .15em .8em; text-align: left; overflow-wrap: anywhere; vertical-align: top; }}
thead th {{ position: sticky; top: 0; background: #fff; }} tbody th {{ min-width: 7em; }}
@media (max-width: 40em) {{ body {{ margin: 1em auto; padding: 0 .6em; }} th, td {{ padding: .15em .4em; }} }}
tbody tr:nth-child(odd) {{ background: #f4f6f8; }}
thead th {{ border-bottom: 1px solid #111; }} tbody th {{ font-weight: normal; color: #555; }}
img {{ max-width: 100%; height: auto; margin: .5em 1em .5em 0; vertical-align: top; }}
</style></head><body><h1>{title}</h1>
{body}
<p>Made by gpupc {version}.</p>
</body></html>
"""
