"""Draws results with matplotlib (extra ``plots``). Each kind of edge has a colour, and names may be any text."""

import contextlib
import contextvars
import functools
import importlib
import io
from collections.abc import Callable, Iterator

from gpupc_impl.views import require as require_module
from gpupc_impl.views.result import LOOKS

COLOURS = {kind: look["colour"] for kind, look in LOOKS.items()}
BOX, LINE = "#EAF1F7", "#7A8CA0"  # the colours of a variable's box and of its border
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "svg.hashsalt": "gpupc",
}
PIXELS = 150  # the pixels of an inch in a PNG file
MISSING = "\N{REPLACEMENT CHARACTER}"  # the mark that replaces a character which no font in use has
require = functools.partial(require_module, "matplotlib", "pictures", "plots")  # imports matplotlib
Axes = require_module("matplotlib.axes", "pictures", "plots").Axes
Figure = require_module("matplotlib.figure", "pictures", "plots").Figure
_without_pyplot: contextvars.ContextVar[bool] = contextvars.ContextVar("without pyplot", default=False)


@contextlib.contextmanager
def drawing(ax: Axes | None, size: tuple[float, float]) -> Iterator[Axes]:
    """Apply this project's style and yield axes: `ax`, or those of a new figure of this size in inches."""
    with require().rc_context(STYLE):
        if ax is None:
            # The import of pyplot chooses a display.
            make = Figure if _without_pyplot.get() else importlib.import_module("matplotlib.pyplot").figure
            ax = make(figsize=size, layout="constrained").add_subplot()
        yield ax


def image(draw: Callable[[], Axes], form: str = "svg") -> bytes:
    """Return the picture that a function draws in new axes, as SVG or PNG; equal pictures have equal bytes. pyplot is
    not used, so that nothing is shown and no display is needed."""
    token = _without_pyplot.set(True)
    try:
        with require().rc_context(STYLE):
            content = io.BytesIO()
            metadata = {"svg": {"Date": None}, "png": {"Software": None}}[form]
            draw().figure.savefig(content, format=form, dpi=PIXELS, metadata=metadata)
            return content.getvalue()
    finally:
        _without_pyplot.reset(token)


def shown_name(name: str, most: int = 20) -> str:
    """Return a name as it can be drawn: on one line, cut, and with a mark for characters that no font has."""
    name = " ".join(name.split())
    name = name if len(name) <= most else f"{name[: most - 1].rstrip()}…"
    drawable = _drawable(tuple(require().rcParams["font.family"]))
    return "".join(character if ord(character) in drawable else MISSING for character in name)


@functools.cache
def _drawable(families: tuple[str, ...]) -> frozenset[int]:
    """Return the code points of the characters that the fonts in use have, and of the mark."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    maps = (get_font(findfont(FontProperties(family=[family]))).get_charmap() for family in families)
    return frozenset().union(*maps, [ord(MISSING)])
