"""Graphs as files of other programs, and as pcalg's matrix.

In GraphML, GML and JSON an undirected edge of a CPDAG is two opposite arcs, as in ``CPDAG.to_networkx()``; their
``kind`` tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.files import no_formula
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.views.result import Result, numbered_edges, skeleton_of

if TYPE_CHECKING:
    import pandas


class CannotWrite(ValueError):
    """A graph cannot be written in a format; the message names it, the reason and the way out."""


def write(result: Result, path: Path) -> None:
    """Write the graph by suffix, one of `WRITERS`.

    Raises:
        CannotWrite: another suffix, or names that the format cannot hold.
    """
    if path.suffix not in WRITERS:
        raise CannotWrite(f"cannot write {path.name!r}: the suffix must be one of .npz, {', '.join(WRITERS)}")
    WRITERS[path.suffix](result, path)


def _csv(result: Result, path: Path) -> None:
    result.to_frame().map(no_formula).to_csv(path, index=False)


def _graphml(result: Result, path: Path) -> None:
    import networkx

    for name in result.names:
        if found := _NOT_XML.search(name):
            raise CannotWrite(
                f"cannot write {path.name!r}: variable {name!r} has the character {found.group()!r}, which XML cannot "
                "hold; rename it, or write .json"
            )
    networkx.write_graphml(result.to_networkx(), path)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write (section 2.2)."""


def _gml(result: Result, path: Path) -> None:
    import networkx

    networkx.write_gml(result.to_networkx(), path)


def _json(result: Result, path: Path) -> None:
    import networkx

    graph = result.to_networkx()
    graph.graph.update(skeleton_of(result).facts)
    content = networkx.node_link_data(graph, edges="edges")
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _dot(result: Result, path: Path) -> None:
    """Graphviz: an edge is written once; nodes are numbered, since an identifier cannot hold every name."""
    arrow = "->" if isinstance(result, CPDAG) else "--"
    lines = [f"{'digraph' if arrow == '->' else 'graph'} {{", "  node [shape=box];"]
    lines += [f"  v{k} [label={_quoted(name)}];" for k, name in enumerate(result.names)]
    looks = _DOT_LOOKS if arrow == "->" else {}
    lines += [f"  v{i} {arrow} v{j}{looks.get(kind, '')};" for i, j, kind in numbered_edges(result)]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


_DOT_LOOKS = {"undirected": " [dir=none]", "conflict": " [dir=none, style=dashed]", "bidirected": " [dir=both]"}


def _quoted(name: str) -> str:
    """A label that shows the name: in Graphviz's escString a backslash begins an escape."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\r", ""), ("\n", "\\n")):
        name = name.replace(character, escape)
    return f'"{name}"'


WRITERS: Mapping[str, Callable[[Result, Path], None]] = {
    ".csv": _csv,
    ".graphml": _graphml,
    ".gml": _gml,
    ".dot": _dot,
    ".json": _json,
}


def to_pcalg_amat(result: Result) -> pandas.DataFrame:
    """(p, p) 0 and 1 in pcalg's coding ``amat.cpdag`` (its manual, ``amatType``): a -> b is a 1 in row b, column a."""
    import pandas

    matrix = (result.directed | result.undirected).T if isinstance(result, CPDAG) else result.adjacency
    return pandas.DataFrame(matrix.astype(np.int64), index=list(result.names), columns=list(result.names))
