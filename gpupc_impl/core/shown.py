"""What people look at: the methods of results that pictures, tables, pages and files of other programs come from.

They are written in the room `views`, which stands above this one and is found by name: no search and no measurement
calls them, so none depends on how a picture looks (`EXCLUDED` of measurement/exclusions.py).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class Shown:
    """What `Skeleton` and `CPDAG` have in common for their readers (docs/results.md)."""

    def plot(self, ax: Axes | None = None, *, max_nodes: int = 100, title: str | None = None) -> Axes:
        """Draw the graph: variables as boxes, arrows for directions, lines without, dashes for conflicts.

        A graph with more than `max_nodes` variables that have an edge is drawn as `heatmap` does.

        Args:
            ax: where to draw; None makes a figure of a size that suits the graph.
            title: above the picture; None says how many variables and edges there are, ``""`` leaves it out.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        axes: Axes = _view("plots.graph").plot(self, ax, max_nodes=max_nodes, title=title)
        return axes

    def heatmap(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the adjacency matrix, variables ordered by community; those without an edge are left out.

        Args:
            ax, title: as of `plot`.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        axes: Axes = _view("plots.heatmap").heatmap(self, ax, title=title)
        return axes

    def summary(self) -> str:
        """What was searched, how, and what was found, as lines of text; Python's prompt shows them as lines, too."""
        text: str = _view("text").summary(self)
        return text

    def strengths(
        self, pairs: str = "edges", *, backend: str = "auto", progress: bool | None = None
    ) -> pandas.DataFrame:
        """How strong each edge is: the largest p-value among its tests, the set given in that test, and the effect.

        An edge is as strong as the test that came nearest to removing it. A pair that was removed has the p-value of
        the test that separated it, the last one made (pcalg's ``pMax``).

        Args:
            pairs: ``"edges"``, in the order of ``to_frame()``; ``"removed"``; or ``"all"``.
            backend: where tests are made again that are computations of their own (CMIknn).
            progress: a progress bar; None: where somebody can see it, and tqdm is installed.

        Returns:
            A row a pair: ``source``, ``target``; ``kind``, as in ``CPDAG.to_frame()``, ``"removed"``, or
            ``"forbidden"`` by background knowledge; ``p_value``, NaN where knowledge left nothing to test; ``given``, a
            tuple of names; and the effect in that test, in a column named after it:
            ``partial_correlation``, ``cramers_v`` (given a set: of the statistic over all strata),
            ``mutual_information`` (of the G-square test, in nats) or ``cmi`` (in nats).

        Raises:
            ValueError: another word for `pairs`, or the result was read from a file and no longer holds its data.
        """
        frame: pandas.DataFrame = _view("strengths").strengths(self, pairs, backend, progress)
        return frame

    def report(self, path: str | Path) -> None:
        """Write one self-contained HTML page: data, test, levels, tests and time per level, degrees, graph, edges.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        _view("report").write(self, path)

    def to_pcalg_amat(self) -> pandas.DataFrame:
        """The adjacency matrix in pcalg's coding ``amat.cpdag``, with the variables' names.

        ``amat[a, b] = 0`` and ``amat[b, a] = 1`` is a -> b; both 1 is a - b; both 0 is no edge.
        """
        frame: pandas.DataFrame = _view("exports").to_pcalg_amat(self)
        return frame

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        html: str = _view("text").html(self)
        return html

    def _write_graph(self, path: Path) -> None:
        """Write the graph by suffix.

        Raises:
            ValueError: a suffix that is not known, or names that the format cannot hold.
        """
        _view("exports").write(self, path)


def _view(name: str) -> Any:
    return importlib.import_module(f"gpupc_impl.views.{name}")
