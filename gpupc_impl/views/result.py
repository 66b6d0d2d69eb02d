"""Functions of a result, a skeleton, a CPDAG or a PAG, that all views use; each edge has a kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pag import KINDS, PAG
from gpupc_impl.core.result import Skeleton

if TYPE_CHECKING:
    import pandas

Result = Skeleton | CPDAG | PAG
LOOKS = {row["kind"]: row for row in read_csv(Path(__file__).with_name("edge_kinds.csv"))}
"""How each kind of edge looks: as text, its colour (from Okabe and Ito's palette, which colour-blind readers can
distinguish), matplotlib's style of its arrow, and the ends (0 its source, -1 its target) that have circles."""


def skeleton_of(result: Result) -> Skeleton:
    """Return the skeleton that the search found; a PAG has fewer edges (`edges_of`)."""
    return result if isinstance(result, Skeleton) else result.skeleton


def name_of(result: Result) -> str:
    """Return what a result is called; a method may return a kind of skeleton of its own."""
    return "Skeleton" if isinstance(result, Skeleton) else type(result).__name__


def edges_of(result: Result) -> np.ndarray:
    """Return the pairs i < j that are adjacent in the result, (k, 2)."""
    return np.argwhere(np.triu(result.adjacency)) if isinstance(result, PAG) else skeleton_of(result).edges


def degrees_of(result: Result) -> np.ndarray:
    """Return the number of neighbours of each variable."""
    return np.bincount(edges_of(result).reshape(-1), minlength=len(skeleton_of(result).names))


def n_edges(result: Result) -> int:
    return result.skeleton.n_edges if isinstance(result, CPDAG) else result.n_edges


def edges_with_kind(result: Result) -> pandas.DataFrame:
    """Return ``to_frame()`` with a column ``kind``, which is ``"undirected"`` for the edges of a skeleton."""
    frame = result.to_frame()
    if isinstance(result, PAG):
        ends = zip(frame.pop("mark_source"), frame.pop("mark_target"), strict=True)
        return frame.assign(kind=[KINDS[marks] for marks in ends])
    return frame if "kind" in frame else frame.assign(kind="undirected")


def numbered_edges(result: Result) -> list[tuple[int, int, str]]:
    """Return the indexes of source and target, and the kind, of every edge in the order of ``to_frame()``."""
    number = {name: k for k, name in enumerate(result.names)}
    rows = edges_with_kind(result).itertuples(index=False, name=None)
    return [(number[source], number[target], kind) for source, target, kind in rows]
