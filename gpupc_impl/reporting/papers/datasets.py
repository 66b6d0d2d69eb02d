"""The tables of data sets that begin the evaluations of cuPC and gpuPC: our shapes beside the papers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpupc_impl.reporting.catalogue import CsvRows, Facts
from gpupc_impl.reporting.cells import count
from gpupc_impl.reporting.tables import Table

ABOUT = ("licence", "citation", "note", "sha256", "categories_declared", "categories_observed", "constant_variables")
"""Facts of a data set that only the CSV has."""


def datasets_table(
    title: str,
    problems: Facts,
    reported: CsvRows,
    shape: Mapping[str, tuple[str, str]],
    own: Mapping[str, Callable[[Mapping[str, Any]], str]],
    notes: Sequence[str],
) -> Table:
    """Return a table of the data sets of a family: the numbers that a paper states (`shape`, by the key of our facts
    the heading and the column in results/reported), and more columns, each with a function of a data set's facts."""
    paper = {row["dataset"]: row for row in reported}
    rows, plain = [], []
    for facts in problems:
        theirs, ours = paper.get(facts["name"], {}), facts if facts["available"] else {}
        numbers = [count(found) for key, (_, name) in shape.items() for found in (ours.get(key), theirs.get(name))]
        status = "available" if facts["available"] else "not available"
        more = [of(facts if facts["available"] else {**facts, **dict.fromkeys(ABOUT[4:])}) for of in own.values()]
        rows.append([theirs.get("label") or facts["name"], status, *numbers, *more])
        plain.append(
            {"dataset": facts["name"], "available": facts["available"], "alpha": facts["alpha"]}
            | {name: ours.get(key) for key, (_, name) in shape.items()}
            | {f"{name}_reported": theirs.get(name) for _, name in shape.values()}
            | {"true_edges": None if facts.get("true_edges") is None else len(facts["true_edges"])}
            | {"source": facts.get("source") or facts.get("url")}
            | {key: facts.get(key) for key in ABOUT}
            | {"why_not": facts["why"]}
        )
    symbols = [text for symbol, _ in shape.values() for text in (symbol, f"{symbol} (paper)")]
    header = ["data set", "status", *symbols, *own]
    text = [place for place, name in enumerate(header) if name in ("data set", "status", "licence", "source")]
    reasons = [facts["why"] for facts in problems if facts["why"]]
    return Table(title, header, rows, [*notes, *reasons], plain, left=text)
