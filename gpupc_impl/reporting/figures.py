"""Writes figures with a CSV of their numbers, and has functions that several figures share.

Only functions that draw import matplotlib, since most processes of the workflow read the catalogue and draw nothing.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupc_impl.core.files import write_csv
from gpupc_impl.reporting import style
from gpupc_impl.reporting.runs import Runs
from gpupc_impl.reporting.sources import Heading
from gpupc_impl.reporting.tables import csv_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL_PRINT: dict[str, Any] = {"fontsize": 6, "color": "#666666", "x": 0.01, "ha": "left"}
HEADING = {"fontsize": 6.5, "x": 0.01, "ha": "left"}


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure ready to be written.

    Attributes:
        rows: the numbers in the figure, for a CSV.
        columns: the columns of the CSV, if it may have no row.
    """

    figure: Figure
    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()


Panel = tuple[Heading, Drawing]
"""The figure of one machine."""


def write_drawings(
    panels: Sequence[Panel],
    svg_path: str | Path,
    png_path: str | Path,
    csv_path: str | Path | None = None,
    pdf_path: str | Path | None = None,
) -> None:
    """Write the figures of several machines, each under its heading, one CSV of all their numbers, and a PDF for papers
    with a page for each machine."""
    from gpupc_impl.reporting import sheet

    if pdf_path is not None:
        style.save_plain([drawing.figure for _, drawing in panels], pdf_path)
    sheet.save([(heading, drawing.figure) for heading, drawing in panels], svg_path, png_path)
    if csv_path is not None:
        write_csv(csv_path, *csv_rows([(heading, drawing.rows, drawing.columns) for heading, drawing in panels]))


def tick_number(value: float, _: int | None = None) -> str:
    """Format a number of an axis without powers of ten if it has few digits."""
    return f"{value:g}"


def footer(figure: Figure, runs: Runs, share: float = 1.0) -> None:
    """Add the machines and commits of the runs in small print below the figure.

    Args:
        share: the part of the figure's width that the lines may take, for example beside a legend.
    """
    ran = [run for run in runs if run.median is not None]
    machines = "; ".join(
        dict.fromkeys(f"{run.backend}: {run.machine}" for run in sorted(ran, key=lambda run: run.backend))
    )
    commits = ", ".join(sorted({run.commit or "unknown" for run in ran}))
    letters = int(share * figure.get_figwidth() * 72 / (0.52 * SMALL_PRINT["fontsize"]))
    lines = [textwrap.fill(line, letters) for line in (machines, f"commit {commits}")]
    figure.supxlabel("\n".join(lines), **SMALL_PRINT, parse_math=False)


def name_datasets(axes: Axes, names: Sequence[str]) -> None:
    """Name the data sets below an axis; in a wide figure long names take two lines."""
    if axes.figure.get_figwidth() > style.COLUMN_WIDTH:
        names = ["\n".join(textwrap.wrap(name, 18)) for name in names]
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)


def panels_of(runs: Runs) -> dict[tuple[str, str], str]:
    """Return the title of a panel or bar for each data set and backend, whose times are never mixed."""
    places = dict.fromkeys((run.dataset, run.backend) for run in runs)
    several = len({backend for _, backend in places}) > 1
    return {(dataset, backend): f"{dataset}, {backend}" if several else dataset for dataset, backend in places}


def unavailable(runs: Runs) -> str | None:
    """Return "not available" or "not run" if a data set has no run for one reason, which the tables state; None if it
    has one or the reasons differ."""
    reasons = {(run.status, run.why or "") for run in runs}
    if len(reasons) != 1 or next(iter(reasons))[0] != "skipped":
        return None
    return "not available" if re.match("data set '[^']*' is not available", next(iter(reasons))[1]) else "not run"
