"""cuPC's Tables 1 and 2 and Figs. 5 to 10 (doi:10.1109/TPDS.2019.2939126), from records only."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import figure, table
from gpupc_impl.reporting.cells import (
    Speedup,
    count,
    csv_row,
    geometric_mean,
    label,
    mark,
    number,
    places,
    remarks,
    speedup,
    status_word,
    time_cell,
)
from gpupc_impl.reporting.figures import HEADING, SMALL_PRINT, Drawing, footer, name_datasets, panels_of, tick_number
from gpupc_impl.reporting.runs import VerifiedRecord, by_backend, datasets_of, device_backends, of_method, of_settings
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "cuPC"
CUPC = ("cupc-e", "cupc-s")
BASELINES = ("baseline-1", "baseline-2")
SERIAL, PARALLEL = "stable-serial", "stable-parallel"

SELECTED = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}
"""The configurations that the paper's results are of (section 5.4)."""


RULES = ("first-come", "canonical")
"""For separating sets: the paper's own, and ours where that was not measured."""


def runs_of(runs: Sequence[VerifiedRecord], method: str, rules: Sequence[str] = RULES) -> list[VerifiedRecord]:
    """One setting of a method, in the paper's configuration where that was measured; none with another test."""
    same_test = [run for run in runs if run.params.get("inverse") != "pseudo"]
    return of_method(same_test, method, rules, **SELECTED.get(method, {}))


# --- Table 1 ---------------------------------------------------------------------------------------------------------


@table("cupc_table1", "Table 1: data sets", paper=PAPER, family="gaussian")
def cupc_table1(problems: Sequence[Mapping[str, Any]], reported: Sequence[Mapping[str, str]]) -> Table:
    """The data sets, with the shapes of cuPC's Table 1 beside ours. A data set that is not available says why, and has
    no times in the other tables.
    """
    paper = {row["dataset"]: row for row in reported}
    plain, rows, reasons = [], [], []
    for facts in problems:
        theirs = paper.get(facts["name"], {})
        ours = facts if facts["available"] else {"n_variables": None, "n_samples": None}
        plain.append(
            {
                "dataset": facts["name"],
                "available": facts["available"],
                "variables": ours["n_variables"],
                "samples": ours["n_samples"],
                "variables_reported": theirs.get("variables"),
                "samples_reported": theirs.get("samples"),
                "alpha": facts["alpha"],
                "source": facts.get("source") or facts.get("url"),
                "licence": facts.get("licence"),
                "citation": facts.get("citation"),
                "note": facts.get("note"),
                "sha256": facts.get("sha256"),
                "why_not": facts["why"],
            }
        )
        rows.append(
            [
                theirs.get("label", facts["name"]),
                "available" if facts["available"] else "not available",
                count(ours["n_variables"]),
                count(theirs.get("variables")),
                count(ours["n_samples"]),
                count(theirs.get("samples")),
                facts.get("licence") or "–",
                facts.get("source") or facts.get("url") or "–",
            ]
        )
        if facts["why"]:
            reasons.append(facts["why"])
    header = ["data set", "status", "n", "n (paper)", "m", "m (paper)", "licence", "source"]
    notes = ["n: variables; m: samples. Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 1.", *reasons]
    if reasons:
        notes.append("To try the network again: snakemake --forcerun fetch_dataset")
    return Table("Data sets (cuPC, Table 1)", header, rows, notes, plain, left=(0, 1, 6, 7))


# --- Table 2 ---------------------------------------------------------------------------------------------------------

RUNTIMES = (("T1", None), ("T2", PARALLEL), ("T3", SERIAL), ("T4", "cupc-e"), ("T5", "cupc-s"))
"""The paper's rows, and the methods of ours beside them."""

SPEEDUPS = (
    ("T1/T2", "T3/T2", SERIAL, PARALLEL),
    ("T3/T4", "T3/T4", SERIAL, "cupc-e"),
    ("T3/T5", "T3/T5", SERIAL, "cupc-s"),
)
"""The paper's ratios, ours beside them (Stable, T1, is not among our references), the slow and the fast method."""


@table("cupc_table2", "Table 2: runtimes and speedups", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_table2(runs: Sequence[VerifiedRecord], reported: Sequence[Mapping[str, str]]) -> Table:
    """Runtimes and speedups as in cuPC's Table 2, at alpha = {{ config["alpha"] }}: ours (median of the warm runs,
    20–80 % band) above the paper's (Nvidia GTX 1080; Intel Xeon at 2.5 GHz, 8 cores). cuPC by the paper's rule for
    separating sets, of which speedups are, and with canonical ones. † marks a bound from a time limit.
    """
    datasets = datasets_of(runs)
    chosen = {method: runs_of(runs, method) for method in (SERIAL, PARALLEL, *CUPC)}
    settings = {method: [some] for method, some in chosen.items()}
    for method in CUPC:
        canonical = runs_of(runs, method, rules=("canonical",))
        if canonical != chosen[method]:
            settings[method].append(canonical)
    paper = {(row["symbol"], row["dataset"]): row["value"] for row in reported}
    about = {row["symbol"]: row for row in reported}
    rows, plain = [], []

    def add(symbol: str, who: str, source: str, cells: Sequence[str], mean: str) -> None:
        if {*cells, mean} != {"–"}:
            rows.append([symbol if "/" in symbol else f"{symbol}, s", f"{source}: {who}", *cells, mean])

    def add_reported(symbol: str) -> None:
        row = about[symbol]
        values = [paper.get((symbol, dataset)) for dataset in datasets]
        mean = paper.get((symbol, "geometric mean"))
        cells = ["–" if value is None else f"{Decimal(value):,}" for value in values]
        mean_cell = "–" if mean is None else f"{Decimal(mean):,} (6)"
        add(symbol, f"{row['method']}, {row['hardware']}", "paper", cells, mean_cell)
        of_ours = {*datasets, "geometric mean"}
        facts = {"symbol": symbol, "source": "reported", "method": row["method"], "machine": row["hardware"]}
        plain.extend(
            facts | {"dataset": dataset, "value": value}
            for (name, dataset), value in paper.items()
            if name == symbol and dataset in of_ours
        )

    for symbol, method in RUNTIMES:
        lines = [line for some in settings.get(method, []) for line in by_backend(some).items()]
        for backend, by_dataset in lines:
            who = label(next(iter(by_dataset.values())).setting, backend)
            add(symbol, who, "ours", [time_cell(by_dataset.get(dataset)) for dataset in datasets], "–")
            facts = {"symbol": symbol, "source": "ours"}
            plain += [
                facts
                | csv_row(run, "method separating_sets backend machine dataset")
                | {"value": run.median, "low": run.low, "high": run.high}
                | csv_row(run, "status verification")
                for run in by_dataset.values()
            ]
        add_reported(symbol)
    for reported_symbol, symbol, slow, fast in SPEEDUPS:
        slows = {run.dataset: run for run in chosen[slow]}
        for backend, fasts in by_backend(chosen[fast]).items():
            pairs = [(slows.get(dataset), fasts.get(dataset)) for dataset in datasets]
            ratios = [speedup(*pair) for pair in pairs]
            cells = [str(ratio) + mark(*pair) for ratio, pair in zip(ratios, pairs, strict=True)]
            both = [] if backend == "cpu" else [by_backend(chosen[method]).get(backend, {}) for method in CUPC]
            mean, finished = mean_speedup(slows, fasts, both)
            who = f"{label(next(iter(fasts.values())).setting, backend)} over {label(slow)}"
            add(symbol, who, "ours", cells, "–" if mean is None else f"{number(mean)}× ({finished})")
            facts = {"symbol": symbol, "source": "ours", "method": fast, "backend": backend}
            plain += [
                facts
                | {"machine": run.machine, "dataset": run.dataset, "value": ratio.value, "bound": ratio.bound}
                | csv_row(run, "status verification")
                for ratio, (_, run) in zip(ratios, pairs, strict=True)
                if run
            ]
            plain.append(facts | {"dataset": "geometric mean", "value": mean, "datasets_in_mean": finished})
        add_reported(reported_symbol)
    header = ["", "runtime, speedup", *datasets, "geometric mean (data sets)"]
    notes = [
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from the correlation matrix "
        "in host memory to the skeleton and its separating sets in host memory.",
        *places(runs),
        "Geometric means of cuPC-E and cuPC-S are over the data sets on which both and the serial reference finished "
        "with a verified skeleton, their number in parentheses; ours of T3/T2 likewise, beside the paper's T1/T2: "
        "its Stable (T1, in R) is not among our references.",
        "The paper's hardware is not ours: compare ratios, not times.",
        *remarks(of_settings(runs, [some for both in settings.values() for some in both])),
        "Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 2.",
    ]
    columns = "symbol source method separating_sets backend machine dataset value low high bound status verification"
    columns = [*columns.split(), "datasets_in_mean"]
    return Table("Runtimes and speedups (cuPC, Table 2)", header, rows, notes, plain, columns=columns)


def mean_speedup(
    slows: Mapping[str, VerifiedRecord],
    fasts: Mapping[str, VerifiedRecord],
    others: Sequence[Mapping[str, VerifiedRecord]],
) -> tuple[float | None, int]:
    """Geometric mean over the data sets that the whole comparison finished, and their number."""
    ratios = [
        slow.median / fasts[dataset].median
        for dataset, slow in slows.items()
        if all(dataset in times and times[dataset].counts for times in (slows, fasts, *others))
    ]
    return geometric_mean(ratios), len(ratios)


# --- Fig. 5 ----------------------------------------------------------------------------------------------------------

PRINTED = "paper, GTX 1080: cuPC-E from lowest to highest of six data sets, cuPC-S on DREAM5-Insilico"


@figure(
    "cupc_fig5", "Fig. 5: cuPC over the baselines", paper=PAPER, family="gaussian", methods=BASELINES, numbers=False
)
def cupc_fig5(runs: Sequence[VerifiedRecord], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """Speedup of cuPC-E and cuPC-S over the two baseline GPU algorithms, as in cuPC's Fig. 5; ratios of median runtimes
    on one machine and backend. Hollow bars: what the paper's text states for a GTX 1080 (for cuPC-E the range over its
    six data sets, for cuPC-S the value for DREAM5-Insilico). Hatched bars are bounds from a time limit. Data sets on
    which no baseline was run are left out.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    chosen = {method: by_backend(runs_of(runs, method)) for method in CUPC + BASELINES}
    backends = device_backends(runs) or ["host"]
    size = (style.PAGE_WIDTH, 3.9)
    figure, panels = plt.subplots(2, len(backends), figsize=size, sharex="col", sharey=True, squeeze=False)
    for column, backend in enumerate(backends):
        its_runs = [run for run in runs if run.backend == backend]
        compared = [run for run in its_runs if run.method in BASELINES and run.status != "skipped"]
        datasets = datasets_of(compared or its_runs)
        by_method = {method: its.get(backend, {}) for method, its in chosen.items()}
        for row, baseline in enumerate(BASELINES):
            axes = panels[row, column]
            printed = [line for line in reported if line["over"] == baseline]
            _fig5_panel(axes, datasets, by_method, baseline, printed)
            axes.set_title(f"Over {label(baseline)}, backend {backend}", loc="left")
        panels[0, column].tick_params(axis="x", labelbottom=False)
    for axes in panels[:, 0]:
        axes.set_ylabel("times faster")
    handles = [Patch(color=style.colour(method), label=label(method)) for method in CUPC]
    handles.append(Patch(facecolor="none", edgecolor="black", label=PRINTED))
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    footer(figure, [run for run in runs if run.method in CUPC + BASELINES])
    return Drawing(figure)


def _fig5_panel(
    axes: Axes,
    datasets: Sequence[str],
    by_method: Mapping[str, Mapping[str, VerifiedRecord]],
    baseline: str,
    printed: Sequence[Mapping[str, str]],
) -> None:
    from matplotlib.ticker import LogLocator

    for x, dataset in enumerate(datasets):
        slow = by_method[baseline].get(dataset)
        for side, method in zip((-0.2, 0.2), CUPC, strict=True):
            fast = by_method[method].get(dataset)
            verified = all(run is None or run.verification != "unexplained" for run in (slow, fast))
            _bar(axes, x + side, speedup(slow, fast), style.colour(method), verified)
    place = len(datasets)
    for line in printed:
        x = place + (-0.2 if line["method"] == "cupc-e" else 0.2)
        low, high = float(line["low"]), float(line["high"])
        bottom = 1 if low == high else low
        edge = {"facecolor": "none", "edgecolor": style.colour(line["method"])}
        axes.bar(x, high - bottom, 0.36, bottom=bottom, **edge)
        text = number(high) if low == high else f"{low:g}–{high:g}"
        axes.annotate(text, (x, high), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=5.5)
    axes.axvline(place - 0.5, color="black", linewidth=0.6)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.yaxis.set_major_formatter(tick_number)
    axes.margins(y=0.15)
    name_datasets(axes, [*datasets, "paper"])


def _bar(axes: Axes, x: float, ratio: Speedup, colour: str, verified: bool) -> None:
    """One ratio: a solid bar, hatched for a bound; words where there is no number."""
    if ratio.value is None:
        axes.annotate(ratio.why, (x, 1), (0, 3), textcoords="offset points", ha="center", rotation=90, fontsize=5.5)
        return
    hatch = {"facecolor": "white", "edgecolor": colour, "hatch": "////"} if ratio.bound else {"facecolor": colour}
    axes.bar(x, ratio.value - 1, 0.36, bottom=1, **hatch)
    text = ratio.bound + number(ratio.value) + ("" if verified else " ✗")
    below = ratio.value < 1
    axes.annotate(
        text,
        (x, ratio.value),
        (0, -1 if below else 1),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        fontsize=5.5,
    )


# --- Fig. 6 ----------------------------------------------------------------------------------------------------------

LEVELS_SHOWN = 5
"""Levels with a colour of their own; those from here on share one."""

OUTSIDE = "transfers"
"""What of the runtime belongs to no level."""


@figure("cupc_fig6", "Fig. 6: share of each level", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_fig6(runs: Sequence[VerifiedRecord], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """Share of the runtime that each level takes in cuPC-E and cuPC-S, as in cuPC's Fig. 6; medians over the warm runs.
    A level includes the compaction of the graph before it; "transfers" is what belongs to no level. The paper (GTX
    1080): level 1 takes 49 to 83 % in its first five data sets; in DREAM5-Insilico level 1 takes less than 10 %, and
    levels 2 to 5 take 90 % (cuPC-E) and 70 % (cuPC-S). Ours stands in the heading. Numbers:
    ``results/tables/cupc_fig6.csv``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    chosen = {method: by_backend(runs_of(runs, method)) for method in CUPC}
    runs = of_settings(runs, [runs_of(runs, method) for method in CUPC])
    bars = panels_of(runs)
    figure, (upper, lower) = plt.subplots(2, figsize=(style.COLUMN_WIDTH, 4.2), sharex=True, sharey=True)
    parts = [f"level {level}" for level in range(LEVELS_SHOWN)] + [f"levels ≥ {LEVELS_SHOWN}", OUTSIDE]
    colours = [*plt.get_cmap("viridis_r")(np.linspace(0.05, 0.95, LEVELS_SHOWN + 1)), "#CCCCCC"]
    rows = []
    for axes, method, letter in zip((upper, lower), CUPC, "ab", strict=True):
        for x, (dataset, backend) in enumerate(bars):
            run = chosen[method].get(backend, {}).get(dataset)
            shares = run and level_shares(run)
            if not shares:
                word = status_word(run.status) if run else "not measured"
                axes.annotate(word, (x, 2), rotation=90, ha="center", va="bottom", fontsize=6)
            else:
                _stack(axes, x, _grouped(shares), colours)
            for part, share in shares.items() if shares else [("", None)] * bool(run):
                rows.append(
                    csv_row(run, "dataset backend method")
                    | {"part": part, "percent": share}
                    | csv_row(run, "status verification")
                )
        axes.set_title(f"({letter}) {label(method)}", loc="left")
        axes.set_ylabel("% of the runtime")
        axes.set_ylim(0, 100)
        axes.grid(visible=False)
    name_datasets(lower, list(bars.values()))
    upper.tick_params(axis="x", labelbottom=False)
    handles = [Patch(facecolor=colour, label=part) for colour, part in zip(colours, parts, strict=True)]
    figure.legend(handles=handles[::-1], loc="outside right center")
    lines = [
        f"Level 1 in {', '.join(line['datasets'].split())}:\n"
        f"paper {line['low']} to {line['high']} %; ours {_level_one(rows, line['datasets'].split())}"
        for line in reported
        if line["level"] == "1"
    ]
    figure.suptitle("\n".join(lines), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows, columns=("dataset", "backend", "method", "part", "percent", "status", "verification"))


def _level_one(rows: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> str:
    """The range of level 1 over those of the data sets that were measured."""
    percents = {(row["dataset"], row["method"]): row["percent"] for row in rows if row["part"] == "1"}
    shares = [share for (dataset, _), share in percents.items() if dataset in datasets]
    count = len({dataset for dataset, _ in percents if dataset in datasets})
    return f"{min(shares):.0f} to {max(shares):.0f} % in {count} of {len(datasets)}" if shares else "not measured"


def level_shares(run: VerifiedRecord) -> dict[str, float] | None:
    """Median percentage of the runtime by level, and of what is no level's; None when there is no time."""
    times = run.time_s
    if run.median is None:
        return None
    shares = [[100 * level / total for level in levels] for levels, total in zip(times.levels, times.warm, strict=True)]
    medians = [float(median) for median in np.median(shares, axis=0)]
    return {**{str(level): share for level, share in enumerate(medians)}, OUTSIDE: max(0.0, 100 - sum(medians))}


def _grouped(shares: Mapping[str, float]) -> list[float]:
    levels = [share for part, share in shares.items() if part != OUTSIDE]
    levels += [0.0] * (LEVELS_SHOWN - len(levels))
    return [*levels[:LEVELS_SHOWN], sum(levels[LEVELS_SHOWN:]), shares[OUTSIDE]]


def _stack(axes: Axes, x: float, heights: Sequence[float], colours: Sequence[Any]) -> None:
    bottom = 0.0
    for position, (height, colour) in enumerate(zip(heights, colours, strict=True)):
        axes.bar(x, height, 0.75, bottom=bottom, color=colour, edgecolor="white", linewidth=0.3)
        if height >= 7:
            ink = "white" if 2 <= position <= LEVELS_SHOWN else "black"
            axes.annotate(f"{height:.0f}", (x, bottom + height / 2), ha="center", va="center", color=ink, fontsize=5.5)
        bottom += height


# --- Figs. 7 and 8 ---------------------------------------------------------------------------------------------------

GREEK = {"beta": "β", "gamma": "γ", "theta": "θ", "delta": "δ"}
HATCH = {"facecolor": "white", "edgecolor": "#888888", "hatch": "//////", "linewidth": 0}


@figure("cupc_fig7", "Fig. 7: configurations of cuPC-E", paper=PAPER, experiments=("cupc_fig7",))
def cupc_fig7(runs: Sequence[VerifiedRecord], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """How many times faster 30 configurations of cuPC-E are than the selected one (framed: beta = 2, gamma = 32), as in
    cuPC's Fig. 7; ratios of median runtimes on one machine and backend. Y axis: beta, edges a block; X axis: gamma,
    threads an edge. Hatched: failed or over the time limit; grey: not run. The paper (GTX 1080): 0.3 to 1.3, larger
    gamma better on dense graphs, smaller gamma on sparse ones. Ours stands in the heading. {% if config["backend"] ==
    "host" %}On the host backend every thread of a block costs time, needed or not, so small gamma wins.{% endif %}
    Numbers: ``results/tables/cupc_fig7.csv``.
    """
    return heatmaps(runs, reported[0], across=3, panel=(2.35, 2.3))


@figure("cupc_fig8", "Fig. 8: configurations of cuPC-S", paper=PAPER, experiments=("cupc_fig8",))
def cupc_fig8(runs: Sequence[VerifiedRecord], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """How many times faster 16 configurations of cuPC-S are than the selected one (framed: theta = 64, delta = 2), as
    in cuPC's Fig. 8; ratios of median runtimes on one machine and backend. Y axis: theta, threads a block; X axis:
    delta, blocks a row. Hatched: failed or over the time limit; grey: not run. The paper (GTX 1080): 0.7 to 1.2, less
    variation than in cuPC-E. Ours stands in the heading. Numbers: ``results/tables/cupc_fig8.csv``.
    """
    return heatmaps(runs, reported[0], across=3, panel=(1.1, 1.35))


def heatmaps(
    runs: Sequence[VerifiedRecord], reported: Mapping[str, str], across: int, panel: tuple[float, float]
) -> Drawing:
    """How many times faster each configuration is than the selected one: a panel a data set.

    The first parameter of the configurations is the Y axis, the second the X axis.

    Args:
        reported: what the paper states: the selected configuration, and the range of the ratios.
        across: panels in a row.
        panel: inches of one panel.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    style.use()
    y_name, x_name, *_ = runs[0].params
    ys, xs = (sorted({run.params[name] for run in runs}) for name in (y_name, x_name))
    panels = panels_of(runs)
    columns = min(across, len(panels))
    # A single small panel stands beside the scale of colours and under a heading that need a column's width.
    size = (max(panel[0] * columns, style.COLUMN_WIDTH), panel[1] * math.ceil(len(panels) / columns) + 0.9)
    figure, grid = plt.subplots(
        math.ceil(len(panels) / columns), columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    selected = tuple(map(int, reported["selected"].split("-")))
    cells, rows = [], []
    for dataset, backend in panels:
        shown = {
            (run.params[y_name], run.params[x_name]): run
            for run in runs
            if (run.dataset, run.backend) == (dataset, backend)
        }
        ratios = {place: speedup(shown.get(selected), run) for place, run in shown.items()}
        cells.append((shown, ratios))
        for (y, x), ratio in ratios.items():
            run = shown[y, x]
            rows.append(
                csv_row(run, "dataset backend method")
                | {y_name: y, x_name: x}
                | csv_row(run, "median_s low_s high_s")
                | {"ratio": ratio.value, "bound": ratio.bound}
                | csv_row(run, "status verification")
            )
    values = [row["ratio"] for row in rows if row["ratio"] is not None and not row["bound"]]
    reach = max([1.0, *(abs(math.log2(value)) for value in values)])
    colours = plt.cm.ScalarMappable(Normalize(-reach, reach), "RdBu")
    for axes, title, (shown, ratios) in zip(grid.flat, panels.values(), cells, strict=False):
        for (y, x), ratio in ratios.items():
            _cell(axes, (xs.index(x), ys.index(y)), shown[y, x], ratio, colours)
        if selected in shown:
            place = (xs.index(selected[1]) - 0.5, ys.index(selected[0]) - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor="black", linewidth=1, zorder=3))
        axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5), aspect="equal")
        axes.set_xticks(range(len(xs)), xs, fontsize=6 if len(xs) < 8 else 5)
        axes.set_yticks(range(len(ys)), ys, fontsize=6)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(textwrap.fill(title, int(14 * size[0] / columns)), fontsize=6)
        axes.label_outer()
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel(GREEK.get(y_name, y_name))
    for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel(GREEK.get(x_name, x_name))
        axes.tick_params(axis="x", labelbottom=True)
    bar = figure.colorbar(colours, ax=figure.axes, aspect=30, pad=0.02, ticks=MaxNLocator(integer=True))
    bar.ax.yaxis.set_major_formatter(lambda power, _: f"{2**power:g}×")
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(labelsize=6)
    method = label(reported["method"])
    ours = f"{_short(min(values))} to {_short(max(values))}×" if values else "nothing measured"
    heading = f"{method} against {method}-{reported['selected']} (> 1: faster)\n"
    heading += f"ours: {ours}; paper: {reported['low']} to {reported['high']}×"
    figure.suptitle(heading, fontsize=7, x=0.01, ha="left")
    _heatmap_legend(figure, runs)
    footer(figure, runs)
    return Drawing(figure, rows)


def _cell(axes: Axes, place: tuple[int, int], run: VerifiedRecord, ratio: Speedup, colours: Any) -> None:
    """One configuration: its ratio; hatched where it failed, grey where it was not run or there is no ratio."""
    from matplotlib.patches import Rectangle

    x, y = place
    if run.median is not None and ratio.value is not None and not ratio.bound:
        fill = {"facecolor": colours.to_rgba(math.log2(ratio.value)), "edgecolor": "white", "linewidth": 0.4}
        dark = abs(math.log2(ratio.value)) > 0.6 * colours.norm.vmax
        ink = "white" if dark else "black"
        text = _short(ratio.value) + ("" if run.counts else "✗")
        axes.annotate(text, (x, y), ha="center", va="center", color=ink, fontsize=5)
    elif run.status in ("skipped", "ok"):
        fill = {"facecolor": "#BBBBBB", "edgecolor": "white", "linewidth": 0.4}
    else:
        fill = HATCH
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **fill))


def _short(value: float) -> str:
    """A ratio in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _heatmap_legend(figure: Figure, shown: Sequence[VerifiedRecord]) -> None:
    from matplotlib.patches import Patch

    handles = []
    if any(run.status not in ("ok", "skipped") for run in shown):
        handles.append(Patch(label="failed, or over the time limit", **HATCH))
    if any(run.status == "skipped" for run in shown):
        handles.append(Patch(facecolor="#BBBBBB", label="not run"))
    if handles:
        figure.legend(handles=handles, loc="outside lower right", fontsize=6)


# --- Fig. 9 ----------------------------------------------------------------------------------------------------------

WIDTHS = (1, 2, 4, 5, 8, 10, 20, 40)
"""Widths a bin may have: they divide 40, so that the paper's 40 rows end a bin."""

MOST_BINS = 24


@figure("cupc_fig9", "Fig. 9: shared conditional sets", paper=PAPER, family="gaussian", numbers=False)
def cupc_fig9(sharing: Sequence[Mapping[str, str]], reported: Sequence[Mapping[str, str]]) -> Drawing:
    r"""How many rows of A'\ :sub:`G` share a conditional set in level 2, in percent of the redundant sets (those that
    appear in more than one row), as in cuPC's Fig. 9, on the real data set with the most sets; counted exactly from the
    graph at the start of level 2 at alpha = {{ config["alpha"] }}. Dashed: the paper's "about 95 % [...] in at most 40
    rows", which speaks of DREAM5-Insilico. All data sets are in ``results/sharing.csv``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.4))
    shown = shared_sets.largest(shared_sets.load(sharing))
    if shown is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no data set has a conditional set\nin more than one row", ha="center", va="center")
        return Drawing(figure)
    paper = reported[0]
    most, percent = int(paper["rows_at_most"]), float(paper["percent"])
    width = next((w for w in WIDTHS if shown.rows[-1] / w <= MOST_BINS), WIDTHS[-1])
    starts = np.arange(1, shown.rows[-1] + 1, width)
    axes.bar(
        starts - 0.5,
        [shown.percent_within(start, start + width - 1) for start in starts],
        width,
        align="edge",
        color=style.colour("cupc-s"),
        edgecolor="white",
    )
    axes.axvline(most + 0.5, color=style.colour("baseline-2"), linestyle="--")
    axes.set_xlim(0.5, max(starts[-1] + width, most + 2 * width) - 0.5)
    axes.margins(y=0.2)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlabel(f"rows of A'$_G$ that share a set (bins of {width})" if width > 1 else "rows that share a set")
    axes.set_ylabel("redundant sets S")
    axes.set_title(f"{shown.dataset}, level 2: {shown.redundant:,} redundant sets", loc="left")
    right = most > 0.6 * axes.get_xlim()[1]  # the words go where there is room
    axes.annotate(
        f"at most {most} rows:\n{shown.percent_within(2, most):.1f}% here,\n"
        f"about {percent:g}% in the paper\n({paper['label']})",
        (most + 0.5, 0.98),
        (-4 if right else 4, 0),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=6.5,
    )
    source = f"graph at the start of level 2, from the verified skeleton of {shown.setting}"
    figure.supxlabel(source, **SMALL_PRINT)
    return Drawing(figure)


# --- Fig. 10 ---------------------------------------------------------------------------------------------------------

SWEEPS = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}


@figure("cupc_fig10", "Fig. 10: scalability", paper=PAPER, experiments=("cupc_fig10",))
def cupc_fig10(runs: Sequence[VerifiedRecord], sweeps: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Runtime of cuPC-E and cuPC-S on random graphs of different (a) numbers of variables, (b) numbers of samples and
    (c) densities, as in cuPC's Fig. 10, with a logarithmic axis. A box shows the quartiles over the graphs of one kind,
    the whiskers reach to the last point within 1.5 IQR, circles are outliers; triangles stand at a time limit that was
    exceeded. The paper (GTX 1080, ten graphs of 1000 to 4000 variables): cuPC-S is always faster; the runtime grows
    with n, linearly with m, and almost linearly with d from 0.2 to 0.5. Ours stands in the heading. Such graphs are
    nearly degenerate, see ``docs/errata.md``. Numbers: ``results/tables/cupc_fig10.csv``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    backends = sorted({run.backend for run in runs})
    size = (style.PAGE_WIDTH, 2.3 * len(backends) + 0.4)
    figure, grid = plt.subplots(len(backends), len(sweeps), figsize=size, sharey="row", squeeze=False)
    rows = []
    for line, backend in zip(grid, backends, strict=True):
        for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
            shown = [run for run in runs if run.dataset in graphs and run.backend == backend]
            _boxes(axes, shown, graphs)
            axes.set_xlabel(SWEEPS.get(name, name))
            axes.set_title(f"({letter})" + (f" {backend}" if len(backends) > 1 else ""), loc="left")
            axes.label_outer()
            rows += [
                {"panel": name, "value": graphs[run.dataset], "graph": run.dataset}
                | csv_row(run, "method backend median_s status limit_s verification")
                for run in shown
            ]
        line[0].set_ylabel("seconds")
    handles = [Patch(facecolor=style.colour(method), label=label(method)) for method in CUPC]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    figure.suptitle(_faster(runs), fontsize=7, x=0.01, ha="left")
    footer(figure, runs)
    return Drawing(figure, rows)


LEAST_IN_A_BOX = 3


def _boxes(axes: Axes, shown: Sequence[VerifiedRecord], graphs: Mapping[str, float]) -> None:
    """Quartiles, whiskers to the last point within 1.5 IQR, outliers as circles; triangles at a limit that was hit.

    Fewer than `LEAST_IN_A_BOX` graphs are squares: a box of theirs would be a line without a colour.
    """
    values = sorted(set(graphs.values()))
    for side, method in zip((-0.2, 0.2), CUPC, strict=True):
        colour = style.colour(method)
        for x, value in enumerate(values):
            here = [run for run in shown if run.method == method and graphs[run.dataset] == value]
            seconds = [run.median for run in here if run.counts]
            if len(seconds) < LEAST_IN_A_BOX:
                axes.plot([x + side] * len(seconds), seconds, "s", color=colour, markersize=5)
            else:
                axes.boxplot(
                    [seconds],
                    positions=[x + side],
                    widths=0.34,
                    whis=1.5,
                    patch_artist=True,
                    boxprops={"facecolor": colour, "linewidth": 0.6},
                    medianprops={"color": "black", "linewidth": 1},
                    whiskerprops={"linewidth": 0.6},
                    capprops={"linewidth": 0.6},
                    flierprops={"marker": "o", "markersize": 3, "markeredgecolor": colour, "markerfacecolor": "none"},
                    manage_ticks=False,
                )
            over = [run.limits.time_s for run in here if run.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=5, **spot)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(tick_number)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _faster(runs: Sequence[VerifiedRecord]) -> str:
    """On how many graphs cuPC-S is faster than cuPC-E; the paper says on all."""
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        if run.counts and run.method in CUPC:
            pairs.setdefault((run.dataset, run.backend), {})[run.method] = run.median
    both = [pair for pair in pairs.values() if len(pair) == len(CUPC)]
    faster = sum(pair["cupc-s"] < pair["cupc-e"] for pair in both)
    return f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always"
