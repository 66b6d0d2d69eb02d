"""Figure 10 of cuPC (doi:10.1109/TPDS.2019.2939126): times over the size of generated data, from records only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import label
from gpupc_impl.reporting.figures import Drawing, canvas, footer, key, log_axis, swatch
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.papers.cupc import CUPC, PAPER
from gpupc_impl.reporting.papers.cupc_claims import size_of
from gpupc_impl.reporting.runs import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}
"""What cuPC's Fig. 10 varies."""


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
    figure, [line] = canvas(1, len(sweeps), (style.PAGE_WIDTH, 2.7), sharey="row")
    shows_printed = False
    for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
        shown = [run for run in runs if run.dataset in graphs]
        _boxes(axes, shown, graphs)
        fixed = _fixed(shown, name)
        shows_printed |= _printed_times(axes, name, sorted(set(graphs.values())), fixed, reported)
        axes.set_xlabel(NAMES.get(name, name))
        axes.set_title(
            f"({letter}) {', '.join(f'{symbol} = {value:g}' for symbol, value in fixed.items())}", loc="left"
        )
        axes.label_outer()
    line[0].set_ylabel("seconds")
    log_axis(line[0])
    handles = [swatch(label(method), facecolor=style.colour(method)) for method in CUPC]
    handles += [key("paper, GTX 1080", **{**PRINTED_TIME, "color": "black"})] * shows_printed
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    e, s = ({run.dataset: run.median for run in runs if run.counts and run.method == method} for method in CUPC)
    both = e.keys() & s.keys()
    faster = sum(s[name] < e[name] for name in both)
    text = f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always"
    figure.suptitle(text, fontsize=7, x=0.01, ha="left")
    footer(figure, runs)
    rows = [
        {"panel": name, "value": graphs[run.dataset], **csv_row(run)}
        for name, graphs in sweeps.items()
        for run in runs
        if run.dataset in graphs
    ]
    return Drawing(figure, rows)


PRINTED_TIME: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}


def _fixed(shown: Runs, varied: str) -> dict[str, float]:
    """Return those of n, m and d that are not varied and the same in all graphs of a panel."""
    sizes = [size for run in shown if (size := size_of(run))]
    values = {name: {size[name] for size in sizes} for name in NAMES if name != varied}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _printed_times(
    axes: Axes, varied: str, values: Sequence[float], fixed: Mapping[str, float], reported: CsvRows
) -> bool:
    """Draw the runtimes that the paper states for graphs of the panel; returns whether there are any."""
    shown = [
        row
        for row in reported
        if float(row[varied]) in values and all(fixed.get(k) == float(row[k]) for k in NAMES if k != varied)
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
    thin = {"linewidth": 0.6}
    for side, method in zip((-0.2, 0.2), CUPC, strict=True):
        colour = style.colour(method)
        look = {
            **{"boxprops": {"facecolor": colour, **thin}, "medianprops": {"color": "black", "linewidth": 1}},
            **{"whiskerprops": thin, "capprops": thin, "widths": 0.34, "whis": 1.5, "patch_artist": True},
            "flierprops": {"marker": "o", "markersize": 3, "markeredgecolor": colour, "markerfacecolor": "none"},
        }
        for x, value in enumerate(values):
            here = [run for run in shown if run.method == method and graphs[run.dataset] == value]
            seconds = [run.median for run in here if run.counts]
            if len(seconds) < LEAST_IN_A_BOX:
                axes.plot([x + side] * len(seconds), seconds, "s", color=colour, markersize=5)
            else:
                axes.boxplot([seconds], positions=[x + side], manage_ticks=False, **look)
            over = [run.limits.time_s for run in here if run.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=6, **spot)
    axes.set_yscale("log")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
