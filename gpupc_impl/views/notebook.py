"""The HTML of a result or of a study in a notebook: a picture and styled tables."""

from __future__ import annotations

import html as markup
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpupc_impl.views.edges import edge_rows
from gpupc_impl.views.html import facts_table, picture, table
from gpupc_impl.views.optional import MissingPackage
from gpupc_impl.views.plots.excerpt import overview
from gpupc_impl.views.result import Result, n_edges, title_of
from gpupc_impl.views.text import facts, level_rows

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

ROWS_SHOWN = 10
"""Upper bound on the edges in a table."""

STYLE = """<style>
.gpupc table { border-collapse: collapse; margin: .4em 0; font-variant-numeric: tabular-nums; }
.gpupc th, .gpupc td { padding: .1em .7em; text-align: left !important; vertical-align: top; }
.gpupc .number, .gpupc .levels td, .gpupc .levels th { text-align: right !important; }
.gpupc thead th { border-bottom: 1px solid currentColor; }
.gpupc .facts th { font-weight: normal; opacity: .7; }
.gpupc .scroll { overflow-x: auto; } .gpupc img { max-width: 100%; height: auto; background: #fff; }
</style>"""


def html(result: Result) -> str:
    """The graph, the facts, the first edges and the levels of a result."""
    edges = n_edges(result)
    hint = "<code>.to_frame()</code> has all, <code>.report(path)</code> makes a page"
    parts = [
        _picture(lambda: overview(result)) if edges else "",
        facts_table(facts(result)),
        table(edge_rows(result, ROWS_SHOWN)) if edges else "",
        _more(edges, hint),
        table(level_rows(result), "levels"),
    ]
    return _shown(title_of(result), parts)


def study(title: str, frame: pandas.DataFrame, draw: Callable[[], Axes], hint: str) -> str:
    """The picture and the first rows of a study.

    Args:
        hint: markup that says where the other rows are.
    """
    cells = [tuple(map(_cell, row)) for row in frame.head(ROWS_SHOWN).itertuples(index=False, name=None)]
    rows = table([tuple(map(str, frame.columns)), *cells])
    return _shown(title, [_picture(draw), rows if cells else "<p>There is no edge.</p>", _more(len(frame), hint)])


def _shown(title: str, parts: list[str]) -> str:
    return f'<div class="gpupc">{STYLE}<b>{markup.escape(title)}</b>{"".join(parts)}</div>'


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
