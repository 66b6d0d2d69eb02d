"""Combines the figures of several machines on one sheet, each under a strip that names its machine.

A figure keeps the size and the layout that it has alone. A sheet is composed of finished pictures, since the size of a
picture is known only after it is drawn.
"""

from __future__ import annotations

import dataclasses
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from gpupc_impl.core.files import write_text
from gpupc_impl.reporting import style
from gpupc_impl.reporting.sources import Heading

POINTS = 72
"""The points in an inch; points are the unit of SVG files."""

GAP = 9.0
"""The distance between the panels of a sheet, in points."""

STRIPS = {True: ("#00785A", "#D9F0E8"), False: ("#666666", "#E8E8E8")}
"""The colours of a strip's word and background, for a GPU and for CPU cores."""

FONT, LINE, WORD = 6.5, 9.5, 46.0
"""The size of a strip's letters, the height of a line, and the width of its word, in points."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A finished figure.

    Attributes:
        svg: the content of an SVG file.
        pixels: (rows, columns, 4) the content of a PNG file.
    """

    svg: str
    pixels: np.ndarray

    @property
    def size(self) -> tuple[float, float]:
        """The width and height in points."""
        width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)[0]
        return float(width), float(height)


Place = tuple[float, float, Picture]
"""The left and top position of a picture, in points, and the picture."""


def save(panels: Sequence[tuple[Heading, Figure]], svg_path: str | Path, png_path: str | Path) -> None:
    """Write a sheet whose panels are side by side as far as the width of a page allows, else below each other.

    Equal panels give equal bytes.
    """
    for path in (svg_path, png_path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    placed = list(_placed(panels))
    width, height = (max(place[side] + place[2].size[side] for place in placed) for side in (0, 1))
    write_text(svg_path, _svg(placed, width, height))
    imsave(png_path, _pixels(placed, width, height), dpi=plt.rcParams["savefig.dpi"])


def _placed(panels: Sequence[tuple[Heading, Figure]]) -> Iterator[Place]:
    left = top = bottom = 0.0
    for heading, figure in panels:
        picture = _picture(figure, style.settle(figure))
        width, height = picture.size
        if left and left + width > style.PAGE_WIDTH * POINTS:
            left, top = 0.0, bottom + GAP
        label = _strip(heading, width)
        strip = _picture(label, label.bbox_inches)
        below = top + strip.size[1] + GAP / 2
        yield left, top, strip
        yield left, below, picture
        left, bottom = left + width + GAP, max(bottom, below + height)


def _picture(figure: Figure, edge: Bbox) -> Picture:
    files = io.StringIO(), io.BytesIO()
    figure.savefig(files[0], format="svg", metadata={"Date": None}, bbox_inches=edge)
    figure.savefig(files[1], format="png", bbox_inches=edge)
    plt.close(figure)
    files[1].seek(0)
    return Picture(files[0].getvalue(), imread(files[1], format="png"))


def _strip(heading: Heading, width: float) -> Figure:
    """Return a strip as wide as its panel with the machine's name; colours distinguish GPUs from CPU cores."""
    word_colour, ground = STRIPS[heading.gpu]
    lines = textwrap.wrap(heading.text, max(8, int((width - WORD - 8) / (0.62 * FONT))))
    height = LINE * max(1, len(lines)) + 4
    figure = plt.figure(figsize=(width / POINTS, height / POINTS), layout="none")
    badge = WORD / width
    for left, right, colour in ((0, badge, word_colour), (badge, 1, ground)):
        figure.add_artist(Rectangle((left, 0), right - left, 1, color=colour, linewidth=0))
    middle = {"va": "center_baseline", "fontsize": FONT}
    figure.text(badge / 2, 0.5, heading.kind, color="white", weight="bold", ha="center", **middle)
    figure.text(badge + 5 / width, 0.5, "\n".join(lines), color="black", ha="left", **middle)
    return figure


def _svg(placed: Sequence[Place], width: float, height: float) -> str:
    parts = []
    for number, (left, top, picture) in enumerate(placed):
        inner = picture.svg[picture.svg.index("<svg") :]
        inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>part{number}-", inner)  # Names must be unique in a file.
        inner = re.sub(r' (width|height)="([\d.]+)pt"', r' \1="\2"', inner, count=2)
        parts.append(inner.replace("<svg ", f'<svg x="{left:g}" y="{top:g}" ', 1))
    size = f'width="{width:g}pt" height="{height:g}pt" viewBox="0 0 {width:g} {height:g}"'
    size += ' style="max-width: 100%; height: auto"'  # The sheet may be shown in a narrower page.
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {size} version="1.1">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, ground, *parts, "</svg>"]) + "\n"


def _pixels(placed: Sequence[Place], width: float, height: float) -> np.ndarray:
    """Return the sheet as pixels; the size of each picture may differ by one pixel from its size in points."""
    dots = plt.rcParams["savefig.dpi"] / POINTS
    sheet = np.ones((round(height * dots) + 2, round(width * dots) + 2, 4))
    for left, top, picture in placed:
        row, column = round(top * dots), round(left * dots)
        part = sheet[row : row + picture.pixels.shape[0], column : column + picture.pixels.shape[1]]
        part[:] = picture.pixels[: part.shape[0], : part.shape[1]]
    return sheet
