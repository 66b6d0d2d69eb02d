"""The result of PCMCI and PCMCI+."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import open_arrays, write_text
from gpupc_impl.core.result import read_whole
from gpupc_impl.ownership import open_regular
from gpupc_impl.time_series.parameters import SUFFIXES
from gpupc_impl.time_series.phases import Separations, Triple

if TYPE_CHECKING:
    import networkx
    import pandas
    from matplotlib.axes import Axes

ARRAYS = ("graph", "p_values", "strengths")
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
        return len(self._links()[0])

    def __eq__(self, other: object) -> bool:
        """Whether two graphs have the same links with the same marks between variables of the same names."""
        if not isinstance(other, TimeSeriesGraph):
            return NotImplemented
        return self.names == other.names and np.array_equal(self.graph, other.graph)

    def __repr__(self) -> str:
        now = int((self._links()[2] == 0).sum())
        return (
            f"TimeSeriesGraph({len(self.names)} variables, lags to {self.tau_max}: {self.n_links - now} lagged and "
            f"{now} contemporaneous links)"
        )

    def _links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sources, targets and lags of the links, each once, by target, lag and source."""
        once = (self.graph != "") & (self.graph != "<--")
        symmetric = np.isin(self.graph[:, :, 0], ("o-o", "x-x"))
        once[:, :, 0] &= ~(symmetric & np.tri(len(self.names), k=-1, dtype=bool))
        target, lag, source = np.nonzero(once.transpose(1, 2, 0))
        return source, target, lag

    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each link: ``source``, ``target``, ``lag``, ``kind`` (``"directed"``, or of
        contemporaneous links ``"undirected"`` or ``"conflict"``), ``strength`` and ``p_value``."""
        import pandas

        links = source, target, lag = self._links()
        frame = pandas.DataFrame({"source": [self.names[i] for i in source], "target": [self.names[j] for j in target]})
        kinds = [KINDS[mark] for mark in self.graph[links]]
        return frame.assign(lag=lag, kind=kinds, strength=self.strengths[links], p_value=self.p_values[links])

    def to_networkx(self) -> networkx.MultiDiGraph:
        """Return a ``networkx.MultiDiGraph`` of the names, in which a link without a direction is two opposite arcs;
        arcs have the attributes ``lag``, ``kind``, ``strength`` and ``p_value`` of `to_frame`."""
        import networkx

        graph = networkx.MultiDiGraph()
        graph.add_nodes_from(self.names)
        for link in self.to_frame().to_dict("records"):
            source, target = link.pop("source"), link.pop("target")
            graph.add_edge(source, target, **link)
            if link["kind"] != "directed":
                graph.add_edge(target, source, **link)
        return graph

    def to_tigramite(self) -> dict[str, Any]:
        """Return the dictionary that tigramite's ``run_pcmci`` or ``run_pcmciplus`` returns, for its plots and methods,
        with copies of the arrays; ``conf_matrix`` is None."""
        results: dict[str, Any] = {"graph": self.graph.copy(), "p_matrix": self.p_values.copy()}
        results |= {"val_matrix": self.strengths.copy(), "conf_matrix": None}
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
            ax: the axes to draw in; None makes a figure, by matplotlib (extra ``plots``).
            title: the title; None states the numbers of variables and links, ``""`` omits it.
        """
        # By name, since pictures make no result other (core/result_views.py).
        axes: Axes = importlib.import_module("gpupc_impl.views.plots.series").draw(self, ax, title)
        return axes

    def save(self, path: str | Path) -> None:
        """Write a file whose format the suffix selects: ``.npz`` (everything), ``.csv`` (as `to_frame`), ``.json``
        (networkx's node-link data), or the picture of `plot`, ``.png`` or ``.svg``; ValueError for another one."""
        path = Path(path)
        if path.suffix == ".json":
            import networkx

            graph = self.to_networkx()
            graph.graph.update(self.facts)
            write_text(path, json.dumps(networkx.node_link_data(graph, edges="edges"), indent=1) + "\n")
        elif path.suffix in SUFFIXES:
            importlib.import_module("gpupc_impl.views.exports").write_study(self, self.to_frame(), path)
        else:
            raise ValueError(f"cannot write {path.name!r}: the suffix must be one of {', '.join(SUFFIXES)}")

    def stored_arrays(self) -> dict[str, Any]:
        """Return the arrays by which `save` stores everything in an ``.npz``."""
        described = {name: getattr(self, name) for name in ("names", "parents", "ambiguous")}
        described["separations"] = [[*key, list(given)] for key, given in self.separations.items()]
        described["facts"] = dict(self.facts)
        return {**{name: getattr(self, name) for name in ARRAYS}, "time_series": np.array(json.dumps(described))}

    @classmethod
    def load(cls, path: str | Path) -> TimeSeriesGraph:
        """Read a graph from an ``.npz`` that `save` wrote; InvalidSkeleton for other content, or a damaged file."""
        with open_regular(path) as file, read_whole(path, "holds no graph of time series"), open_arrays(file) as stored:
            arrays = {name: stored[name] for name in ARRAYS}
            described = json.loads(str(stored["time_series"]))
            names = tuple(described["names"])
            shape = (len(names), len(names), arrays["graph"].shape[-1])
            if any(each.shape != shape for each in arrays.values()) or set(arrays["graph"].flat) - {"", "<--", *KINDS}:
                raise ValueError("its arrays do not fit together")
            described["names"] = names
            described["parents"] = tuple(tuple(map(tuple, each)) for each in described["parents"])
            described["separations"] = {(i, lag, j): tuple(given) for i, lag, j, given in described["separations"]}
            described["ambiguous"] = tuple(map(tuple, described["ambiguous"]))
            return cls(**arrays, **described)
