"""The appearance of all figures: one style sheet, one colour for each method, two widths."""

from __future__ import annotations

import io
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 7.0
"""The widths in inches of a figure that is as wide as a column or a page of a paper."""

_COLOURS = {
    "#0072B2": "cupc-s gpupc gpucmiknn-parallel gpucmiknn-mixed kernel-batched fci pcmci",
    "#56B4E9": "cupc-e gpucmiknn-single",
    "#E69F00": "baseline-1 disc-cupc gpucmiknn-single-racing",
    "#D55E00": "baseline-2",
    "#000000": "stable-serial discrete-serial cmiknn-serial mixed-serial kernel-serial fci-serial pcmci-serial",
    "#009E73": "stable-parallel discrete-parallel cmiknn-parallel mixed-parallel",
    "#CC79A7": "causal-learn causal-learn-discrete causal-learn-kernel causal-learn-fci"
    " tigramite tigramite-mixed tigramite-pcmci tigramite-pcmci-cmiknn",
    "#CC6677": "gpucsl gpucsl-discrete",
    "#44AA99": "andrey andrey-discrete andrey-fci andrey-pcmci",
    "#AA4499": "tetrad tetrad-discrete tetrad-fci",
    **{"#332288": "pc pc-discrete", "#88CCEE": "pgmpy pgmpy-discrete", "#999933": "gcastle gcastle-discrete"},
    **{"#117733": "out-of-core-um", "#C9A400": "out-of-core-block", "#882255": "pair-scan"},
}
METHOD_COLOURS = {method: colour for colour, methods in _COLOURS.items() for method in methods.split()}
"""The colour of each method in all figures, from Okabe and Ito's palette, which colour-blind readers can distinguish.

Methods of different families, which share no figure, share colours by their kind: black is a serial reference.
"""

OTHER_COLOUR, GREY = "#7F7F7F", "#666666"

MARKERS = {"cuda": "s", "host": "o", "cpu": "D"}
"""The marker of each backend."""


def colour(method: str) -> str:
    return METHOD_COLOURS.get(method, OTHER_COLOUR)


def use() -> None:
    """Set the style of all figures that are made afterwards; no display is needed."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    plt.style.use(resources.files("gpupc_impl.reporting") / "paper.mplstyle")


def settle(figure: Figure) -> Bbox:
    """Compute a figure's layout once and freeze it; returns the bounding box of its content in inches, margin included.

    Without this, each file format would compute the layout and draw the figure again, which takes longer than writing.
    """
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
