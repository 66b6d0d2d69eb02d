"""The way from records to a table: runs become cells, cells of a setting, a method or a paper a line, lines a table.

A cell has a text, and the row of the CSV with the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from gpupc_impl.reporting.cells import Pair, Speedup, mark, speedup, time_cell
from gpupc_impl.reporting.runs import VerifiedRecord
from gpupc_impl.reporting.tables import Table


class Cell(NamedTuple):
    """A cell: its text in Markdown and HTML, and its row in the CSV, if it has one."""

    text: str
    row: Mapping[str, Any] | None = None


class Line(NamedTuple):
    """A line of a table: the texts of its first columns, and cells by the key of their column."""

    head: Sequence[str]
    cells: Mapping[Any, Cell]


def csv_row(run: VerifiedRecord) -> dict[str, Any]:
    """Return the columns of a run, which are the same in every CSV."""
    result = run.result
    return {
        **{"dataset": run.dataset, "setting": run.setting, "method": run.method, "backend": run.backend},
        **{"separating_sets": run.separating_sets, "machine": run.machine},
        **{"median_s": run.median, "low_s": run.low, "high_s": run.high, "levels_s": run.levels_median},
        **{"limit_s": run.limits.time_s, "status": run.status, "verification": run.verification, "edges": run.edges},
        "tests_per_level": " ".join(map(str, result.tests_per_level)) if result else "",
        "edges_per_level": " ".join(map(str, result.edges_per_level)) if result else "",
        **{"device_bytes": run.peak_bytes.device, "device_limit_bytes": run.limits.device_memory_bytes},
        "process_bytes": run.peak_bytes.process,
    }


def rows_of_sweeps(
    runs: Sequence[VerifiedRecord], sweeps: Mapping[str, Mapping[str, float]], value: str
) -> list[dict[str, Any]]:
    """Return the rows of a figure with a panel for each sweep; the column `value` has the varied value."""
    return [
        {"panel": panel, value: graphs[run.dataset], **csv_row(run)}
        for panel, graphs in sweeps.items()
        for run in runs
        if run.dataset in graphs
    ]


def times(
    runs: Iterable[VerifiedRecord | None],
    text: Callable[[VerifiedRecord], str] = time_cell,
    at: Callable[[VerifiedRecord], Any] = lambda run: run.dataset,
    **facts: Any,
) -> dict[Any, Cell]:
    """Return the cells of some runs' times, by data set or by what `at` says; `facts` are more columns of the CSV."""
    return {at(run): Cell(text(run), {"source": "ours", **facts, **csv_row(run)}) for run in runs if run}


def ratios(pairs: Mapping[Any, Pair], of: Callable[..., Speedup] = speedup, **facts: Any) -> dict[Any, Cell]:
    """Return the cells of how many times faster the second run of each pair is than the first, by `of`."""
    cells = {}
    for column, pair in pairs.items():
        ratio = of(*pair)
        text = str(ratio) + (mark(*pair) if ratio.value is not None else "")
        own = csv_row(pair[1]) if pair[1] else {}
        cells[column] = Cell(text, {"source": "ours", **facts, **own, **ratio.facts} if own else None)
    return cells


def printed(
    rows: Iterable[Mapping[str, str]],
    at: Callable[[Mapping[str, str]], Any] = lambda row: row["dataset"],
    text: Callable[[Mapping[str, str]], str] = lambda row: f"{Decimal(row['value']):,}",
    **facts: Any,
) -> dict[Any, Cell]:
    """Return the cells of a paper's numbers, by data set or by what `at` says of a row of results/reported."""
    return {at(row): Cell(text(row), {"source": "paper", **facts, **_in_csv(row)}) for row in rows}


def _in_csv(row: Mapping[str, str]) -> dict[str, str]:
    names = {"hardware": "machine"}
    return {names.get(name, name): value for name, value in row.items() if name != "citation"}


def of_lines(
    title: str,
    head: Sequence[str],
    columns: Mapping[Any, str],
    lines: Iterable[Line],
    notes: Sequence[str],
    left: Sequence[int] = (0, 1),
    missing: str = "–",
) -> Table:
    """Return the table of some lines, whose heads stand in the columns `head`; a line that shows nothing is left out,
    and `missing` stands where a line has no cell."""
    lines = list(lines)
    rows = [
        [*line.head, *(line.cells[key].text if key in line.cells else missing for key in columns)] for line in lines
    ]
    rows = [row for row in rows if not set(row[len(head) :]) <= {"–", "not run", missing}]
    plain = [cell.row for line in lines for cell in line.cells.values() if cell.row]
    return Table(title, [*head, *columns.values()], rows, notes, plain or [{"source": ""}], left)
