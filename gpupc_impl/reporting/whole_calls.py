"""Whole calls beside those of other packages: PCMCI, FCI and PC over the number of variables, from records only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.core.pag import MARKS
from gpupc_impl.latent.inference import find_pag
from gpupc_impl.latent.oracle import IndependenceOracle
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import Facts, Sweeps, figure, table
from gpupc_impl.reporting.cells import (
    Line,
    count,
    csv_row,
    label,
    of_lines,
    places,
    remarks,
    rows_of_sweeps,
    time_cell,
    times,
)
from gpupc_impl.reporting.figures import Drawing, canvas, footer, log_axis, tick_number
from gpupc_impl.reporting.runs import Runs, VerifiedRecord
from gpupc_impl.reporting.tables import Table

PAPER = "Other packages"

TRUTH_AT_MOST = 100
"""The upper bound on the observed variables of a graph whose true PAG is computed; it takes seconds from there on."""

CLOCK = (
    "Medians of the warm runs. Our methods and the references begin with the prepared problem (of Gaussian tests the "
    "correlations) in host memory, and pc and the packages with the samples. Translations between them do not count."
)


def _drawing(runs: Runs, sweeps: Sweeps, titles: Mapping[str, str]) -> Drawing:
    """Draw the time of every setting over the number of variables, in a panel for each sweep."""
    from matplotlib.ticker import NullLocator

    width = style.PAGE_WIDTH if len(sweeps) > 1 else style.COLUMN_WIDTH
    drawn, grid = canvas(1, len(sweeps), (width, 2.7), sharey=True)
    names = {run.setting: run for run in runs if run.median is not None or run.status == "timeout"}
    for axes, (name, graphs) in zip(grid[0], sweeps.items(), strict=True):
        for setting, first in names.items():
            its = [(graphs[run.dataset], run) for run in runs if run.setting == setting and run.dataset in graphs]
            look = {"marker": style.MARKERS[first.backend], "markersize": 3, "color": style.colour(first.method)}
            done = [(p, run.median) for p, run in its if run.counts]
            axes.plot(*np.reshape(done, (-1, 2)).T, label=label(setting, first.backend), **look)
            late = [(p, run.limits.time_s) for p, run in its if run.status == "timeout"]
            axes.plot(*np.reshape(late, (-1, 2)).T, "^", color=look["color"], markerfacecolor="none")
        axes.set(xscale="log", xlabel="variables")
        axes.set_title(titles.get(name, name), loc="left")
        axes.set_xticks(values := sorted(set(graphs.values())), list(map(tick_number, values)))
        axes.xaxis.set_minor_locator(NullLocator())
    grid[0][0].set_ylabel("seconds")
    log_axis(grid[0][0])
    handles = {line.get_label(): line for axes in grid[0] for line in axes.get_legend_handles_labels()[0]}
    if handles:
        drawn.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=len(sweeps) + 1)
    footer(drawn, runs)
    return Drawing(drawn, rows_of_sweeps(runs, sweeps, "variables"))


def _times(title: str, runs: Runs, sweeps: Sweeps, titles: Mapping[str, str]) -> Table:
    """Tabulate the time of every setting, with a row for each data set."""
    panel = {dataset: titles.get(name, name) for name, graphs in sweeps.items() for dataset in graphs}
    lines = [
        Line(
            [panel.get(dataset, ""), dataset],
            times([run for run in runs if run.dataset == dataset], at=lambda run: run.setting),
        )
        for dataset in dict.fromkeys(run.dataset for run in runs)
    ]
    columns = {run.setting: label(run.setting) for run in runs}
    return of_lines(title, ["call", "data set"], columns, lines, _notes(runs))


def _notes(runs: Runs) -> list[str]:
    """Return notes on the clock, the machines and the marks, and one for each package that is not installed."""
    absent = dict.fromkeys(run.why for run in runs if run.status == "skipped" and "not installed" in (run.why or ""))
    return [CLOCK, *places(runs), *remarks(run for run in runs if run.status != "skipped"), *map(str, absent)]


SERIES = {"pcmci": "PCMCI", "pcmciplus": "PCMCI+", "cmiknn": "PCMCI, CMIknn"}


@figure("time_series", "PCMCI and PCMCI+ over the number of series", paper=PAPER, experiments=("time_series",))
def time_series(runs: Runs, sweeps: Sweeps) -> Drawing:
    """The figure shows the seconds of PCMCI and PCMCI+ on generated linear series over the number of variables, ours
    beside tigramite's and andrey-core's if they are installed. Both axes are logarithmic, and triangles mark a time
    limit that was exceeded. All graphs are compared link by link, and their p-values to 1e-10; tigramite's CMIknn draws
    its own random numbers.
    ``results/tables/time_series.csv`` has the numbers.
    """
    return _drawing(runs, sweeps, SERIES)


@table("time_series_times", "PCMCI and PCMCI+: times", paper=PAPER, experiments=("time_series",))
def time_series_times(runs: Runs, sweeps: Sweeps) -> Table:
    """The table shows the seconds of PCMCI and PCMCI+, ours beside other packages'. The marks of cells say whether
    graphs differ.
    """
    return _times("PCMCI and PCMCI+: seconds", runs, sweeps, SERIES)


PAGS = {"rfci": "RFCI", "fci": "FCI"}


@figure("latent", "RFCI and FCI over the number of variables", paper=PAPER, experiments=("latent",))
def latent(runs: Runs, sweeps: Sweeps) -> Drawing:
    """The figure shows the seconds of RFCI and FCI on data of random graphs with hidden variables over the number of
    observed variables, ours beside other packages' if they are installed. Both axes are logarithmic, and triangles mark
    an exceeded time limit. Our PAGs are the reference's, mark for mark. ``results/tables/latent.csv`` has the numbers.
    """
    return _drawing(runs, sweeps, PAGS)


@table("latent_distance", "RFCI and FCI: distance from the true PAG", paper=PAPER, experiments=("latent",))
def latent_distance(runs: Runs, problems: Facts, sweeps: Sweeps) -> Table:
    """The table compares the PAGs of RFCI and FCI with the true one, which an oracle of d-separation gives for up to
    100 observed variables: the edges of the true PAG that a graph lacks, the edges that it has beside those, and the
    marks that differ at the edges that both have.
    """
    truths = {facts["name"]: _true_marks(facts) for facts in problems}
    rows, plain = [], []
    for name, graphs in sweeps.items():
        for run in (run for run in runs if run.dataset in graphs and run.status != "skipped"):
            found = _distance(run, truths.get(run.dataset))
            head = [PAGS.get(name, name), run.dataset, label(run.setting, run.backend)]
            rows.append([*head, time_cell(run), *map(count, found.values())])
            plain.append({"call": name, "variables": graphs[run.dataset], **csv_row(run), **found})
    notes = ["Packages whose graphs depend on the order of the variables are marked ≈ where theirs differ."]
    header = ["call", "data set", "method", "seconds", *DISTANCES]
    return Table(
        "Distance from the true PAG", header, rows, [*notes, *_notes(runs)], plain or [{"call": ""}], left=(0, 1, 2)
    )


DISTANCES = ("true edges missing", "edges too many", "marks that differ")


def _true_marks(facts: Mapping[str, Any]) -> dict[tuple[int, int], str] | None:
    """Return the marks of the true PAG of a problem; None if the graph is unknown or large."""
    edges, p = np.array(facts.get("edges_with_hidden", ())), facts.get("n_variables", 0)
    if not edges.size or p > TRUTH_AT_MOST:
        return None
    every = max(p, int(edges.max()) + 1)
    graph = np.zeros((every, every), bool)
    graph[tuple(edges.T)] = True
    oracle = IndependenceOracle.from_graph(graph, hidden=range(p, every))
    marks = find_pag(oracle.skeleton(), oracle, "fci", tests=oracle.tests()).marks
    return {(i, j): MARKS[marks[i, j]] for i, j in np.argwhere(marks).tolist()}


def _distance(run: VerifiedRecord, truth: Mapping[tuple[int, int], str] | None) -> dict[str, Any]:
    if truth is None or run.skeleton is None:
        return dict.fromkeys(DISTANCES, "")
    found = {(i, j): mark for i, j, mark, _ in run.skeleton.facts["marks"]}
    numbers = (
        len(truth.keys() - found.keys()) // 2,
        len(found.keys() - truth.keys()) // 2,
        sum(found[end] != truth[end] for end in found.keys() & truth.keys()),
    )
    return dict(zip(DISTANCES, numbers, strict=True))


@figure("packages", "PC over the number of variables", paper=PAPER, experiments=("packages",))
def packages(runs: Runs, sweeps: Sweeps) -> Drawing:
    """The figure shows the seconds of whole calls of PC on sparse Gaussian data over the number of variables: our call
    ``pc`` with its default votes, two of our methods, which find the skeleton alone, and other packages if they are
    installed, which are listed in ``docs/peers.md``. Both axes are logarithmic, and triangles mark an exceeded time
    limit. All skeletons are compared. ``results/tables/packages.csv`` has the numbers.
    """
    return _drawing(runs, sweeps, {"p": "PC, Fisher's z"})


@table("packages_times", "PC of other packages: times", paper=PAPER, experiments=("packages", "packages_discrete"))
def packages_times(runs: Runs, sweeps: Sweeps) -> Table:
    """The table shows the seconds of whole calls of PC, ours beside other packages', on Gaussian data and on samples of
    the network ALARM. The marks of cells say whether skeletons differ.
    """
    return _times("PC: seconds", runs, sweeps, {"p": "Fisher's z"})
