"""Makes the page of the site that compares published runs of all devices (docs/devices.md), for `workflow.pages.site`:
a table, two plots, and a file for each record."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpupc_impl.measurement.published import OPEN, open_published
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting import style
from gpupc_impl.reporting.accuracy import accuracy_of
from gpupc_impl.reporting.cells import count, label, number, status_word
from gpupc_impl.reporting.runs import VerifiedRecord, in_grid, load
from gpupc_impl.reporting.sources import STALE, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = "<!-- the table of all devices -->"
"""The comment in docs/devices.md that the table and the plots replace."""

WHERE = {"cuda": "GPU", "host": "kernels on cores", "cpu": "reference on cores"}
COLUMNS = (
    "data set",
    "method",
    "seconds",
    "device",
    "ran on",
    "division",
    "SHD",
    "edges",
    "variables",
    "samples",
    "commit",
)
FILTERED = ("data set", "method", "device", "ran on", "division")
"""The columns that have a list of values above the table, by which rows are chosen."""

NUMBERS = ("variables", "samples", "seconds", "edges", "SHD")
MARKERS = "osD^vP*X"
"""The markers of devices in the plots, in the order of their names."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A run of a device: a row of the table, and a point of each plot.

    Attributes:
        distance: the structural Hamming distance of its CPDAG from that of the true graph; None if that is unknown.
        true_edges: the number of edges of the true graph; None if that is unknown.
    """

    device: str
    run: VerifiedRecord
    division: str | None
    distance: int | None
    true_edges: int | None

    @property
    def variables(self) -> int | None:
        return (self.run.problem or {}).get("n_variables")

    @property
    def link(self) -> str:
        """The file of the record in the site."""
        return f"records/{self.device}/{self.run.dataset}/{self.run.setting}.json"


def rows(folders: Sequence[Path]) -> list[Row]:
    """Return the runs of published folders by size, data set and time.

    Skipped runs are left out, and so are the many launch parameters of a grid, of which docs/recorded.md shows the
    fastest and the slowest.
    """
    found = [row for folder in folders for row in _rows_of(folder)]
    return sorted(
        found, key=lambda row: (row.run.family, row.variables or 0, row.run.dataset, row.run.median or math.inf)
    )


def _rows_of(folder: Path) -> Iterator[Row]:
    published = open_published(folder)
    for run in load(Source(str(folder), "", {}, runs=list(published))):
        if run.status != "skipped" and not in_grid(run):
            truth = published.datasets[run.dataset].get("true_edges")
            found = accuracy_of(run, truth)
            division = published.division(run.dataset, run.setting)
            yield Row(folder.name, run, division, found and found.shd, truth and len(truth))


def records(shown: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the path in the site and the content of the file of each record."""
    for row in shown:
        names = {field.name for field in dataclasses.fields(Record)}
        record = Record(**{name: value for name, value in vars(row.run).items() if name in names})
        verified = {
            "status": row.run.verification,
            "differing_edges": row.run.differing_edges,
            "division": row.division,
        }
        yield row.link, json.dumps(record.to_json() | {"verification": verified}, indent=1) + "\n"


def content(shown: Sequence[Row]) -> str:
    """Return the table and the plots as HTML, without an empty line, so that Markdown leaves them as they are."""
    return "\n".join([*_stale(shown), _table(shown), *_plots(shown), '<script src="devices.js" defer></script>'])


def _stale(shown: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each device that has runs whose code has changed since."""
    for device in dict.fromkeys(row.device for row in shown):
        timed = [row.run.stale for row in shown if row.device == device and row.run.ok]
        if any(timed):
            stale = f"{sum(timed):,} of {len(timed):,} times ({STALE})"
            yield f"<p>{html.escape(device)}: {stale} are those of code that has changed since.</p>"


# --- table -----------------------------------------------------------------------------------------------------------


def _table(shown: Sequence[Row]) -> str:
    head = "".join(f"<th{' data-filter' * (name in FILTERED)}>{name}</th>" for name in COLUMNS)
    body = "\n".join(_line(row) for row in shown)
    table = f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _line(row: Row) -> str:
    run = row.run
    seconds = run.median if run.ok else run.limits.time_s if run.status == "timeout" else None
    shown = {"timeout": f"> {number(seconds)}"} if run.status == "timeout" and seconds else {}
    text = (
        f"{number(run.median)}{f' {STALE}' * run.stale}"
        if run.median
        else shown.get(run.status, status_word(run.status))
    )
    cells: Mapping[str, tuple[str, float | None]] = {
        "device": (row.device, None),
        "ran on": (WHERE[run.backend], None),
        "data set": (run.dataset, None),
        "variables": _counted(row.variables),
        "samples": _counted((run.problem or {}).get("n_samples")),
        "method": (label(run.setting), None),
        "seconds": (text, seconds),
        "edges": _counted(run.edges),
        "division": (row.division or "–", None),
        "SHD": _counted(row.distance),
        "commit": (run.commit or "–", None),
    }
    return f"<tr>{''.join(_cell(name, *cells[name], row.link) for name in COLUMNS)}</tr>"


def _counted(value: int | None) -> tuple[str, float | None]:
    return count(value), value


def _cell(column: str, text: str, value: float | None, link: str) -> str:
    """Format a cell; a number that is missing is sorted after all others."""
    inner = html.escape(text)
    if column in ("seconds", "SHD") and text != "–":
        inner = f'<a href="{quote(link)}">{inner}</a>'
    if column not in NUMBERS:
        return f"<td>{inner}</td>"
    return f'<td class="number" data-value="{1e300 if value is None else value:.17g}">{inner}</td>'


# --- plots -----------------------------------------------------------------------------------------------------------


def _plots(shown: Sequence[Row]) -> Iterator[str]:
    points = [row for row in shown if row.run.median is not None]
    near = [row for row in points if row.distance is not None and row.true_edges]
    if points:
        yield "<h2>Time against size</h2>"
        yield _drawn(points, "variables", "seconds", lambda row: (row.variables, row.run.median))
    if near:
        yield "<h2>Time against distance to the truth</h2>"
        up = "SHD for each edge of the truth"
        yield _drawn(near, "seconds", up, lambda row: (row.run.median, row.distance / row.true_edges))


def _drawn(points: Sequence[Row], across: str, up: str, place: Any) -> str:
    """Draw a panel for each family; each point is a link to its record."""
    import matplotlib.pyplot as plt

    style.use()
    families = list(dict.fromkeys(row.run.family for row in points))
    devices = sorted({row.device for row in points})
    figure, panels = plt.subplots(len(families), figsize=(style.PAGE_WIDTH, 3 * len(families)), squeeze=False)
    for axes, family in zip(panels[:, 0], families, strict=True):
        _panel(axes, [row for row in points if row.run.family == family], devices, place)
        axes.set(title=family, xlabel=across, ylabel=up, xscale="log", yscale="log" if up == "seconds" else "linear")
    return f'<div class="scroll plot">{_svg(figure)}</div>'


def _panel(axes: Axes, points: Sequence[Row], devices: Sequence[str], place: Any) -> None:
    from matplotlib.lines import Line2D

    grey = {"color": "#666666", "linestyle": "none"}
    looks: dict[tuple[str, str, bool], list[Row]] = {}
    for row in points:
        looks.setdefault((row.run.method, row.device, row.division == OPEN), []).append(row)
    handles = [
        Line2D([], [], marker="o", color=style.colour(method), linestyle="none", label=label(method))
        for method in dict.fromkeys(row.run.method for row in points)
    ]
    for (method, device, is_open), alike in looks.items():
        marker, colour = MARKERS[devices.index(device) % len(MARKERS)], style.colour(method)
        face = "none" if is_open else colour
        x, y = zip(*map(place, alike), strict=True)
        dots = axes.scatter(x, y, marker=marker, s=14, facecolors=face, edgecolors=colour, linewidths=0.8)
        dots.set_urls([quote(row.link) for row in alike])
    handles += [Line2D([], [], marker=m, label=name, **grey) for m, name in zip(MARKERS, devices, strict=False)]
    if any(row.division == OPEN for row in points):
        handles.append(Line2D([], [], marker="o", markerfacecolor="none", label="open division", **grey))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6, labelspacing=0.3)


def _svg(figure: Figure) -> str:
    """Return a figure as SVG inside of a page."""
    import matplotlib.pyplot as plt

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches=style.settle(figure))
    plt.close(figure)
    svg = buffer.getvalue()
    return "\n".join(line for line in svg[svg.index("<svg") :].splitlines() if line.strip())
