"""Figure 10 of cuPC (doi:10.1109/TPDS.2019.2939126), from records only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import csv_row, label
from gpupc_impl.reporting.figures import Drawing, footer, tick_number
from gpupc_impl.reporting.papers.cupc import CUPC, PAPER
from gpupc_impl.reporting.papers.cupc_claims import size_of
from gpupc_impl.reporting.runs import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SWEEPS = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}


@figure("cupc_fig10", "Fig. 10: scalability", paper=PAPER, experiments=("cupc_fig10",))
def cupc_fig10(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    """The figure shows the runtime of cuPC-E and cuPC-S on random graphs with different (a) numbers of variables, (b)
    numbers of samples and (c) densities, as cuPC's Fig. 10, with a logarithmic axis. A box shows the quartiles over the
    graphs of one kind, the whiskers reach to the last point within 1.5 IQR, and circles are outliers; triangles mark an
    exceeded time limit. A panel's title states what all its graphs have in common. The diamond is the only runtime that
    the paper's text states, of cuPC-E at n = 1000, m = 10000 and d = 0.1; panels of other sizes do not show it. The
    paper (GTX 1080, ten graphs of each size) states that cuPC-S is always faster, and that the runtime grows with n,
    linearly with m, and almost linearly with d from 0.2 to 0.5. The heading compares the two methods on our graphs. The
    data of such graphs are nearly degenerate: many correlations are almost one (``docs/errata.md``).
    ``results/tables/cupc_fig10.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullFormatter

    style.use()
    backends = sorted({run.backend for run in runs})
    size = (style.PAGE_WIDTH, 2.3 * len(backends) + 0.4)
    figure, grid = plt.subplots(len(backends), len(sweeps), figsize=size, sharey="row", squeeze=False)
    rows, shows_printed = [], False
    for line, backend in zip(grid, backends, strict=True):
        for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
            shown = [run for run in runs if run.dataset in graphs and run.backend == backend]
            _boxes(axes, shown, graphs)
            fixed = _fixed(shown, name)
            shows_printed |= _printed_times(axes, name, sorted(set(graphs.values())), fixed, reported)
            axes.set_xlabel(SWEEPS.get(name, name))
            facts = [backend] * (len(backends) > 1) + [f"{key} = {value:g}" for key, value in fixed.items()]
            axes.set_title(f"({letter}) {', '.join(facts)}", loc="left")
            axes.label_outer()
            rows += [
                {"panel": name, "value": graphs[run.dataset], "graph": run.dataset}
                | csv_row(run, "method backend median_s status limit_s verification")
                for run in shown
            ]
        line[0].set_ylabel("seconds")
        low, high = line[0].get_ylim()
        if high < 100 * low:  # few powers of ten
            line[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        line[0].yaxis.set_minor_formatter(NullFormatter())
    handles = [Patch(facecolor=style.colour(method), label=label(method)) for method in CUPC]
    if shows_printed:
        printed = {**PRINTED_TIME, "color": "black"}
        handles.append(Line2D([], [], label="paper, GTX 1080", **printed))
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    figure.suptitle(_faster(runs), fontsize=7, x=0.01, ha="left")
    footer(figure, runs)
    return Drawing(figure, rows)


PRINTED_TIME = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}


def _fixed(shown: Runs, varied: str) -> dict[str, float]:
    """Return those of n, m and d that are not varied and the same in all graphs of a panel."""
    sizes = [size for run in shown if (size := size_of(run))]
    values = {name: {size[name] for size in sizes} for name in SWEEPS if name != varied}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _printed_times(
    axes: Axes, varied: str, values: Sequence[float], fixed: Mapping[str, float], reported: CsvRows
) -> bool:
    """Draw the runtimes that the paper states for graphs of the panel; returns whether there are any."""
    shown = [
        row
        for row in reported
        if float(row[varied]) in values and all(fixed.get(k) == float(row[k]) for k in SWEEPS if k != varied)
    ]
    for row in shown:
        x = values.index(float(row[varied])) + (-0.2 if row["method"] == "cupc-e" else 0.2)
        axes.plot(x, float(row["value"]), color=style.colour(row["method"]), **PRINTED_TIME)
    return bool(shown)


LEAST_IN_A_BOX = 3


def _boxes(axes: Axes, shown: Runs, graphs: Mapping[str, float]) -> None:
    """Draw quartiles, whiskers within 1.5 IQR, outliers as circles, triangles at an exceeded time limit.

    Fewer than `LEAST_IN_A_BOX` graphs are drawn as squares, because their box would be a line without a colour.
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
                axes.annotate(text, (x + side, 0.02), fontsize=6, **spot)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(tick_number)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _faster(runs: Runs) -> str:
    """Return a sentence on how many graphs cuPC-S is faster than cuPC-E; the paper states that it always is."""
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        if run.counts and run.method in CUPC:
            pairs.setdefault((run.dataset, run.backend), {})[run.method] = run.median
    both = [pair for pair in pairs.values() if len(pair) == len(CUPC)]
    faster = sum(pair["cupc-s"] < pair["cupc-e"] for pair in both)
    return f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always"
