"""Makes the page of the site that compares published runs of all devices (docs/devices.md), for `workflow.pages.site`:
a table, two plots, and a file for each record."""

import dataclasses
import html
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpupc_impl.core.orientation import orient
from gpupc_impl.measurement.published import OPEN, open_published
from gpupc_impl.reporting import style
from gpupc_impl.reporting.cells import count, label, number, status_word
from gpupc_impl.reporting.figures import canvas, key
from gpupc_impl.reporting.runs import STALE, Source, VerifiedRecord, in_grid, load
from gpupc_impl.verification.accuracy import dag_of_edges, structural_hamming_distance, with_arrows

PLACE = "<!-- the table of all devices -->"  # the comment in docs/devices.md that the table and the plots replace
WHERE = {"cuda": "GPU", "host": "kernels on cores", "cpu": "reference on cores"}
# The columns that have a list of values above the table, by which rows are chosen.
FILTERED = ("data set", "method", "device", "ran on", "division")
MARKERS = "osD^vP*X"  # the markers of devices in the plots, in the order of their names


@dataclasses.dataclass(frozen=True)
class Row:
    """A run of a device: a row of the table, and a point of each plot. The structural Hamming `distance` is that of its
    CPDAG from the true graph's; it and the number of true edges are None if they are unknown."""

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
    """Return the runs of published folders by size, data set and time, without skipped ones and those of grids."""
    found = []
    for folder in folders:
        published = open_published(folder)
        for run in load(Source(str(folder), "", {}, runs=list(published))):
            if run.status != "skipped" and not in_grid(run):
                truth = published.datasets[run.dataset].get("true_edges")
                division = published.division(run.dataset, run.setting)
                found.append(Row(folder.name, run, division, _distance(run, truth), truth and len(truth)))
    found.sort(key=lambda row: (row.run.family, row.variables or 0, row.run.dataset, row.run.median or math.inf))
    return found


def _distance(run: VerifiedRecord, true_edges: Sequence[Sequence[int]] | None) -> int | None:
    """Return the structural Hamming distance of a run's CPDAG, which causal-learn may have directed itself."""
    if true_edges is None or (skeleton := run.skeleton) is None:
        return None
    arrows = skeleton.facts.get("arrows")
    cpdag = orient(skeleton) if arrows is None else with_arrows(skeleton, arrows)
    return structural_hamming_distance(cpdag, dag_of_edges(true_edges, len(skeleton.names)))


def records(shown: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the path in the site and the content of the file of each record."""
    for row in shown:
        verified = {"status": row.run.verification, "differing_edges": row.run.differing_edges}
        content = row.run.to_json() | {"verification": verified | {"division": row.division}}
        yield row.link, json.dumps(content, indent=1) + "\n"


def content(shown: Sequence[Row]) -> str:
    """Return the table and the plots as HTML, without an empty line, so that Markdown leaves them as they are."""
    parts = []
    for device in dict.fromkeys(row.device for row in shown):
        timed = [row.run.stale for row in shown if row.device == device and row.run.ok]
        if any(timed):
            stale = f"{sum(timed):,} of {len(timed):,} times ({STALE})"
            parts.append(f"<p>{html.escape(device)}: {stale} are those of code that has changed since.</p>")
    lines = list(map(_cells, shown))
    head = "".join(f"<th{' data-filter' * (name in FILTERED)}>{name}</th>" for name in lines[0]) if lines else ""
    body = "\n".join(f"<tr>{''.join(line.values())}</tr>" for line in lines)
    table = f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'
    parts.append(f'<div class="scroll">{table}</div>')
    return "\n".join([*parts, *_plots(shown), '<script src="devices.js" defer></script>'])


def _cells(row: Row) -> dict[str, str]:
    """Return the cells of a row of the table, by column."""
    run, samples = row.run, (row.run.problem or {}).get("n_samples")
    late = run.status == "timeout" and run.limits.time_s
    text = f"{number(run.median)}{f' {STALE}' * run.stale}" if run.median else status_word(run.status)
    return {
        "data set": f"<td>{html.escape(run.dataset)}</td>",
        "method": f"<td>{html.escape(label(run.setting))}</td>",
        "seconds": _number(f"> {number(late)}" if late else text, run.median or late or None, row.link),
        "device": f"<td>{html.escape(row.device)}</td>",
        "ran on": f"<td>{WHERE[run.backend]}</td>",
        "division": f"<td>{row.division or '–'}</td>",
        "SHD": _number(count(row.distance), row.distance, row.link * (row.distance is not None)),
        "edges": _number(count(run.edges), run.edges),
        "variables": _number(count(row.variables), row.variables),
        "samples": _number(count(samples), samples),
        "commit": f"<td>{html.escape(run.commit or '–')}</td>",
    }


def _number(text: str, value: float | None, link: str = "") -> str:
    """Return a cell with a link to a file, sorted by a number, without one last."""
    inner = f'<a href="{quote(link)}">{html.escape(text)}</a>' if link else html.escape(text)
    return f'<td class="number" data-value="{1e300 if value is None else value:.17g}">{inner}</td>'


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


def _drawn(points: Sequence[Row], across: str, up: str, place: Callable[[Row], Any]) -> str:
    """Draw a panel for each family; each point is a link to its record."""
    families = list(dict.fromkeys(row.run.family for row in points))
    marker = dict(zip(sorted({row.device for row in points}), MARKERS * len(points), strict=False))
    figure, panels = canvas(len(families), 1, (style.PAGE_WIDTH, 3 * len(families)))
    for axes, family in zip(panels[:, 0], families, strict=True):
        here = [row for row in points if row.run.family == family]
        for row in here:
            x, y = place(row)
            colour, form = style.colour(row.run.method), marker[row.device]
            face = "none" if row.division == OPEN else colour
            dot = axes.scatter([x], [y], marker=form, s=14, facecolors=face, edgecolors=colour, linewidths=0.8)
            dot.set_urls([quote(row.link)])
        methods = dict.fromkeys(row.run.method for row in here)
        handles = [key(label(method), "o", color=style.colour(method)) for method in methods]
        handles += [key(device, form) for device, form in marker.items()]
        handles += [key("open division", "o", markerfacecolor="none")] * any(row.division == OPEN for row in here)
        axes.set(title=family, xlabel=across, ylabel=up, xscale="log", yscale="log" if up == "seconds" else "linear")
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6, labelspacing=0.3)
    return f'<div class="scroll plot">{style.svg(figure)}</div>'
