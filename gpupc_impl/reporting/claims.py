"""Compares each sentence of a paper that has a number with the same quantity from our records.

A claim is a row of results/reported/PAPER_claims.csv: the paper's `section`, the quoted sentence (`quote`), the
compared `quantity`, the `datasets`, and the stated number as a `check` with the ends `low` and `high` in a `unit`. The
paper's module has for each claim's `id` a `Quantity`, which computes the same number from records.

A claim says which way it points: with the `direction` ``higher`` larger numbers of ours speak more strongly for the
paper's conclusion, with ``lower`` smaller ones, and with ``equal`` those near the paper's. The column `contradicted`
has the number beyond which ours speak against the conclusion (for ``equal`` a lower and an upper one). `RULES` defines
the verdicts; a claim cannot be judged if we have no number, or none that can be compared (``none``).

Numbers of a stand-in for a data set are shown and do not count. A sentence that only states seconds is not a claim,
because seconds of other hardware cannot be compared; it is a cell of the paper's table. The headlines are the main
sentences of each paper, which results/reported/headlines.csv names; their verdicts are those of their claims.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpupc_impl.reporting.cells import NAMED, AtLeast, few, number
from gpupc_impl.reporting.quantities import Evidence, Numbers, Quantity
from gpupc_impl.reporting.runs import grouped, kernels_of
from gpupc_impl.reporting.tables import Table, markdown

Claim = Mapping[str, str]

ABOUT = 0.25  # the tolerance for a number that the paper states as a single value, relative to that value

HOLDS, MORE, LESS = "holds", "holds more strongly", "holds less strongly"
CONTRADICTED, NOT_JUDGED = "contradicted", "cannot be judged"
VERDICTS = (HOLDS, MORE, LESS, CONTRADICTED, NOT_JUDGED)

UNITS = {"x": "×", "%": " %", "GB": " GB", "edges": " edges", "tests": " tests", "faults": "", "": ""}


def verdict(claim: Claim, values: Sequence[float]) -> str:
    """Return the verdict about a claim, by `RULES`."""
    if not values or claim["check"] == "none":
        return NOT_JUDGED
    low, high = float(claim["low"] or "-inf"), float(claim["high"] or "inf")
    if claim["check"] == "about":
        low, high = low - ABOUT * abs(low), low + ABOUT * abs(low)
    if claim["check"] == "range":
        digits = max(len(claim[end].partition(".")[2]) for end in ("low", "high"))
        values = [round(value, digits) for value in values]
    limits = [float(limit) for limit in claim["contradicted"].split()]
    if claim["direction"] == "lower":  # Of the negative numbers larger ones speak more strongly.
        values, limits, low, high = [-value for value in values], [-limit for limit in limits], -high, -low
    both_sides = claim["direction"] == "equal"
    against = [limits and (value < limits[0] or (both_sides and value > limits[-1])) for value in values]
    if 2 * sum(map(bool, against)) >= len(values):
        return CONTRADICTED
    if any(against) or min(values) < low or (both_sides and max(values) > high):
        return LESS
    if claim["check"].startswith("at ") and claim["basis"] == "printed":
        high = low + ABOUT * abs(low)
    return MORE if min(values) > high and not both_sides else HOLDS


def reported_value(claim: Claim) -> str:
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
    paper: str, reported: Sequence[Claim], quantities: Mapping[str, Quantity], evidence: Evidence, notes: Sequence[str]
) -> Table:
    """Return the table of a paper's claims (rows of results/reported/PAPER_claims.csv) in order, with notes about the
    paper's hardware and the methods that stand for its programs. The row's ``why`` says why a claim has no quantity."""
    backend = kernels_of(evidence.runs)
    judged = [_judged(claim, quantities, evidence, backend) for claim in reported]
    rows = [row.pop("cells") for row in judged]
    header = ["§", "the paper's sentence", "what is compared", "paper", "ours"]
    header += ["backend", "verdict", "measured on, and why"]
    notes = [f"Backend {backend}: {tally(judged)}.", *notes, *RULES]
    return Table(f"Claims of {paper} beside our records", header, rows, notes, judged, (0, 1, 2, 5, 6, 7), 6)


def tally(judged: Iterable[Mapping[str, Any]]) -> str:
    """Return how many claims have each verdict, such as "holds 29, contradicted 7"."""
    counts = Counter(row["verdict"] for row in judged)
    return ", ".join(f"{word} {counts[word]}" for word in VERDICTS if counts[word])


def _judged(claim: Claim, quantities: Mapping[str, Quantity], known: Evidence, backend: str) -> dict[str, Any]:
    """Return a row of the CSV, with those of the table under ``cells``."""
    names, quantity = claim["datasets"].split(), quantities.get(claim["id"], lambda *_: Numbers({}))
    stand_ins = {name: other for name in names if (other := known.measured(name)) != name}
    found = quantity(known, [name for name in names if name not in stand_ins])
    aside = [
        f"stand-in {other} for {name}, which does not count: {our_value(numbers.all, claim['unit'])}"
        for name, other in stand_ins.items()
        if (numbers := quantity(known, [other])).all and list(numbers.values) != list(found.values)
    ]
    word = verdict(claim, found.all)
    why = claim["why"] * (word in (NOT_JUDGED, CONTRADICTED, LESS))
    absent = dict.fromkeys(stand_ins, "only its stand-in was measured")
    missing = {} if why and word == NOT_JUDGED else {**found.missing, **absent}
    on = "; ".join(filter(None, [*found.values, *aside, why]))
    lacking, short = _listed(missing), _listed(missing, most=NAMED)
    cells = [claim[name] for name in ("section", "quote", "quantity")]
    cells += [reported_value(claim), our_value(found.all, claim["unit"]), backend, word]
    cells.append("; ".join(filter(None, [on, short and f"missing: {short}"])))
    ends = {f"ours_{end}": of(found.all, default=None) for end, of in (("low", min), ("high", max))}
    return (
        {name: claim[name] for name in ("id", "section", "quote", "quantity", "datasets", "check", "direction")}
        | {"reported_low": claim["low"], "reported_high": claim["high"], "unit": claim["unit"]}
        | {"basis": claim["basis"], "backend": backend, **ends}
        | {"ours_high_is_bound": isinstance(ends["ours_high"], AtLeast), "verdict": word, "measured_on": on}
        | {"missing": lacking, "citation": claim["citation"], "cells": cells}
    )


RULES = (
    "Holds: all our numbers, rounded like the paper's, are in its range, or beyond it on the side to which the claim "
    'points, satisfy its bound (≥, ≤; for "up to" our largest number counts), or '
    f"are within {100 * ABOUT:g} % of a single stated number. Holds more strongly, less "
    "strongly: they lie beyond the paper's (a printed bound by as much) on the side to which the claim points, or on "
    "the other one. Contradicted: half of our numbers or more speak against the conclusion, such as a speedup below "
    "one. If the paper uses words instead of a number, we chose the bound; the column `basis` of the CSV explains it.",
    "A verdict is based on the data that the last column names. A speedup over a program that was measured on another "
    "machine is a product, whose factors that column has. If the slower method hit its time limit, the resulting bound "
    "is used if it exceeds the claim. The backend host runs the kernels on CPU cores, so a ratio of its times that "
    "differs from the paper's does not refute the paper.",
)


def _listed(missing: Mapping[str, str], most: int | None = None) -> str:
    """Format the missing numbers, grouped by reason, with at most `most` names for each."""
    by_reason = grouped((why, what) for what, why in missing.items())
    return "; ".join(f"{few(names, most)} ({why})" for why, names in by_reason.items())


CLAIMS = ("cupc", "ooc", "gpupc", "cmiknn")  # the papers that results/reported/PAPER_claims.csv names

MARKS = dict(zip(VERDICTS, "🟢🔵🟠🔴⚪", strict=True))  # the coloured marks of verdicts on pages without a style sheet

HEADER = ("paper", "headline", "reported", "measured", "on", "verdict", "why it differs")
VERDICT = HEADER.index("verdict")


def headlines(claims: Mapping[str, Iterable[Claim]], reported: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of headlines (rows of results/reported/headlines.csv), each from the first GPU on which its
    claim was judged. ValueError is raised if a headline's claim is not in `claims`, the rows of each claim table."""
    chosen: dict[tuple[str, str], Claim] = {}
    for paper, rows_of_paper in claims.items():
        for row in (row for row in rows_of_paper if row["backend"] == "cuda"):
            known = chosen.get((paper, row["id"]))
            if known is None or known["verdict"] == NOT_JUDGED:
                chosen[paper, row["id"]] = row
    devices = Counter(row.get("device", "") or "this GPU" for row in chosen.values() if row["ours_low"])
    if not devices:
        return Table("Headlines", HEADER, [], ["No claim has been judged on a GPU."], [])
    rows = []
    for headline in (row for row in reported if any(row["claims"] == paper for paper, _ in chosen)):
        claim = chosen.get((headline["claims"], headline["claim"]))
        if claim is None:
            raise ValueError(f"headlines.csv: {headline['claims']}_claims.csv has no claim {headline['claim']!r}")
        stated = reported_value({**claim, "low": claim["reported_low"], "high": claim["reported_high"]})
        ends = [float(claim[end]) for end in ("ours_low", "ours_high") if claim[end]]
        if claim["ours_high_is_bound"] == "True":
            ends = [end if end < max(ends) else AtLeast(end) for end in ends]
        word, measured = claim["verdict"], our_value(ends, claim["unit"])
        # A product names its factors, and what cannot be judged the reason.
        why = "" if word == HOLDS else headline["why"] or claim["measured_on"] or claim["missing"]
        device = claim.get("device", "") if ends else ""
        rows.append([headline["paper"], headline["sentence"], stated, measured, device, word, why])
    notes = [
        f"Of {len(chosen)} claims of {len(claims)} papers: {tally(chosen.values())}; {sum(devices.values())} have a "
        f"number of {' or '.join(devices)}. The papers ran on older hardware, so ratios are compared, never seconds."
    ]
    return Table("Headlines", HEADER, rows, notes, [], left=(0, 1, 4, 5, 6), verdict=VERDICT)


def in_markdown(table: Table) -> str:
    """Return the headlines for README and the site, with a coloured mark before each verdict."""
    rows = [[*row[:VERDICT], f"{MARKS[row[VERDICT]]} {row[VERDICT]}", *row[VERDICT + 1 :]] for row in table.rows]
    return markdown(HEADER, rows, numeric=(2, 3))
