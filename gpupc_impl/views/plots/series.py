"""The picture of a graph of time series."""

from typing import Any

import numpy as np

from gpupc_impl.views.plots import BOX, LINE, Axes, drawing, shown_name

MOST_LAGS = 4  # upper bound on the lags that the label of an arrow lists


def draw(graph: Any, ax: Axes | None, title: str | None) -> Axes:
    """Draw a `TimeSeriesGraph`; see its method `plot`."""
    import matplotlib

    n = len(graph.names)
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    places = dict(zip(graph.names, np.column_stack((np.cos(angles), np.sin(angles))), strict=True))
    arrows: dict[tuple[str, str, bool], tuple[list[int], str, float]] = {}
    for source, target, lag, kind, strength, _ in graph.to_frame().itertuples(index=False, name=None):
        lags, _, strongest = arrows.get((source, target, lag > 0), ([], "", 0.0))
        arrows[source, target, lag > 0] = ([*lags, lag], kind, max(strongest, strength, key=abs))
    most = max((abs(strength) for *_, strength in arrows.values()), default=1.0) or 1.0
    colours = matplotlib.colormaps["RdBu_r"]
    size = float(np.clip(2.5 + 0.35 * n, 4, 12))
    with drawing(ax, (size, size)) as axes:
        for (source, target, is_lagged), (lags, kind, strength) in arrows.items():
            colour = colours(0.5 + 0.45 * strength / most)
            label = ", ".join(map(str, sorted(lags)[:MOST_LAGS])) + ", …" * (len(lags) > MOST_LAGS)
            start, end = places[source], places[target]
            if source == target:
                axes.annotate(label, start * 1.22, ha="center", va="center", color=colour, fontsize=7)
                continue
            head = "-|>" if kind == "directed" else "-"
            line = "--" if kind == "conflict" else "-"
            style = {"arrowstyle": head, "linestyle": line, "color": colour, "shrinkA": 14, "shrinkB": 14}
            curve = "arc3,rad=0.12" if is_lagged else "arc3,rad=0"
            axes.annotate("", end, start, arrowprops={**style, "connectionstyle": curve})
            if is_lagged:
                across = np.array([end[1] - start[1], start[0] - end[0]])
                axes.annotate(label, (start + end) / 2 + 0.06 * across, ha="center", va="center", fontsize=7)
        for name, place in places.items():
            box = {"boxstyle": "round", "facecolor": BOX, "edgecolor": LINE}
            axes.text(*place, shown_name(name), ha="center", va="center", bbox=box)
        title = f"{n} variables, {graph.n_links} links" if title is None else title
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", title=title)
        axes.axis("off")
    return axes
