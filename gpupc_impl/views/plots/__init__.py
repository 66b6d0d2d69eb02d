"""Pictures of results, by matplotlib (extra ``plots``): one colour a kind of edge, any text as a name."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.views.optional import require as require_module

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"directed": "#0072B2", "undirected": "#555555", "conflict": "#D55E00", "bidirected": "#CC79A7"}
"""Of Okabe and Ito's palette, told apart in colour-blind vision."""

BOX, LINE = "#EAF1F7", "#7A8CA0"
"""Of a variable."""

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

MISSING = "\N{REPLACEMENT CHARACTER}"


def require() -> Any:
    """matplotlib.

    Raises:
        MissingPackage: it is not installed.
    """
    return require_module("matplotlib", "pictures", "plots")


@contextlib.contextmanager
def drawing(ax: Axes | None, size: tuple[float, float]) -> Iterator[Axes]:
    """Axes to draw in, with this project's style: those given, or those of a new figure of a size in inches."""
    with require().rc_context(STYLE):
        yield _new_axes(size) if ax is None else ax


def _new_axes(size: tuple[float, float]) -> Axes:
    """Of a figure that pyplot shows and keeps, but inside of `as_svg`."""
    from matplotlib.figure import Figure

    if _for_a_page.get():
        return Figure(figsize=size, layout="constrained").add_subplot()
    import matplotlib.pyplot as plt

    return plt.figure(figsize=size, layout="constrained").add_subplot()


_for_a_page: contextvars.ContextVar[bool] = contextvars.ContextVar("for a page", default=False)


def as_svg(draw: Callable[[], Axes]) -> bytes:
    """The picture that a function draws in new axes, without pyplot: nothing is shown, and no display is needed.

    The same picture has the same bytes.
    """
    token = _for_a_page.set(True)
    try:
        with require().rc_context(STYLE):
            content = io.BytesIO()
            draw().figure.savefig(content, format="svg", metadata={"Date": None})
            return content.getvalue()
    finally:
        _for_a_page.reset(token)


def shown_name(name: str, most: int = 20) -> str:
    """A name as it can be drawn: in one line, cut where it is long, a mark for what the fonts cannot show."""
    name = " ".join(name.split())
    name = name if len(name) <= most else f"{name[: most - 1]}…"
    known = _drawable(tuple(require().rcParams["font.family"]))
    return "".join(character if ord(character) in known else MISSING for character in name)


def shown_names(names: Sequence[str], most: int = 20) -> list[str]:
    return [shown_name(name, most) for name in names]


@functools.cache
def _drawable(families: tuple[str, ...]) -> frozenset[int]:
    """Characters that the fonts in use have, and the mark for those that they have not."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    maps = (get_font(findfont(FontProperties(family=[family]))).get_charmap() for family in families)
    return frozenset().union(*maps, [ord(MISSING)])
