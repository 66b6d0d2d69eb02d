"""The searches of the GPU-CMIknn paper: Tables 5 and 10 and Fig. 1, from records and saved skeletons only."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.orientation import orient
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Facts, figure, table
from gpupc_impl.reporting.cells import Speedup, label, mark, number, speedup, time_cell
from gpupc_impl.reporting.figures import Drawing, footer, tick_number
from gpupc_impl.reporting.lines import Cell, Line, csv_row, of_lines, printed, times
from gpupc_impl.reporting.notes import hardware, places, remarks, stated
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
    groups: dict[tuple[str, str, int], dict[int, list[VerifiedRecord]]] = {}
    for run in (run for run in runs if run.problem):
        of_line = groups.setdefault((run.setting, run.backend, run.problem["k_cmi"]), {})
        of_line.setdefault(run.problem["n_variables"], []).append(run)
    order = list(dict.fromkeys(run.setting for run in runs))
    lines: list[Line] = []
    alone = False
    for setting, backend, k in sorted(groups, key=lambda line: (order.index(line[0]), *line[1:])):
        cells = {p: _table5_cell(here, slows, setting == reference) for p, here in groups[setting, backend, k].items()}
        alone |= setting != reference and any(cell.text.endswith(" s") for cell in cells.values())
        who = f"ours: {label(setting, backend)}" + (", seconds" if setting == reference else "")
        lines.append(Line([who, str(k)], cells))
    for (name, k), rows in grouped_rows(reported, "method", "k_cmi").items():
        cells = printed(rows, lambda row: int(row["variables"]), lambda row: f"{row['value']}×")
        lines.append(Line([f"paper: {name}", k], cells))
    graphs = sorted({len(here) for line in groups.values() for here in line.values()})
    notes = [
        f"How many times faster than {REFERENCE} with one worker, the paper's single-threaded CPU version; medians "
        f"over graphs, ours {' or '.join(map(str, graphs)) or 'none'} of each kind, the paper's 10. "
        f"Ours: {_search(runs)}. Paper: n = 1,000, perm = 100.",
        *(["Cells in seconds are medians over the graphs that finished, on which that version was not run."] * alone),
        *places(runs),
        *remarks(runs),
        *(f"{CITED}, Table 5, {line}." for line in hardware(reported)),
    ]
    sizes = sorted({p for line in lines for p in line.cells})
    head = ["speedup over the single-threaded CPU version", "k_CMI"]
    title, columns = "Speedups of the search (GPU-CMIknn, Table 5)", {p: f"N = {p}" for p in sizes}
    return of_lines(title, head, columns, lines, notes, left=(0,))


def grouped_rows(rows: CsvRows, *names: str) -> dict[tuple[str, ...], list[Mapping[str, str]]]:
    """Return rows of results/reported by their values in some columns."""
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _table5_cell(here: Runs, slows: Mapping[str, VerifiedRecord], is_reference: bool) -> Cell:
    """Return the median speedup over the graphs of a size; the median time where the reference was not run on any."""
    ratio = median_speedup([speedup(slows.get(run.dataset), run) for run in here])
    seconds = [run.median for run in here if run.median is not None]
    median = float(np.median(seconds)) if seconds else None
    own = {"source": "ours", "setting": here[0].setting, "backend": here[0].backend, "machine": here[0].machine}
    own |= {"k_cmi": here[0].problem["k_cmi"], "variables": here[0].problem["n_variables"]}
    own |= {"graphs": len(here), "finished": len(seconds), "median_s": median, **ratio.facts}
    in_seconds = is_reference or not any(run.dataset in slows for run in here)
    text = ("–" if median is None else f"{number(median)} s") if in_seconds else str(ratio)
    return Cell(text + mark(*(run for run in here if not run.reference)) * (text != "–"), own)


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
    lines = []
    for setting, backend in dict.fromkeys((run.setting, run.backend) for run in runs):
        here = [run for run in runs if (run.setting, run.backend) == (setting, backend)]
        lines.append(Line([f"ours: {label(setting, backend)}"], times(here, time_or_dnf)))
    for (name,), rows in grouped_rows(reported, "method").items():
        text = printed(rows, text=lambda row: f"{float(row['value']):,g}" if row["status"] == "ok" else "DNF")
        lines.append(Line([f"paper: {name}"], text))
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
    columns = {name: name for name in [*datasets_of(runs), *(row["dataset"] for row in reported)]}
    title = "Sparse graphs and gene expressions (GPU-CMIknn, Table 10)"
    return of_lines(title, ["seconds"], columns, lines, notes, left=(0,))


def time_or_dnf(run: VerifiedRecord) -> str:
    return f"DNF (> {number(run.limits.time_s)})" if run.status == "timeout" else time_cell(run)


BASE = 7
"""The k_CMI with which the others are compared."""


@figure("cmiknn_fig1", "Fig. 1: change of SHD with k_CMI", paper=PAPER, experiments=("cmiknn_fig1",))
def cmiknn_fig1(runs: Runs, problems: Facts, reported: CsvRows) -> Drawing:
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
        true_edges = len(truths.get(run.dataset, ()))
        rows.append({"source": source, "k_cmi": k, "shd": distance, "true_edges": true_edges, **csv_row(run)})
    changes = {
        k: [by_k[k] - by_k[BASE] for by_k in distances.values() if k in by_k and BASE in by_k]
        for k in sorted({k for by_k in distances.values() if BASE in by_k for k in by_k})
    }
    for row in rows:
        base = distances.get(row["source"], {}).get(BASE)
        row["change"] = None if row["shd"] is None or base is None else row["shd"] - base
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.9))
    if changes:
        lows, middles, highs = (np.array([of(them) for them in changes.values()]) for of in (np.min, np.median, np.max))
        bars = {"yerr": [middles - lows, highs - middles], "elinewidth": 0.8, "capsize": 2, "markersize": 3}
        colour = style.colour(runs[0].method)
        axes.errorbar(list(changes), middles, fmt="o-", color=colour, label="minimum, median, maximum", **bars)
    axes.axhline(0, color="black", linewidth=0.6)
    _printed_trends(axes, reported)
    axes.set(xscale="log", xlabel="k_CMI", ylabel=f"SHD − SHD at k_CMI = {BASE}")
    axes.set_xticks(list(changes), [str(k) for k in changes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(tick_number)
    handles = axes.get_legend_handles_labels()[0]
    if reported:
        handles.append(Patch(color=style.GREY, alpha=0.16, linewidth=0, label="the paper's statements (above)"))
    figure.legend(handles=handles, loc="outside lower right", fontsize=6)
    graphs = sorted({len(of_k) for of_k in changes.values()})
    count = " to ".join(map(str, dict.fromkeys([graphs[0], graphs[-1]]))) if graphs else "no"
    medians = [f"{np.median(them):+g} at {k}" for k, them in changes.items() if k != BASE]
    trend = f"median {', '.join(medians)}" if medians else "nothing to compare"
    heading = [f"Below 0: closer to the truth. Ours: {count} graphs ({_search(runs)})", trend]
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
        axes.axvspan(low, high, color=style.GREY, alpha=0.16 if position % 2 else 0.08, linewidth=0)
        words = re.sub(r"^the median | (?:up to|from) k_CMI.*$", "", row["statement"]).replace(" ", "\n")
        spot = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "annotation_clip": False}
        axes.annotate(words, (math.sqrt(low * high), 1.01), fontsize=6, color="#444444", **spot)
