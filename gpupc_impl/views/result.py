"""Functions of a result, a skeleton or a CPDAG, that all views use; each edge has a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.result import Skeleton

if TYPE_CHECKING:
    import pandas

Result = Skeleton | CPDAG


def skeleton_of(result: Result) -> Skeleton:
    return result.skeleton if isinstance(result, CPDAG) else result


def edges_with_kind(result: Result) -> pandas.DataFrame:
    """Return ``to_frame()`` with a column ``kind``, which is ``"undirected"`` for the edges of a skeleton."""
    frame = result.to_frame()
    return frame if "kind" in frame else frame.assign(kind="undirected")


def numbered_edges(result: Result) -> list[tuple[int, int, str]]:
    """Return the indexes of source and target, and the kind, of every edge in the order of ``to_frame()``."""
    number = {name: k for k, name in enumerate(result.names)}
    rows = edges_with_kind(result).itertuples(index=False, name=None)
    return [(number[source], number[target], kind) for source, target, kind in rows]
