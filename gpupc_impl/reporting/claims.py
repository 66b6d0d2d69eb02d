"""Compares each sentence of a paper that has a number with the same quantity from our records.

A claim is a row of results/reported/PAPER_claims.csv: the paper's `section`, the quoted sentence (`quote`), the
compared `quantity`, the `datasets`, and the stated number as a `check` with the ends `low` and `high` in a `unit`. The
paper's module has for each claim's `id` a `Quantity`, which computes the same number from records.

The function `verdict` judges all our numbers for a claim, rounded to the claim's decimals if it is a range:

- holds: our numbers are inside the range (`range`), within 25 % of a single stated number (`about`), at least the
  stated number (`at least`; for "up to 45.6" our largest number counts), or at most the stated number (`at most`).
- less, more: a number of ours is below or above the bounds. A larger speedup does not refute a paper.
- not comparable: the claim states seconds on other hardware (`none`).
- modelled: our number is that of a model, since a run could harm the machine.
- not run: we have no number; the last column gives the reason.
- chained: our number is a product of two factors from two machines, which the last column states (`reporting.chains`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpupc_impl.reporting.cells import AtLeast, grouped, number
from gpupc_impl.reporting.quantities import Quantity
from gpupc_impl.reporting.tables import Table

ABOUT = 0.25
"""The tolerance for a number that the paper states as a single value, relative to that value."""

NAMED = 3
"""The upper bound on the data sets that a cell names for one reason of missing numbers; the CSV has all of them."""

PRODUCTS = {
    "holds": "agrees with the paper",
    "less": "is below the paper's",
    "more": "is above the paper's",
    "less and more": "is below the paper's on some data sets and above it on others",
    "not comparable": "is not compared",
}
"""The words about the product of the factors of a chained claim, by the verdict that the same number would get if it
were measured."""

UNITS = {"x": "×", "%": " %", "s": " s", "GB": " GB", "edges": " edges", "tests": " tests", "faults": "", "": ""}


def verdict(claim: Mapping[str, str], values: Sequence[float]) -> str:
    """Return the verdict about a claim; the module's docstring defines the verdicts."""
    if not values:
        return "not run"
    if claim["check"] == "none":
        return "not comparable"
    low, high = (float(claim[end]) if claim[end] else None for end in ("low", "high"))
    if claim["check"] == "about":
        assert low is not None
        low, high = low - ABOUT * abs(low), low + ABOUT * abs(low)
    if claim["check"] == "range":
        digits = max(len(claim[end].partition(".")[2]) for end in ("low", "high"))
        values = [round(value, digits) for value in values]
    less, more = low is not None and min(values) < low, high is not None and max(values) > high
    return " and ".join(["less"] * less + ["more"] * more) or "holds"


def reported_value(claim: Mapping[str, str]) -> str:
    words = {"about": "about ", "at least": "≥ ", "at most": "≤ "}
    ends = list(dict.fromkeys(f"{float(claim[end]):,.15g}" for end in ("low", "high") if claim[end]))
    return words.get(claim["check"], "") + _span(ends) + UNITS[claim["unit"]]


def our_value(values: Sequence[float], unit: str) -> str:
    if not values:
        return "–"
    ends = [f"{'more than ' if isinstance(end, AtLeast) else ''}{number(end)}" for end in (min(values), max(values))]
    return _span(list(dict.fromkeys(ends))) + UNITS[unit]


def _span(ends: Sequence[str]) -> str:
    return (" to " if any(end.startswith(("-", "more")) for end in ends) else "–").join(ends)


def table_of(
    title: str,
    reported: Sequence[Mapping[str, str]],
    quantities: Mapping[str, Quantity],
    evidence: Mapping[str, Any],
    notes: Sequence[str],
) -> Table:
    """Return the table of the claims in order, with a row for each backend.

    Args:
        reported: rows of results/reported/PAPER_claims.csv.
        quantities: the quantity for each claim's id.
        evidence: the evidence of each backend.
        notes: sentences about the paper's hardware, and about the methods that stand for its programs.
    """
    rows, plain, verdicts = [], [], {}
    for backend, known in evidence.items():
        verdicts[backend] = Counter[str]()
        for claim in reported:
            asked = claim["datasets"].split()
            stand_ins = {known.measured(name): name for name in asked if known.measured(name) != name}
            found = quantities[claim["id"]](known, [known.measured(name) for name in asked])
            judged = "modelled" if found.modelled else "chained" if found.chained else verdict(claim, found.all)
            verdicts[backend][judged] += 1
            on, lacking = "; ".join(found.values), _listed(found.missing)
            short = _listed(found.missing, most=NAMED)
            if found.chained:
                on += f"; the product {PRODUCTS[verdict(claim, found.all)]}"
            for stand_in, name in stand_ins.items():
                said = f"{stand_in} (stand-in for {name})"
                on, lacking, short = (text.replace(stand_in, said) for text in (on, lacking, short))
            cells = [claim[name] for name in ("section", "quote", "quantity")]
            cells += [reported_value(claim), our_value(found.all, claim["unit"]), backend, judged]
            rows.append([*cells, "; ".join(filter(None, [on, short and f"missing: {short}"]))])
            plain.append(
                {name: claim[name] for name in ("id", "section", "quote", "quantity", "datasets", "check")}
                | {"reported_low": claim["low"], "reported_high": claim["high"], "unit": claim["unit"]}
                | {"basis": claim["basis"], "backend": backend}
                | {"ours_low": min(found.all, default=None), "ours_high": max(found.all, default=None)}
                | {"ours_high_is_bound": isinstance(max(found.all, default=None), AtLeast)}
                | {"verdict": judged, "measured_on": on, "missing": lacking, "citation": claim["citation"]}
            )
    header = ["§", "the paper's sentence", "what is compared", "paper", "ours", "backend", "verdict", "measured on"]
    counted = [
        f"Backend {backend}: " + ", ".join(f"{count} {word}" for word, count in counts.items()) + "."
        for backend, counts in verdicts.items()
    ]
    return Table(title, header, rows, [*counted, *notes, *RULES], plain, left=(0, 1, 2, 5, 6, 7), verdict=6)


RULES = (
    'Holds: all our numbers, rounded like the paper\'s, are in its range, satisfy its bound (≥, ≤; for "up to" our '
    f"largest number counts), or are within {100 * ABOUT:g} % of a single stated number. Less, more: a number of ours "
    "is below or above; a larger speedup refutes nothing. Not comparable: the paper states seconds on other hardware. "
    "Modelled: a run could harm the machine, so our number is that of a model, and is not judged. "
    "Chained: how many times longer the paper's CPU program takes than our reference, on one core of one machine, "
    "times the speedup over our reference on the GPU's machine. If the paper uses words instead of a number, we chose "
    "the bound; the column `basis` of the CSV explains it.",
    "A verdict is based on the data that the last column names as measured. If the slower method hit its time limit, "
    "the resulting bound is used if it exceeds the claim. The backend host runs the kernels on CPU cores, so a ratio "
    "of its times that differs from the paper's does not refute the paper.",
)


def _listed(missing: Mapping[str, str], most: int | None = None) -> str:
    """Format the missing numbers, grouped by reason, with at most `most` names for each."""
    reasons = grouped((why, what) for what, why in missing.items())
    named = {why: names if most is None else names[:most] for why, names in reasons.items()}
    more = {why: len(reasons[why]) - len(names) for why, names in named.items()}
    return "; ".join(
        f"{', '.join(names)}{f' and {more[why]} more' * bool(more[why])} ({why})" for why, names in named.items()
    )
