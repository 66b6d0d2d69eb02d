"""The single tests of the GPU-CMIknn paper, Tables 1 to 4 with the percentiles of Tables 6 to 9."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.measurement.record import commit_name, machine_name
from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.cells import STALE_NOTE, Speedup, label, number, status_word
from gpupc_impl.reporting.lines import Cell, Line, of_lines, printed
from gpupc_impl.reporting.notes import RATIOS, grouped, hardware, stated
from gpupc_impl.reporting.papers.cmiknn import CITED, PAPER, REFERENCE, SINGLE_THREADED, grouped_rows
from gpupc_impl.reporting.sources import STALE
from gpupc_impl.reporting.tables import Table

Timed = Mapping[str, Any]
"""The repeated tests of one implementation in one case: a cell of a file of timed tests (`measure_tests`)."""

DIMENSIONS = {"k_cmi": "k_CMI", "permutations": "perm", "set_size": "|S|", "samples": "n"}
"""The keys of a `Timed`, with the paper's symbols. Each of Tables 1 to 4 varies one."""

LOW, HIGH = 0.05, 0.95
"""The quantiles beside a median, which Tables 6 to 9 of the paper have for the tests of Tables 1 to 4."""

CAPTION = """The table shows the seconds of single CI tests with local permutations over {symbol}, as Tables {number}
and {percentiles} of GPU-CMIknn: medians with the 5th and 95th percentiles, ours above the paper's (Nvidia A40; one core
of an AMD EPYC 7343). The implementations ``buckets``, ``counting`` and ``insertion`` find the k-th nearest neighbour in
different ways with the same result; the paper uses insertion. DNF means that the tests of a cell did not finish within
the time limit for all of them."""


def _enter(number: int, varied: str) -> None:
    """Add Table `number` and that of its percentiles to the catalogue."""

    def make(tests: Mapping[str, Any], varies: str, reported: CsvRows) -> Table:
        title = f"Single tests over {DIMENSIONS[varies]} (GPU-CMIknn, Tables {number} and {number + 5})"
        return single_tests(title, tests, varies, reported)

    make.__doc__ = CAPTION.format(symbol=DIMENSIONS[varied], number=number, percentiles=number + 5)
    name, title = f"cmiknn_table{number}", f"Tables {number} and {number + 5}: single tests over {DIMENSIONS[varied]}"
    table(name, title, paper=PAPER, tests=name)(make)


for _number, _varied in enumerate(DIMENSIONS, 1):
    _enter(_number, _varied)


def single_tests(title: str, timed: Mapping[str, Any], varies: str, reported: CsvRows) -> Table:
    """Return the seconds of single CI tests: a column for each varied value, a row for each implementation and k.

    Args:
        timed: the result of `measure_tests`.
        varies: the dimension (of `DIMENSIONS`) of the columns.
        reported: rows of results/reported/cmiknn_table<n>.csv.
    """
    cells: Sequence[Timed] = timed["cells"]
    has_k = varies != "k_cmi"
    reported = [
        {**row, "set_size": row["separation_set"], "line": _value(row, "k_cmi") if has_k else ""} for row in reported
    ]
    ours = _by_line(cells, varies)
    reference = next((cell["implementation"] for cell in cells if _is_reference(cell)), None)
    lines = [
        Line([f"ours: {label(name, backend)}", *[k] * has_k], {value: _cell(cell) for value, cell in by_value.items()})
        for (name, backend, k), by_value in ours.items()
    ]
    for (name, backend, k), by_value in ours.items():
        if (slow := ours.get((reference, "cpu", k))) and name != reference:
            ratios = {value: _ratio(slow.get(value), cell) for value, cell in by_value.items()}
            lines.append(Line([f"{label(name, backend)} over {reference}", *[k] * has_k], ratios))
    for (name, k), rows in grouped_rows(reported, "method", "line").items():
        values = printed(rows, lambda row: _value(row, varies), lambda row: "{value} ({low}–{high})".format(**row))
        lines.append(Line([f"paper: {name}", *[k] * has_k], values))
    columns = _ascending({_value(cell, varies) for cell in [*cells, *reported]})
    notes = [
        f"Ours: {_fixed(cells, varies)}; medians (5–95 %) of {_tests(cells)}, the same random tests of one generated "
        f"data set for all, taken in turns after a cold run each. Paper: {_fixed(reported, varies)}; 20 tests.",
        "A time is that from the samples in host memory to the p-value in host memory.",
        *(["adaptive: k_CMI = 0.2 n."] if any(cell["k_rule"] == "adaptive" for cell in cells) else []),
        *_agreement(cells),
        *_places(timed),
        *_remarks(cells),
        *(f"{CITED}, {line}." for line in hardware(reported)),
        RATIOS,
    ]
    named = {value: f"{DIMENSIONS[varies]} = {value}" for value in columns}
    return of_lines(title, ["seconds", *["k_CMI"] * has_k], named, lines, notes, left=(0,))


def _is_reference(cell: Timed) -> bool:
    return cell["method"] == REFERENCE and SINGLE_THREADED.items() <= cell["params"].items()


def _value(cell: Mapping[str, Any], dimension: str) -> str:
    """Return a dimension of a cell of ours or of a row of the paper, as text."""
    if dimension == "k_cmi" and cell["k_rule"] != "fixed":
        return "adaptive"
    return f"{cell[dimension]}"


def _ascending(values: Iterable[str]) -> list[str]:
    return sorted(values, key=lambda value: math.inf if value == "adaptive" else float(value))


def _by_line(cells: Sequence[Timed], varies: str) -> dict[tuple[str, str, str], dict[str, Timed]]:
    """Return the cells of each line, by implementation, backend and, unless k is the varied dimension, k."""
    lines: dict[tuple[str, str, str], dict[str, Timed]] = {}
    for cell in cells:
        k = "" if varies == "k_cmi" else _value(cell, "k_cmi")
        lines.setdefault((cell["implementation"], cell["backend"], k), {})[_value(cell, varies)] = cell
    names = list(dict.fromkeys(name for name, _, _ in lines))
    order = _ascending({k for _, _, k in lines} - {""}) or [""]
    return {key: lines[key] for key in sorted(lines, key=lambda key: (names.index(key[0]), order.index(key[2])))}


def _cell(cell: Timed) -> Cell:
    """Return the median of a cell's seconds with its percentiles, or the cell's status."""
    names = ("implementation", "method", "backend", "k_rule", *DIMENSIONS)
    row = {"source": "ours", **{name: cell[name] for name in names}}
    if cell["status"] == "ok":
        low, middle, high = map(float, np.quantile(cell["seconds"], (LOW, 0.5, HIGH)))
        row |= {"seconds": middle, "low_s": low, "high_s": high}
        text = f"{number(middle)} ({number(low)}–{number(high)})" + (f" {STALE}" if cell.get("stale") else "")
    else:
        late = cell["status"] == "timeout"
        text = f"DNF (> {number(cell['limit_s'])})" if late else status_word(cell["status"])
    rest = {name: cell[name] for name in ("cold_s", "limit_s", "status")}
    return Cell(text, {**row, **rest, "tests": len(cell["seconds"])})


def _ratio(slow: Timed | None, fast: Timed) -> Cell:
    """Return the speedup over the reference; a limit is no bound, since it holds for all tests together."""
    if slow is None or slow["status"] != "ok" or fast["status"] != "ok":
        return Cell("–")
    return Cell(str(Speedup(float(np.median(slow["seconds"]) / np.median(fast["seconds"])))))


def _fixed(cells: Sequence[Mapping[str, Any]], varies: str) -> str:
    """Return the values of the dimensions that do not vary, except k."""
    names = [name for name in DIMENSIONS if name not in (varies, "k_cmi")]
    return stated((DIMENSIONS[name], sorted({int(cell[name]) for cell in cells})) for name in names)


def _tests(cells: Sequence[Timed]) -> str:
    counts = sorted({len(cell["seconds"]) for cell in cells if cell["status"] == "ok"})
    return f"{' or '.join(map(str, counts)) or 'no'} tests"


def _agreement(cells: Sequence[Timed]) -> list[str]:
    """Return a note on whether all implementations with our random numbers computed the same p-values."""
    answers: dict[tuple[Any, ...], list[tuple[float, ...]]] = {}
    for cell in cells:
        if cell["status"] == "ok" and not cell["random"]:
            answers.setdefault(tuple(cell[name] for name in DIMENSIONS), []).append(tuple(cell["p_values"]))
    compared = [p_values for p_values in answers.values() if len(p_values) > 1]
    same = sum(len(set(p_values)) == 1 for p_values in compared)
    if not compared:
        return []
    if same == len(compared):
        return [f"All implementations but {REFERENCE}, which has its own random numbers, computed the same p-values."]
    return [f"✗ Implementations differ in their p-values in {len(compared) - same} of {len(compared)} problems."]


def _places(timed: Mapping[str, Any]) -> list[str]:
    """Return notes on the machine and the number of threads of each implementation."""
    notes = []
    for backend, facts in timed["environments"].items():
        here = [cell for cell in timed["cells"] if cell["backend"] == backend and cell["status"] == "ok"]
        names = dict.fromkeys(label(cell["implementation"]) for cell in here)
        where = machine_name(facts, backend, 1 if backend == "cpu" else facts["threads"])
        notes.append(f"{' / '.join(names) or 'nothing'}: {where}, commit {commit_name(facts) or 'unknown'}.")
    return notes


def _remarks(cells: Sequence[Timed]) -> list[str]:
    """Return notes on why cells have no time, and on the mark of stale times."""
    stale = any(cell.get("stale") for cell in cells if cell["status"] == "ok")
    late = [cell for cell in cells if cell["status"] != "ok" and cell["why"]]
    reasons = grouped((cell["why"], label(cell["implementation"])) for cell in late)
    return [STALE_NOTE] * stale + [f"{' / '.join(names)}: {why}" for why, names in reasons.items()]
