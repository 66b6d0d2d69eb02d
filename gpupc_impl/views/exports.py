"""Writes graphs as files of other programs and as pictures, and returns them as named matrices.

In GraphML, GML and JSON an undirected edge of a CPDAG, and every edge of a PAG, is written as two opposite arcs, as in
``to_networkx()``; the attribute ``kind`` of an arc is the kind of its edge, and ``mark`` the mark of a PAG at its head.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import csv_line, save_json, write_arrays, write_text, write_whole
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pag import DOT_MARKS, KINDS, PAG
from gpupc_impl.views.result import Result, numbered_edges, skeleton_of

if TYPE_CHECKING:
    import pandas


class CannotWrite(ValueError):
    """A graph cannot be written in a format; the message names the format, the reason and the way out."""


def write(result: Result, path: Path) -> None:
    """Write the graph in the format that the suffix names; raises CannotWrite if that fails."""
    if path.suffix not in WRITERS:
        raise CannotWrite(f"cannot write {path.name!r}: the suffix must be one of .npz, {', '.join(WRITERS)}")
    WRITERS[path.suffix](result, path)


def write_study(study: Any, frame: pandas.DataFrame, path: Path) -> None:
    """Write a study: its arrays, its table `frame` as CSV, or its picture, as the suffix says, or raise CannotWrite."""
    if path.suffix not in STUDY_SUFFIXES:
        raise CannotWrite(f"cannot write {path.name!r}: the suffix must be one of {', '.join(STUDY_SUFFIXES)}")
    if path.suffix == ".npz":
        with write_whole(path) as file:
            write_arrays(file, study.stored_arrays())
    elif path.suffix in PICTURES:
        _picture(study, path)
    else:
        _write_frame(frame, path)


def _write_frame(frame: pandas.DataFrame, path: Path) -> None:
    write_text(path, "".join(map(csv_line, (frame.columns, *frame.itertuples(index=False, name=None)))))


def _picture(result: Any, path: Path) -> None:
    from gpupc_impl.views.plots import image  # imports matplotlib

    content = image(result.plot, path.suffix.removeprefix("."))
    with write_whole(path) as file:
        file.write(content)


def _graphml(result: Result, path: Path) -> None:
    for name in result.names:
        if match := _NOT_XML.search(name):
            raise CannotWrite(
                f"cannot write {path.name!r}: variable {name!r} has the character {match.group()!r}, which XML cannot "
                "hold; rename it, or write .json"
            )
    _by_networkx(result, path)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent (section 2.2 of its specification)."""


def _by_networkx(result: Result, path: Path) -> None:
    import networkx

    write_format = getattr(networkx, f"write_{path.suffix.removeprefix('.')}")
    with write_whole(path) as file:
        write_format(result.to_networkx(), file)


def _json(result: Result, path: Path) -> None:
    import networkx

    graph = result.to_networkx()
    graph.graph.update(skeleton_of(result).facts)
    save_json(networkx.node_link_data(graph, edges="edges"), path)


def dot(result: Result) -> str:
    """Return the graph in Graphviz's language; nodes are numbers, since identifiers cannot represent every name."""
    directed = isinstance(result, (CPDAG, PAG))
    keyword, arrow, styles = ("digraph", "->", _DOT_STYLES) if directed else ("graph", "--", {})
    lines = [f"{keyword} {{", "  node [shape=box];"]
    lines += [f'  v{k} [label="{name.translate(_ESCAPES)}"];' for k, name in enumerate(result.names)]
    lines += [f"  v{i} {arrow} v{j}{styles.get(kind, '')};" for i, j, kind in numbered_edges(result)]
    return "\n".join([*lines, "}"]) + "\n"


_DOT_STYLES = {
    kind: f" [dir=both, arrowtail={DOT_MARKS[source]}, arrowhead={DOT_MARKS[target]}]"
    for (source, target), kind in KINDS.items()
} | {"directed": "", "undirected": " [dir=none]", "conflict": " [dir=none, style=dashed]", "bidirected": " [dir=both]"}


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\r": "", "\n": "\\n"})
"""What shows a name unchanged in a label: a backslash begins an escape sequence in Graphviz's escString."""


WRITERS: Mapping[str, Callable[[Result, Path], None]] = {
    ".csv": lambda result, path: _write_frame(result.to_frame(), path),
    ".graphml": _graphml,
    ".gml": _by_networkx,
    ".dot": lambda result, path: write_text(path, dot(result)),
    ".json": _json,
    ".png": _picture,
    ".svg": _picture,
}
PICTURES = (".png", ".svg")
STUDY_SUFFIXES = (".npz", ".csv", *PICTURES)


def to_pcalg_amat(result: Result) -> pandas.DataFrame:
    """See `core.result_views.ResultViews.to_pcalg_amat`; pcalg's manual defines the coding under ``amatType``."""
    frame = _named(result, result.marks) if isinstance(result, PAG) else to_adjacency(result).T
    return frame.astype(np.int64)


def to_adjacency(result: Result) -> pandas.DataFrame:
    """See `core.result_views.ResultViews.to_adjacency`."""
    return _named(result, result.directed | result.undirected if isinstance(result, CPDAG) else result.adjacency)


def _named(result: Result, matrix: np.ndarray) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(matrix, index=list(result.names), columns=list(result.names))
