"""Writes figures with a CSV of their numbers, and has functions that several figures share.

The figures of several machines stand on one sheet, each under a strip that names its machine. Only functions that draw
import matplotlib, since most processes of the workflow read the catalogue and draw nothing.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpupc_impl.core.files import write_csv, write_text
from gpupc_impl.reporting import style
from gpupc_impl.reporting.runs import Heading, Runs, VerifiedRecord
from gpupc_impl.reporting.tables import csv_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

SMALL_PRINT: dict[str, Any] = {"fontsize": 6, "color": style.GREY, "x": 0.01, "ha": "left"}
HEADING: dict[str, Any] = {"fontsize": 6.5, "x": 0.01, "ha": "left"}


class Drawing(NamedTuple):
    """A figure ready to be written, and the rows of a CSV with its numbers."""

    figure: Figure
    rows: Sequence[Mapping[str, Any]] = ()


def write_drawings(
    panels: Sequence[tuple[Heading, Drawing]], svg_path: str, pdf_path: str, csv_path: str | None = None
) -> None:
    """Write the figures of several machines under their headings, a CSV of their numbers, and a PDF for papers."""
    save_plain([drawing.figure for _, drawing in panels], pdf_path)
    write_text(svg_path, sheet([(heading, style.svg(drawing.figure)) for heading, drawing in panels]))
    if csv_path is not None:
        write_csv(csv_path, csv_rows([(heading, drawing.rows) for heading, drawing in panels]))


def save_plain(figures: Iterable[Figure], path: str | Path) -> None:
    """Write figures for papers as the pages of a PDF: without the heading and the small print, which a caption
    replaces. The figures stay as they were. Equal figures give equal bytes."""
    from matplotlib.backends.backend_pdf import PdfPages

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with PdfPages(path, metadata={"CreationDate": None}) as pages:
        for figure in figures:
            engine = figure.get_layout_engine()
            around = [text for text in (figure._suptitle, figure._supxlabel) if text is not None]
            for shown in (False, True):
                for text in around:
                    text.set(visible=shown, in_layout=shown)
                if not shown:
                    pages.savefig(figure, bbox_inches=style.settle(figure))
            figure.set_layout_engine(engine)


GAP, FONT, LINE, WORD = 9.0, 6.5, 9.5, 46.0
"""The distance between panels; the size of a strip's letters, the height of its lines, and the width of its first word;
all in points, which are the unit of SVG files."""

STRIPS = {True: ("#00785A", "#D9F0E8"), False: ("#666666", "#E8E8E8")}
"""The colours of a strip's word and background, for a GPU and for CPU cores."""


def sheet(panels: Sequence[tuple[Heading, str]]) -> str:
    """Return the SVG of a sheet whose panels, themselves SVG, are side by side as far as the width of a page allows,
    else below each other. A panel keeps the size that it has alone."""
    parts: list[str] = []
    left = top = bottom = right = 0.0
    for number, (heading, panel) in enumerate(panels):
        width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panel)[0])
        if left and left + width > style.PAGE_WIDTH * 72:
            left, top = 0.0, bottom + GAP
        strip, strip_height = _strip(heading, width)
        below = top + strip_height + GAP / 2
        inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>part{number}-", panel)  # Names must be unique in a file.
        inner = re.sub(r' (width|height)="([\d.]+)pt"', r' \1="\2"', inner, count=2)
        parts.append(f'<g transform="translate({left:g} {top:g})">{strip}</g>')
        parts.append(inner.replace("<svg ", f'<svg x="{left:g}" y="{below:g}" ', 1))
        bottom, right = max(bottom, below + height), max(right, left + width)
        left += width + GAP
    size = f'width="{right:g}pt" height="{bottom:g}pt" viewBox="0 0 {right:g} {bottom:g}"'
    size += ' style="max-width: 100%; height: auto"'  # The sheet may be shown in a narrower page.
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {size} version="1.1">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, ground, *parts, "</svg>"]) + "\n"


def _strip(heading: Heading, width: float) -> tuple[str, float]:
    """Return the SVG of a strip with the machine's name in the colours of its kind, and its height."""
    word_colour, ground = STRIPS[heading.gpu]
    lines = textwrap.wrap(heading.text, max(8, int((width - WORD - 8) / (0.55 * FONT)))) or [""]
    height = LINE * len(lines) + 4
    font = f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="{FONT}" dominant-baseline="central"'
    texts = "".join(
        f'<text x="{WORD + 5:g}" y="{2 + LINE * (k + 0.5):g}" {font}>{html.escape(line)}</text>'
        for k, line in enumerate(lines)
    )
    word = f'<text x="{WORD / 2:g}" y="{height / 2:g}" {font} font-weight="bold" text-anchor="middle" fill="white">'
    return (
        f'<rect width="{width:g}" height="{height:g}" fill="{ground}"/>'
        f'<rect width="{WORD:g}" height="{height:g}" fill="{word_colour}"/>{word}{heading.kind}</text>{texts}'
    ), height


def canvas(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, Any]:
    """Return a new figure of a size in inches, and its (rows, columns) axes, in the style of all figures."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")  # No display is needed.
    plt.style.use(Path(__file__).with_name("paper.mplstyle"))
    return plt.subplots(rows, columns, figsize=size, squeeze=False, **shared)


def log_axis(axes: Axes) -> None:
    """Give axes a logarithmic y axis, with numbers between the powers of ten if it has few of these."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale("log")
    if math.isinf(axes.dataLim.minposy):  # nothing is drawn
        axes.set_ylim(0.1, 10)
    low, high = axes.get_ylim()
    if high < 5 * low:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    elif high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_times(
    axes: Axes, runs: Iterable[VerifiedRecord], place: Callable[[VerifiedRecord], float], level: int | None, **look: Any
) -> None:
    """Draw medians of runs or of a level with the 20–80 % band; triangles at a time limit, crosses for failures."""
    done = []
    for run in runs:
        low, median, high = (run.low, run.median, run.high) if level is None else run.level_band(level)
        if median is not None:
            done.append((place(run), low, median, high))
        elif run.status == "timeout":
            axes.plot(place(run), run.limits.time_s, "^", color=look["color"], markerfacecolor="none")
        else:
            axes.plot(place(run), 0.02, "x", color=look["color"], transform=axes.get_xaxis_transform(), clip_on=False)
    places, lows, medians, highs = np.reshape(done, (-1, 4)).T
    axes.fill_between(places, lows, highs, color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(places, medians, **look)


def key(text: str, marker: str, **look: Any) -> Line2D:
    """Return a legend's entry for a kind of marker that is drawn in several colours."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=text, marker=marker, **{"color": style.GREY, "linestyle": "none", **look})


def swatch(text: str, **look: Any) -> Patch:
    """Return a legend's entry for a colour."""
    from matplotlib.patches import Patch

    return Patch(label=text, **look)


def footer(figure: Figure, runs: Runs) -> None:
    """Name the machines of the runs in small print, since the heading of a figure speaks of kernels alone."""
    places = sorted({f"{run.backend}: {run.machine}" for run in runs if run.median is not None})
    letters = int(figure.get_figwidth() * 72 / (0.52 * SMALL_PRINT["fontsize"]))
    figure.supxlabel(textwrap.fill("; ".join(places), letters), **SMALL_PRINT, parse_math=False)


def name_datasets(axes: Axes, names: Sequence[str], rotation: int = 30) -> None:
    """Name the data sets below an axis; long names take two lines."""
    names = ["\n".join(textwrap.wrap(name, 18)) for name in names]
    axes.set_xticks(range(len(names)), names, rotation=rotation, ha="right", va="top", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)
