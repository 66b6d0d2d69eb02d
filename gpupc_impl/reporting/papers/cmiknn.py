"""The searches of the GPU-CMIknn paper: Tables 5 and 10, Fig. 1 and scaling, from records and saved skeletons only."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.orientation import orient
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure, table
from gpupc_impl.reporting.cells import (
    Speedup,
    csv_row,
    hardware,
    label,
    mark,
    number,
    places,
    remarks,
    speedup,
    stated,
    time_cell,
)
from gpupc_impl.reporting.figures import Drawing, footer, tick_number
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, of_method
from gpupc_impl.reporting.tables import Table
from gpupc_impl.verification.accuracy import dag_of_edges, structural_hamming_distance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "GPU-CMIknn"
CITED = "Paper: GPU-CMIknn (PMLR 185:30-60, 2022)"
REFERENCE, SINGLE_THREADED = "tigramite", {"workers": 1}
"""The method and parameters that stand for the paper's CPU version of CMIknn."""


@table("cmiknn_table5", "Table 5: speedups of the search", paper=PAPER, experiments=("cmiknn_table5",))
def cmiknn_table5(runs: Runs, reported: CsvRows) -> Table:
    """The table shows how many times faster PC-stable is with each method than with single-threaded tigramite, the CPU
    version of GPU-CMIknn's Table 5. Cells are medians over generated graphs; the paper's (Nvidia A40; AMD EPYC 7343)
    follow below ours. ``cmiknn-serial`` and ``cmiknn-parallel`` perform the same tests with the same random numbers as
    the GPU methods. ~ marks a skeleton that may differ because the method has its own random numbers; † marks a bound
    from a time limit.
    """
    slows = {run.dataset: run for run in of_method(runs, REFERENCE, **SINGLE_THREADED)}
    reference = next((run.setting for run in slows.values()), None)
    by_line: dict[tuple[str, str, int], dict[int, list[VerifiedRecord]]] = {}
    for run in runs:
        if run.problem:
            line = by_line.setdefault((run.setting, run.backend, run.problem["k_cmi"]), {})
            line.setdefault(run.problem["n_variables"], []).append(run)
    columns = sorted({p for line in by_line.values() for p in line} | {int(row["variables"]) for row in reported})
    order = list(dict.fromkeys(run.setting for run in runs))
    rows, plain, missing = [], [], False
    for setting, backend, k in sorted(by_line, key=lambda line: (order.index(line[0]), *line[1:])):
        ratios, times = {}, {}
        for p, here in sorted(by_line[setting, backend, k].items()):
            ratio = median_speedup([speedup(slows.get(run.dataset), run) for run in here])
            seconds = [run.median for run in here if run.median is not None]
            if seconds:
                times[p] = float(np.median(seconds))
            alone = p in times and not any(run.dataset in slows for run in here)
            cell = f"{number(times[p])} s" if alone else str(ratio)
            ratios[p] = cell + mark(*(run for run in here if not run.reference))
            missing = missing or (alone and setting != reference)
            plain.append(
                {"source": "ours", "setting": setting, "backend": backend}
                | csv_row(here[0], "machine")
                | {"k_cmi": k, "variables": p, "graphs": len(here), "finished": len(seconds)}
                | {"median_s": times.get(p), "speedup": ratio.value, "bound": ratio.bound}
            )
        if setting == reference:
            ratios = {p: f"{number(time)} s" for p, time in times.items()}
        who = f"ours: {label(setting, backend)}" + (", seconds" if setting == reference else "")
        rows.append([who, str(k), *(ratios.get(p, "–") for p in columns)])
    printed: dict[tuple[str, str], dict[int, str]] = {}
    for row in reported:
        printed.setdefault((row["method"], row["k_cmi"]), {})[int(row["variables"])] = row["value"]
        plain.append(
            {"source": "paper", "setting": row["method"], "machine": row["hardware"], "k_cmi": row["k_cmi"]}
            | {"variables": row["variables"], "speedup": row["value"]}
        )
    for (name, k), speedups in printed.items():
        rows.append([f"paper: {name}", k, *(f"{speedups[p]}×" if p in speedups else "–" for p in columns)])
    graphs = sorted({row["graphs"] for row in plain if row["source"] == "ours"})
    notes = [
        f"How many times faster than {REFERENCE} with one worker, the paper's single-threaded CPU version; medians "
        f"over graphs, ours {' or '.join(map(str, graphs)) or 'none'} of each kind, the paper's 10. "
        f"Ours: {_search(runs)}. Paper: n = 1,000, perm = 100.",
        *(["Cells in seconds are medians over the graphs that finished, on which that version was not run."] * missing),
        *places(runs),
        *remarks(runs),
        *(f"{CITED}, Table 5, {line}." for line in hardware(reported)),
    ]
    header = ["speedup over the single-threaded CPU version", "k_CMI", *(f"N = {p}" for p in columns)]
    return Table("Speedups of the search (GPU-CMIknn, Table 5)", header, rows, notes, plain, left=(0,))


def median_speedup(ratios: Sequence[Speedup]) -> Speedup:
    """Return the median of ratios. The result is a bound if some ratios are bounds of the same kind, and missing if
    ratios are missing or are bounds of both kinds."""
    known = [ratio for ratio in ratios if ratio.value is not None]
    bounds = {ratio.bound for ratio in known} - {""}
    if not known or len(known) < len(ratios) or len(bounds) > 1:
        return Speedup(None, why="–")
    return Speedup(float(np.median([ratio.value for ratio in known])), "".join(bounds))


def _search(runs: Iterable[VerifiedRecord]) -> str:
    """Return the parameters of the searches as a text."""
    problems = [run.problem for run in runs if run.problem]
    names = {"n_samples": "n", "permutations": "perm", "k_perm": "k_perm", "alpha": "alpha"}
    return stated((symbol, sorted({problem[name] for problem in problems})) for name, symbol in names.items())


@table("cmiknn_table10", "Table 10: sparse graphs and gene expressions", paper=PAPER, experiments=("cmiknn_table10",))
def cmiknn_table10(runs: Runs, reported: CsvRows) -> Table:
    """The table shows seconds on sparse generated graphs and gene expressions, as GPU-CMIknn's Table 10: ours above the
    paper's (Nvidia A40; eight cores of an AMD EPYC 7343). DNF means that a method did not finish within the time limit.
    """
    datasets = list(dict.fromkeys([*datasets_of(runs), *(row["dataset"] for row in reported)]))
    lines: dict[tuple[str, str], dict[str, VerifiedRecord]] = {}
    for run in runs:
        lines.setdefault((run.setting, run.backend), {})[run.dataset] = run
    rows, plain = [], []
    for (setting, backend), by_name in lines.items():
        cells = {
            name: f"DNF (> {number(run.limits.time_s)})" if run.status == "timeout" else time_cell(run)
            for name, run in by_name.items()
        }
        rows.append([f"ours: {label(setting, backend)}", *(cells.get(dataset, "–") for dataset in datasets)])
        columns = "setting backend machine dataset median_s low_s high_s limit_s status edges tests verification"
        plain += [{"source": "ours"} | csv_row(run, columns) for run in by_name.values()]
    printed: dict[str, dict[str, str]] = {}
    for row in reported:
        text = f"{float(row['value']):,g}" if row["status"] == "ok" else "DNF"
        printed.setdefault(row["method"], {})[row["dataset"]] = text
        plain.append(
            {"source": "paper", "setting": row["method"], "machine": row["hardware"], "dataset": row["dataset"]}
            | {"median_s": row["value"], "limit_s": row["limit_s"], "status": row["status"]}
        )
    for name, values in printed.items():
        rows.append([f"paper: {name}", *(values.get(dataset, "–") for dataset in datasets)])
    limits = sorted({run.limits.time_s for run in runs if run.limits.time_s})
    notes = [
        f"Ours: {_search(runs)}; median of the warm runs. Paper: n = 1,000 for the generated graphs, perm = 100, "
        "k_perm = 15, k_CMI = 7, alpha = 0.01.",
        "DNF: did not finish within the time limit, "
        f"ours {' or '.join(f'{number(limit)} s' for limit in limits) or 'none'}, the paper's 24 hours.",
        *places(runs),
        *remarks(run for run in runs if run.status != "timeout"),
        *(f"{CITED}, Table 10, {line}." for line in hardware(reported)),
    ]
    header = ["seconds", *datasets]
    return Table("Sparse graphs and gene expressions (GPU-CMIknn, Table 10)", header, rows, notes, plain, left=(0,))


BASE = 7
"""The k_CMI with which the others are compared."""

SHADE = "#666666"
"""The colour, before transparency, of the ranges of k_CMI to which a statement of the paper applies."""


@figure("cmiknn_fig1", "Fig. 1: change of SHD with k_CMI", paper=PAPER, experiments=("cmiknn_fig1",))
def cmiknn_fig1(runs: Runs, problems: Sequence[Mapping[str, Any]], reported: CsvRows) -> Drawing:
    """The figure shows how the structural Hamming distance between the estimated and the true CPDAG changes with k_CMI,
    relative to k_CMI = 7, as GPU-CMIknn's Fig. 1: minimum, median and maximum over generated graphs. The distance
    counts the pairs of variables on which the two CPDAGs differ: additional or missing edges, and directions to add,
    remove or reverse. ``results/tables/cmiknn_fig1.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    truths = {facts["name"]: facts.get("true_edges", []) for facts in problems}
    distances: dict[str, dict[int, int]] = {}
    rows = []
    for run in runs:
        source, k = run.dataset_facts.get("source"), run.problem and run.problem["k_cmi"]
        distance = None
        if run.counts and (found := run.skeleton) is not None:
            distance = structural_hamming_distance(orient(found), dag_of_edges(truths[run.dataset], len(found.names)))
            distances.setdefault(source, {})[k] = distance
        rows.append(
            {"graph": run.dataset, "source": source, "k_cmi": k, "shd": distance, "edges": run.edges}
            | {"true_edges": len(truths.get(run.dataset, ()))}
            | csv_row(run, "setting backend status verification")
        )
    changes: dict[int, list[int]] = {}
    for by_k in distances.values():
        if BASE in by_k:
            for k, distance in by_k.items():
                changes.setdefault(k, []).append(distance - by_k[BASE])
    for row in rows:
        base = distances.get(row["source"], {}).get(BASE)
        row["change"] = None if row["shd"] is None or base is None else row["shd"] - base
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.9))
    ks = sorted(changes)
    if ks:
        colour = style.colour(runs[0].method)
        lows, middles, highs = (np.array([of(changes[k]) for k in ks]) for of in (np.min, np.median, np.max))
        bars = {"yerr": [middles - lows, highs - middles], "elinewidth": 0.8, "capsize": 2}
        axes.errorbar(ks, middles, fmt="o-", color=colour, markersize=3, label="minimum, median, maximum", **bars)
    axes.axhline(0, color="black", linewidth=0.6)
    _printed_trends(axes, reported)
    axes.set_xscale("log")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(tick_number)
    axes.set_xlabel("k_CMI")
    axes.set_ylabel(f"SHD − SHD at k_CMI = {BASE}")
    graphs = sorted({len(of_k) for of_k in changes.values()})
    handles = axes.get_legend_handles_labels()[0]
    if reported:
        handles.append(Patch(color=SHADE, alpha=0.16, linewidth=0, label="the paper's statements (above)"))
    figure.legend(handles=handles, loc="outside lower right", fontsize=6)
    count = f"{graphs[0]} to {graphs[-1]}" if len(graphs) > 1 else str(graphs[0]) if graphs else "no"
    heading = [f"Below 0: closer to the truth. Ours: {count} graphs ({_search(runs)})", _trend(changes)]
    heading = [re.sub(r" (=|at) ", "\u00a0\\1\u00a0", line) for line in heading]  # Lines end after a whole value.
    heading = [textwrap.fill(line, 62).replace("\u00a0", " ") for line in heading]
    heading += [f"Above: the paper's median of {row['graphs']} graphs, as its text states it" for row in reported[:1]]
    figure.suptitle("\n".join(heading), fontsize=6, x=0.01, ha="left")
    footer(figure, runs, share=0.5)
    return Drawing(figure, rows)


def _printed_trends(axes: Axes, reported: CsvRows) -> None:
    """Write the paper's statements about its median above the range of k_CMI to which each applies."""
    for position, row in enumerate(reported):
        low, high = float(row["k_low"]), float(row["k_high"])
        axes.axvspan(low, high, color=SHADE, alpha=0.16 if position % 2 else 0.08, linewidth=0)
        words = re.sub(r"^the median | (?:up to|from) k_CMI.*$", "", row["statement"]).replace(" ", "\n")
        spot = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "annotation_clip": False}
        axes.annotate(words, (math.sqrt(low * high), 1.01), fontsize=6, color="#444444", **spot)


def _trend(changes: Mapping[int, Sequence[int]]) -> str:
    """Return the medians as a text."""
    medians = [f"{np.median(changes[k]):+g} at {k}" for k in sorted(changes) if k != BASE]
    return f"median {', '.join(medians)}" if medians else "nothing to compare"


SWEEPS = {"n": "number of samples n", "p": "number of variables p", "k_cmi": "k_CMI"}


@figure("cmiknn_scaling", "Scaling: search time against n, p and k_CMI", paper=PAPER, experiments=("cmiknn_scaling",))
def cmiknn_scaling(runs: Runs, sweeps: Sweeps) -> Drawing:
    """The figure shows the seconds of a whole search against the number of samples, the number of variables and k_CMI,
    on graphs generated as in section 5.1 of GPU-CMIknn; both axes are logarithmic. The number below a point is the
    number of tests, which depends on n, p and k as well. Triangles mark an exceeded time limit. The paper has no such
    figure. ``results/tables/cmiknn_scaling.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt

    style.use()
    figure, grid = plt.subplots(1, len(sweeps), figsize=(style.PAGE_WIDTH, 2.7), sharey=True, squeeze=False)
    rows, handles = [], {}
    for axes, (name, graphs) in zip(grid[0], sweeps.items(), strict=True):
        lines: dict[tuple[str, str], list[VerifiedRecord]] = {}
        for run in sorted((run for run in runs if run.dataset in graphs), key=lambda run: graphs[run.dataset]):
            lines.setdefault((run.setting, run.backend), []).append(run)
            rows.append(
                {"panel": name, "value": graphs[run.dataset], "graph": run.dataset}
                | csv_row(run, "setting backend machine median_s tests status limit_s verification")
            )
        at_all = [run for here in lines.values() for run in here if run.counts]
        for (setting, backend), here in lines.items():
            done = [run for run in here if run.counts]
            first = (setting, backend) == next(iter(lines))
            look = {
                "color": style.colour(here[0].method),
                "marker": style.MARKERS[backend],
                "linestyle": "-" if first else "--",
                "markersize": 3,
            }
            (handles[label(setting, backend)],) = axes.plot(
                [graphs[run.dataset] for run in done], [run.median for run in done], **look
            )
            late = [run for run in here if run.status == "timeout"]
            limits = [run.limits.time_s for run in late]
            axes.plot([graphs[run.dataset] for run in late], limits, "^", color=look["color"])
            for run in done if first else ():
                lowest = min(other.median or math.inf for other in at_all if other.dataset == run.dataset)
                spot = {"xytext": (0, -4), "textcoords": "offset points", "ha": "left", "va": "top", "fontsize": 6}
                axes.annotate(f"{run.tests:,}", (graphs[run.dataset], lowest), **spot)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.margins(x=0.15, y=0.12)  # This leaves room for the numbers.
        values = sorted(set(graphs.values()))
        axes.set_xticks(values, [f"{value / 1000:g}k" if value >= 1000 else f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(tick_number)
        axes.set_xlabel(SWEEPS.get(name, name))
    grid[0][0].set_ylabel("seconds")
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside lower right", ncols=2)
    over = "; triangles: over the time limit" if any(run.status == "timeout" for run in runs) else ""
    figure.suptitle(f"Numbers below the points: CI tests{over}", fontsize=7, x=0.01, ha="left")
    footer(figure, runs, share=0.35)
    return Drawing(figure, rows)
