"""The methods of results that make pictures, tables, pages and files of other programs. The package `views`, which is
above this one, implements them and is imported by name when a method is called. No search and no measurement calls
these methods, so changing a picture makes no recorded run stale (`_DISPLAYS` of measurement/digest.py)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class ResultViews:
    """The methods for readers that `Skeleton`, `CPDAG` and `PAG` have in common (docs/results.md)."""

    def plot(self, ax: Axes | None = None, *, max_nodes: int = 100, title: str | None = None) -> Axes:
        """Draw the graph: boxes for variables, arrows for directed edges, lines for undirected edges, dashed lines for
        conflicts. If more than `max_nodes` variables have an edge, `heatmap` draws it instead.

        Args:
            ax: the axes to draw in; None makes a figure whose size suits the graph.
            title: the title; None states the numbers of variables and edges, ``""`` omits it.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        axes: Axes = _view("plots.graph").plot(self, ax, max_nodes=max_nodes, title=title)
        return axes

    def heatmap(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the adjacency matrix of variables with edges, by community. Takes and raises what `plot` does."""
        axes: Axes = _view("plots.heatmap").heatmap(self, ax, title=title)
        return axes

    def summary(self) -> str:
        """Return the problem, the method and the result as lines of text."""
        text: str = _view("text").summary(self)
        return text

    def strengths(
        self, pairs: str = "edges", *, backend: str = "auto", progress: bool | None = None
    ) -> pandas.DataFrame:
        """Return the strength of each edge: the largest p-value among its tests, the set of that test, and the effect
        size. For a removed pair it is the test that separated the pair (pcalg's ``pMax``).

        Args:
            pairs: ``"edges"``, in the order of ``to_frame()``; ``"removed"``; or ``"all"``.
            backend: where the tests are performed again, if the family's strengths need kernels (CMIknn).
            progress: whether to show a progress bar; None: if the output is a terminal and tqdm is installed.

        Returns:
            A row per pair: ``source``, ``target``; ``kind``, as in ``CPDAG.to_frame()``, ``"removed"``, or
            ``"forbidden"`` by background knowledge; ``p_value``, NaN if knowledge left no test; ``given``, a tuple of
            names; and that test's effect size, in a column named ``partial_correlation``, ``cramers_v`` (given a set:
            of the statistic over all strata), ``mutual_information`` (of G-square, in nats) or ``cmi`` (in nats).

        Raises:
            ValueError: `pairs` is invalid, or the result was read from a file, which does not hold the data.
        """
        frame: pandas.DataFrame = _view("strengths").strengths(self, pairs, backend, progress)
        return frame

    def report(self, path: str | Path) -> None:
        """Write one self-contained HTML page: graph, what was read, edges with their strengths, hubs, levels. It needs
        matplotlib. The edges' tests are made again where that takes seconds; their p-values are left out otherwise."""
        _view("pages").write(self, path)

    def to_pcalg_amat(self) -> pandas.DataFrame:
        """Return the adjacency matrix in pcalg's coding ``amat.cpdag``, or ``amat.pag`` of a PAG, with the variables'
        names. ``amat[a, b] = 0`` and ``amat[b, a] = 1`` means a -> b; both 1 means a - b; both 0 means no edge. For a
        PAG, ``amat[a, b]`` is the mark at b: 0 for no edge, 1 for a circle, 2 for an arrow, 3 for a tail."""
        frame: pandas.DataFrame = _view("exports").to_pcalg_amat(self)
        return frame

    def to_adjacency(self) -> pandas.DataFrame:
        """Return the adjacency matrix with the variables' names, (p, p) bool. In a CPDAG ``[a, b]`` is True for a -> b
        and for an edge without a direction; otherwise the matrix is symmetric."""
        frame: pandas.DataFrame = _view("exports").to_adjacency(self)
        return frame

    def _repr_html_(self) -> str:
        html: str = _view("pages").html(self)
        return html

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language, with a line for each edge."""
        text: str = _view("exports").dot(self)
        return text

    def _write_graph(self, path: Path) -> None:
        _view("exports").write(self, path)


def _view(name: str) -> Any:
    return importlib.import_module(f"gpupc_impl.views.{name}")
