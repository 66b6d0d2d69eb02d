"""Tabulates the distance of our graphs and causal-learn's from the true graph, from records and skeletons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.orientation import orient
from gpupc_impl.reporting.catalogue import Sweeps, table
from gpupc_impl.reporting.cells import label, mark, number
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.notes import places, remarks
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of
from gpupc_impl.reporting.tables import Table
from gpupc_impl.verification.accuracy import Accuracy, accuracy, bootstrap_mean, dag_of_edges, has_cycle, with_arrows

MEASURES = {
    "shd": "SHD",
    "edge_precision": "edge precision",
    "edge_recall": "edge recall",
    "arrow_precision": "arrow precision",
    "arrow_recall": "arrow recall",
}
"""The measures of a group of graphs, and their names in the table."""


@table("accuracy", "Distance to the truth", paper="Accuracy", experiments=("accuracy",))
def accuracy_table(runs: Runs, problems: Sequence[Mapping[str, Any]], sweeps: Sweeps) -> Table:
    """The table compares estimated CPDAGs with that of the true graph, by the structural Hamming distance and by the
    precision and recall of edges and arrows, on generated data and on gene expressions that others simulated on known
    networks. Cells are means over graphs, with 95 % intervals by the bootstrap over graphs. causal-learn directs the
    edges of its skeletons by its own rules. ``results/tables/accuracy.csv`` has the numbers of each graph.
    """
    truths = {facts["name"]: facts.get("true_edges") for facts in problems}
    measured = {
        (run.dataset, run.setting): its for run in runs if run.counts and (its := accuracy_of(run, truths[run.dataset]))
    }
    settings = {run.setting: run for run in runs}
    rows, plain, notes = [], [], []
    for parameter, value, graphs in _groups(runs, sweeps):
        name = f"{parameter} = {value:,}" if parameter else value
        for setting in settings:
            group = [run for run in runs if run.setting == setting and run.dataset in graphs]
            finished = [measured[key] for run in group if (key := (run.dataset, setting)) in measured]
            cells = [_cell([getattr(graph, measure) for graph in finished]) for measure in MEASURES]
            rows.append([name, f"{label(setting)}{mark(*group)}", f"{len(finished)} of {len(graphs)}", *cells])
            for run in group:
                numbers = measured.get((run.dataset, setting))
                columns = dataclasses.asdict(numbers) if numbers else dict.fromkeys(MEASURES)
                row = {"parameter": parameter, "value": value, "graph": run.dataset}
                plain.append(row | csv_row(run) | columns)
        notes += _difference(name, graphs, list(settings), measured)
    cyclic = [name for name, edges in truths.items() if edges and has_cycle(dag_of_edges(edges, 1 + np.max(edges)))]
    if cyclic:
        notes.append(f"{', '.join(cyclic)}: the true network has cycles, thus no CPDAG; SHD counts its edges alone.")
    sizes = sorted({(run.problem["n_variables"], run.problem["alpha"]) for run in runs if run.problem})
    notes = [
        f"{'; '.join(f'{p:,} variables, alpha {alpha:g}' for p, alpha in sizes)}. "
        "Brackets contain 95 % of the means of resampled sets of graphs (percentile bootstrap).",
        "SHD: the number of pairs of variables on which a CPDAG and that of the true graph differ. An arrow on an edge "
        "that the true CPDAG leaves undirected is wrong.",
        *_directions(runs),
        *notes,
        *places(runs),
        *remarks(runs),
    ]
    header = ["graphs", "method", "finished", *MEASURES.values()]
    return Table("Distance to the truth", header, rows, notes, plain)


def _groups(runs: Runs, sweeps: Sweeps) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield the generated graphs by the parameter that varies and its value, then each other data set by its name."""
    for parameter, by_graph in sweeps.items():
        for value in dict.fromkeys(by_graph.values()):
            yield parameter, value, [graph for graph, varied in by_graph.items() if varied == value]
    for dataset in datasets_of(runs):
        if not any(dataset in by_graph for by_graph in sweeps.values()):
            yield "", dataset, [dataset]


def accuracy_of(run: VerifiedRecord, true_edges: Sequence[Sequence[int]] | None) -> Accuracy | None:
    """Return the accuracy of a run; None if its skeleton or the true graph is unknown."""
    if true_edges is None or (skeleton := run.skeleton) is None:
        return None
    arrows = skeleton.facts.get("arrows")
    cpdag = orient(skeleton) if arrows is None else with_arrows(skeleton, arrows)
    return accuracy(cpdag, dag_of_edges(true_edges, len(skeleton.names)))


def _cell(values: Sequence[float | None]) -> str:
    """Format the mean with its interval over the graphs for which a measure is defined (precision needs an arrow)."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, low, high = bootstrap_mean(known)
    count = f" of {len(known)}" if len(known) < len(values) else ""
    return f"{number(mean)} [{number(low)}–{number(high)}]{count}"


def _difference(
    group: str, graphs: Sequence[str], settings: Sequence[str], measured: Mapping[tuple[str, str], Accuracy]
) -> list[str]:
    """Compare the first setting's distance with that of each other one, on graphs that both finished."""
    first, *others = settings
    notes = []
    for other in others:
        both = [graph for graph in graphs if (graph, first) in measured and (graph, other) in measured]
        if both:
            differences = [measured[graph, first].shd - measured[graph, other].shd for graph in both]
            mean, low, high = bootstrap_mean(differences)
            notes.append(
                f"{group}: SHD of {label(first)} minus that of {label(other)}: {mean:+.2f} [{low:+.2f} to {high:+.2f}]."
            )
    return notes


def _directions(runs: Runs) -> list[str]:
    """Return sentences about the rules that directed the edges of each setting."""
    directed = {run.setting: "arrows" in run.skeleton.facts for run in runs if run.counts and run.skeleton is not None}
    notes = []
    if ours := [label(setting) for setting, by_itself in directed.items() if not by_itself]:
        notes.append(
            f"{', '.join(ours)}: edges are directed by our rule; an edge that is oriented both ways stays undirected."
        )
    if theirs := [label(setting) for setting, by_itself in directed.items() if by_itself]:
        notes.append(
            f"{', '.join(theirs)}: edges are directed by causal-learn (uc_rule 0, uc_priority 2), by the union of all "
            "separating sets and the first of contradicting v-structures."
        )
    return notes
