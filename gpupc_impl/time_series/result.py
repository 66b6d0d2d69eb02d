"""The result of PCMCI and PCMCI+."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import csv_line, open_arrays, write_arrays, write_text, write_whole
from gpupc_impl.core.result import InvalidSkeleton
from gpupc_impl.time_series.parameters import SUFFIXES
from gpupc_impl.time_series.phases import Separations, Triple

if TYPE_CHECKING:
    import networkx
    import pandas
    from matplotlib.axes import Axes

KINDS = {"-->": "directed", "o-o": "undirected", "x-x": "conflict"}
"""The kinds of links by their marks; ``"<--"`` is the other entry of a directed contemporaneous link."""


@dataclasses.dataclass(frozen=True, eq=False)
class TimeSeriesGraph:
    """A graph of lagged and contemporaneous links. Entry [i, j, tau] is of variable i, tau steps before variable j.

    Attributes:
        graph: (N, N, tau_max + 1) strings as tigramite writes them: ``"-->"``, ``"<--"`` (contemporaneous links alone),
            ``"o-o"`` (no direction found), ``"x-x"`` (oriented both ways) and ``""``.
        p_values: (N, N, tau_max + 1): with PCMCI of the MCI tests; with PCMCI+ the largest of the tests of a link.
            Corrected if `correction` was requested. 1 where there was no test.
        strengths: (N, N, tau_max + 1): the statistic of the test with that p-value: a partial correlation, a
            conditional mutual information in nats, or G-square.
        names: the variables' names.
        parents: for each variable, the lagged parents of the first phase as (variable, -lag), strongest first.
        separations: with PCMCI+, by source, lag and target, the contemporaneous variables of the set that separates
            them; sets without such a variable are left out.
        ambiguous: with PCMCI+, triples i, tau, k, j whose collider is undecided.
        facts: the method, its parameters, the backend, the numbers of samples and tests, the seconds.
    """

    graph: np.ndarray
    p_values: np.ndarray
    strengths: np.ndarray
    names: tuple[str, ...]
    parents: tuple[tuple[tuple[int, int], ...], ...]
    separations: Separations
    ambiguous: tuple[Triple, ...]
    facts: Mapping[str, Any]

    @property
    def tau_max(self) -> int:
        return self.graph.shape[2] - 1

    @property
    def n_links(self) -> int:
        """The number of links; a contemporaneous link is one."""
        return len(self._links())

    def __eq__(self, other: object) -> bool:
        """Whether two graphs have the same links with the same marks between variables of the same names."""
        if not isinstance(other, TimeSeriesGraph):
            return NotImplemented
        return self.names == other.names and np.array_equal(self.graph, other.graph)

    def __repr__(self) -> str:
        now = sum(lag == 0 for _, _, lag in self._links())
        return (
            f"TimeSeriesGraph({len(self.names)} variables, lags to {self.tau_max}: {self.n_links - now} lagged and "
            f"{now} contemporaneous links)"
        )

    def _links(self) -> list[tuple[int, int, int]]:
        """Return source, target and lag of each link once, by target, lag and source."""
        once = (self.graph != "") & (self.graph != "<--")
        symmetric = np.isin(self.graph[:, :, 0], ("o-o", "x-x"))
        once[:, :, 0] &= ~(symmetric & np.tri(len(self.names), k=-1, dtype=bool))
        target, lag, source = np.nonzero(once.transpose(1, 2, 0))
        return list(zip(source.tolist(), target.tolist(), lag.tolist(), strict=True))

    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each link: ``source``, ``target``, ``lag``, ``kind``, ``strength`` and
        ``p_value``.

        ``kind`` is ``"directed"``, ``"undirected"`` or ``"conflict"``; links of the last two are contemporaneous.
        """
        import pandas

        rows = [
            (
                *(self.names[source], self.names[target], lag, KINDS[str(self.graph[source, target, lag])]),
                *(self.strengths[source, target, lag], self.p_values[source, target, lag]),
            )
            for source, target, lag in self._links()
        ]
        return pandas.DataFrame(rows, columns=["source", "target", "lag", "kind", "strength", "p_value"])

    def to_networkx(self) -> networkx.MultiDiGraph:
        """Return a ``networkx.MultiDiGraph`` of the names, in which a link without a direction is two opposite arcs.

        Arcs have the attributes ``lag``, ``kind``, ``strength`` and ``p_value`` of `to_frame`.
        """
        import networkx

        graph = networkx.MultiDiGraph()
        graph.add_nodes_from(self.names)
        for source, target, *values in self.to_frame().itertuples(index=False, name=None):
            attributes = dict(zip(("lag", "kind", "strength", "p_value"), values, strict=True))
            graph.add_edge(source, target, **attributes)
            if attributes["kind"] != "directed":
                graph.add_edge(target, source, **attributes)
        return graph

    def to_tigramite(self) -> dict[str, Any]:
        """Return the dictionary that tigramite's ``run_pcmci`` or ``run_pcmciplus`` returns, for its plots and methods.

        It has copies of ``graph``, ``p_matrix`` and ``val_matrix``, ``conf_matrix`` (None), and with PCMCI+
        ``sepsets`` and ``ambiguous_triples``.
        """
        results: dict[str, Any] = {
            "graph": self.graph.copy(),
            "p_matrix": self.p_values.copy(),
            "val_matrix": self.strengths.copy(),
            "conf_matrix": None,
        }
        if self.facts["method"] == "pcmci+":
            results["sepsets"] = {
                ((i, -lag), j): [(k, 0) for k in self.separations.get((i, lag, j), ())]
                for i, j, lag in np.ndindex(self.graph.shape)
            }
            results["ambiguous_triples"] = [((i, -lag), k, j) for i, lag, k, j in self.ambiguous]
        return results

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw variables on a circle: arrows with the lags of lagged links, arrows or lines for contemporaneous links.

        A conflict is dashed. The colour is the strength of the strongest link of an arrow.

        Args:
            ax: the axes to draw in; None makes a figure.
            title: the title; None states the numbers of variables and links, ``""`` omits it.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        # By name, since pictures make no result other (core/result_views.py).
        axes: Axes = importlib.import_module("gpupc_impl.views.plots.series").draw(self, ax, title)
        return axes

    def save(self, path: str | Path) -> None:
        """Write a file whose format the suffix selects: ``.npz`` (everything), ``.csv`` (as `to_frame`) or ``.json``
        (networkx's node-link data).

        Raises:
            ValueError: the suffix is another one.
        """
        path = Path(path)
        if path.suffix == ".npz":
            fields = {name: getattr(self, name) for name in ("graph", "p_values", "strengths")}
            described = json.dumps(
                {
                    "names": self.names,
                    "parents": self.parents,
                    "separations": [[*key, list(given)] for key, given in self.separations.items()],
                    "ambiguous": self.ambiguous,
                    "facts": dict(self.facts),
                }
            )
            with write_whole(path) as file:
                write_arrays(file, {**fields, "time_series": np.array(described)})
        elif path.suffix == ".csv":
            frame = self.to_frame()
            write_text(path, "".join(map(csv_line, (frame.columns, *frame.itertuples(index=False, name=None)))))
        elif path.suffix == ".json":
            import networkx

            graph = self.to_networkx()
            graph.graph.update(self.facts)
            write_text(path, json.dumps(networkx.node_link_data(graph, edges="edges"), indent=1) + "\n")
        else:
            raise ValueError(f"cannot write {path.name!r}: the suffix must be one of {', '.join(SUFFIXES)}")

    @classmethod
    def load(cls, path: str | Path) -> TimeSeriesGraph:
        """Read a graph from an ``.npz`` that `save` wrote.

        Raises:
            InvalidSkeleton: the file has other content, or is damaged.
            OSError: the file cannot be opened.
        """
        try:
            with open_arrays(path) as stored:
                graph, p_values, strengths = (stored[name] for name in ("graph", "p_values", "strengths"))
                described = json.loads(str(stored["time_series"]))
            names = tuple(described["names"])
            shape = (len(names), len(names), graph.shape[-1])
            marks = {"", "<--", *KINDS}
            if any(each.shape != shape for each in (graph, p_values, strengths)) or set(graph.flat) - marks:
                raise ValueError("its arrays do not fit together")
            return cls(
                graph=graph,
                p_values=p_values,
                strengths=strengths,
                names=names,
                parents=tuple(tuple((i, lag) for i, lag in each) for each in described["parents"]),
                separations={(i, lag, j): tuple(given) for i, lag, j, given in described["separations"]},
                ambiguous=tuple((i, lag, k, j) for i, lag, k, j in described["ambiguous"]),
                facts=described["facts"],
            )
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise InvalidSkeleton(f"{path} is no graph of time series that this package wrote: {error}") from error
