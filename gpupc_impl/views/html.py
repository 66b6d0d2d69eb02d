"""HTML of tables and pictures, in which markup characters in names are escaped."""

from __future__ import annotations

import base64
import html as markup
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpupc_impl.views.plots import as_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST_SCALE = 0.75
"""Lower bound on the scale of a picture; on a narrower page the picture scrolls sideways, so its text stays
readable."""

Cell = str | tuple[str, float]
"""The text of a cell, perhaps with the number by which a reader can sort it."""


def facts_table(rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and values."""
    lines = "".join(f"<tr><th>{markup.escape(name)}</th><td>{markup.escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def table(rows: Sequence[Sequence[Cell]], kind: str = "") -> str:
    """A table whose first row is the header.

    Args:
        kind: the class of the table in the page.
    """

    is_number = [isinstance(cell, tuple) for cell in rows[min(1, len(rows) - 1)]]

    def written(cell: Cell, tag: str, number: bool) -> str:
        text, value = (cell, "") if isinstance(cell, str) else (cell[0], f' data-value="{cell[1]:.17g}"')
        return f"<{tag}{' class=number' * number}{value}>{markup.escape(text)}</{tag}>"

    def line(cells: Sequence[Cell], tag: str) -> str:
        return f"<tr>{''.join(written(cell, tag, number) for cell, number in zip(cells, is_number, strict=True))}</tr>"

    body = "".join(line(row, "td") for row in rows[1:])
    named = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{named}><thead>{line(rows[0], "th")}</thead><tbody>{body}</tbody></table></div>'


def picture(draw: Callable[[], Axes], alt: str = "") -> str:
    """The picture that a function draws in new axes."""
    svg = as_svg(draw)
    width = float(re.search(rb'width="([0-9.]+)pt"', svg)[1])
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    style = f"min-width:{SMALLEST_SCALE * width:.0f}pt"
    return f'<div class="scroll"><img alt="{markup.escape(alt)}" src="{source}" style="{style}"></div>'
