"""The appearance of all outputs: one style sheet, one name and one colour for each method (methods.csv), two widths."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from gpupc_impl.core.files import read_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 7.0  # the widths in inches of a figure that is as wide as a column or a page of a paper

_METHODS = {row["method"]: row for row in read_csv(Path(__file__).with_name("methods.csv"))}

LABELS = {method: row["label"] for method, row in _METHODS.items() if row["label"]}
"""The names, in tables and figures, of methods that have another name in a paper, and of a setting whose name does not
begin with that of a method."""

COLOURS = {method: row["colour"] for method, row in _METHODS.items() if row["colour"]}
"""The colour of each method in all figures, from Okabe and Ito's palette, which colour-blind readers can distinguish.
Methods of different families, which share no figure, share colours by their kind: black is a serial reference."""

OTHER_COLOUR, GREY = "#7F7F7F", "#666666"

MARKERS = {"cuda": "s", "host": "o", "cpu": "D"}  # the marker of each backend


def colour(method: str) -> str:
    return COLOURS.get(method, OTHER_COLOUR)


def settle(figure: Figure) -> Bbox:
    """Compute a figure's layout once and freeze it; returns the bounding box of its content in inches, margin included.
    Otherwise each file format would compute the layout and draw the figure again, which takes longer than writing."""
    import matplotlib.pyplot as plt

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    edge: Bbox = figure.get_tightbbox().padded(plt.rcParams["savefig.pad_inches"])
    return edge


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element, without an empty line, and close it. Equal figures give equal texts."""
    import matplotlib.pyplot as plt

    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches=settle(figure))
    plt.close(figure)
    text = file.getvalue()
    return "\n".join(line for line in text[text.index("<svg") :].splitlines() if line.strip())
