"""The figures, drawn from records only. Each function returns a figure for `style.save`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gpupc_impl.reporting import style
from gpupc_impl.reporting.measured import (
    Measured,
    Speedup,
    datasets_of,
    device_backends,
    find,
    label,
    number,
    on_backend,
    speedup,
)

NUMBERS = FuncFormatter(lambda value, _: f"{value:g}")


def footer(figure: Figure, measured: Sequence[Measured]) -> None:
    """Where the numbers come from, in small print below the figure."""
    ran = [m for m in measured if m.median is not None]
    machines = "; ".join(dict.fromkeys(f"{m.backend}: {m.machine}" for m in sorted(ran, key=lambda m: m.backend)))
    commits = ", ".join(sorted({m.commit or "unknown" for m in ran}))
    figure.supxlabel(f"{machines}\ncommit {commits}", fontsize=5, color="#666666", x=0.01, ha="left")


def name_datasets(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)


# --- runtimes of all methods -----------------------------------------------------------------------------------------


def overview(measured: Sequence[Measured]) -> Figure:
    """Every setting on every data set: median with its 20-80 % band, a panel a family and backend."""
    style.use()
    families = dict.fromkeys(m.family for m in measured)
    groups = {family: [m for m in measured if m.family == family] for family in families}
    shown = [(family, backend) for family in groups for backend in device_backends(groups[family]) or ["cpu"]]
    figure, panels = plt.subplots(len(shown), figsize=(style.PAGE_WIDTH, 2.7 * len(shown)), squeeze=False)
    for axes, (family, backend) in zip(panels[:, 0], shown, strict=True):
        _overview_panel(axes, on_backend(groups[family], backend))
        axes.set_title(f"{family.capitalize()}: backend {backend}, CPU references on the same machine", loc="left")
    footer(figure, measured)
    return figure


def _overview_panel(axes: Axes, group: Sequence[Measured]) -> None:
    datasets = datasets_of(group)
    settings = list(dict.fromkeys(m.setting for m in group))
    width = 0.8 / len(settings)
    absent = False
    for position, setting in enumerate(settings):
        shown = [m for m in group if m.setting == setting]
        colour, marker = style.colour(shown[0].method), style.MARKERS[shown[0].backend]
        half = {
            "fillstyle": "full" if setting == shown[0].method else "left"
        }  # another setting of a method: half a marker
        axes.plot([], [], marker, color=colour, label=label(setting), **half)
        for m in shown:
            x = datasets.index(m.dataset) + (position - (len(settings) - 1) / 2) * width
            if m.median is not None:
                error = [[m.median - m.low], [m.high - m.median]]
                fill = colour if m.counts else "white"
                axes.errorbar(x, m.median, error, fmt=marker, color=colour, markerfacecolor=fill, elinewidth=1, **half)
            elif m.status == "timeout":
                axes.plot(x, m.limit, "^", color=colour, markerfacecolor="none")
            else:
                absent = True
                axes.plot(x, 0.02, "x", color=colour, markersize=3, transform=axes.get_xaxis_transform())
    for boundary in range(1, len(datasets)):
        axes.axvline(boundary - 0.5, color="#DDDDDD", linewidth=0.4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(NUMBERS)
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if high < 100 * low:  # few powers of ten
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_ylabel("seconds")
    name_datasets(axes, datasets)
    handles = axes.get_legend_handles_labels()[0]
    grey = {"color": "#666666", "linestyle": "none"}
    if any(m.status == "timeout" for m in group):
        handles.append(Line2D([], [], marker="^", markerfacecolor="none", label="over the time limit", **grey))
    if any(m.median is not None and not m.counts for m in group):
        handles.append(Line2D([], [], marker="o", markerfacecolor="white", label="not verified", **grey))
    if absent:
        handles.append(Line2D([], [], marker="x", markersize=3, label="no time (not run, or failed)", **grey))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))


# --- cuPC, Fig. 5 ----------------------------------------------------------------------------------------------------

CUPC = ("cupc-e", "cupc-s")
BASELINES = ("baseline-1", "baseline-2")
PAPER = "paper, GTX 1080: cuPC-E from lowest to highest of six data sets, cuPC-S on DREAM5-Insilico"


def cupc_fig5(measured: Sequence[Measured], reported: Sequence[Mapping[str, str]]) -> Figure:
    """How many times faster cuPC-E and cuPC-S are than the two baselines: a row a baseline, a column a backend.

    Args:
        reported: rows of results/reported/cupc_fig5.csv: the numbers that the paper's text gives.
    """
    style.use()
    backends = device_backends(measured) or ["host"]
    size = (style.PAGE_WIDTH, 3.9)
    figure, panels = plt.subplots(2, len(backends), figsize=size, sharex="col", sharey=True, squeeze=False)
    for column, backend in enumerate(backends):
        for row, baseline in enumerate(BASELINES):
            axes = panels[row, column]
            printed = [line for line in reported if line["over"] == baseline]
            _fig5_panel(axes, [m for m in measured if m.backend == backend], baseline, printed)
            axes.set_title(f"Over {label(baseline)}, backend {backend}", loc="left")
        panels[0, column].tick_params(axis="x", labelbottom=False)
    for axes in panels[:, 0]:
        axes.set_ylabel("times faster")
    handles = [Patch(color=style.colour(method), label=label(method)) for method in CUPC]
    handles.append(Patch(facecolor="none", edgecolor="black", label=PAPER))
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    footer(figure, [m for m in measured if m.method in CUPC + BASELINES])
    return figure


def _fig5_panel(axes: Axes, group: Sequence[Measured], baseline: str, printed: Sequence[Mapping[str, str]]) -> None:
    datasets = datasets_of(group)
    for x, dataset in enumerate(datasets):
        slow = find(group, dataset=dataset, setting=baseline)
        for side, method in zip((-0.2, 0.2), CUPC, strict=True):
            fast = find(group, dataset=dataset, setting=method)
            ratio = speedup(slow, fast)
            verified = all(m is None or m.verification != "unexplained" for m in (slow, fast))
            _bar(axes, x + side, ratio, style.colour(method), verified)
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
    axes.yaxis.set_major_formatter(NUMBERS)
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
