"""The appearance of all figures: one style sheet, one colour for each method, two widths."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

COLUMN_WIDTH = 3.3
"""The width in inches of a figure that is as wide as a column of a paper."""

PAGE_WIDTH = 7.0

METHOD_COLOURS = {
    "cupc-s": "#0072B2",
    "cupc-e": "#56B4E9",
    "baseline-1": "#E69F00",
    "baseline-2": "#D55E00",
    "stable-serial": "#000000",
    "stable-parallel": "#009E73",
    "causal-learn": "#CC79A7",
    "out-of-core-um": "#117733",
    "out-of-core-block": "#C9A400",
    "pair-scan": "#882255",
    "gpucsl": "#CC6677",
    "gpupc": "#0072B2",
    "disc-cupc": "#E69F00",
    "discrete-serial": "#000000",
    "discrete-parallel": "#009E73",
    "causal-learn-discrete": "#CC79A7",
    "gpucsl-discrete": "#CC6677",
    "gpucmiknn-parallel": "#0072B2",
    "gpucmiknn-single": "#56B4E9",
    "gpucmiknn-single-racing": "#E69F00",
    "cmiknn-serial": "#000000",
    "cmiknn-parallel": "#009E73",
    "tigramite": "#CC79A7",
    "kernel-batched": "#0072B2",
    "kernel-serial": "#000000",
    "causal-learn-kernel": "#CC79A7",
    "gpucmiknn-mixed": "#0072B2",
    "mixed-serial": "#000000",
    "mixed-parallel": "#009E73",
    "tigramite-mixed": "#CC79A7",
}
"""The colour of each method in all figures, from Okabe and Ito's palette, which colour-blind readers can distinguish.

Methods of different families, which share no figure, share colours by their kind: black is a serial reference.
"""

OTHER_COLOUR = "#7F7F7F"

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


def save(figure: Figure, *paths: str | Path) -> None:
    """Write the figure in the formats that the suffixes select. Equal figures give equal bytes."""
    import matplotlib.pyplot as plt

    edge = settle(figure)
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if str(path).endswith(".svg") else {}
        figure.savefig(path, metadata=metadata, bbox_inches=edge)
    plt.close(figure)


def settle(figure: Figure) -> Bbox:
    """Compute a figure's layout once and freeze it; returns the bounding box of its content in inches, margin included.

    Without this, each file format would compute the layout and draw the figure again, which takes longer than writing.
    """
    import matplotlib.pyplot as plt

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    edge: Bbox = figure.get_tightbbox().padded(plt.rcParams["savefig.pad_inches"])
    return edge
