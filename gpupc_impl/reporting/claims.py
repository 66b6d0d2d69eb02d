"""A paper's sentences with numbers, each beside what our records say and whether that bears it out.

A claim is a row of results/reported/PAPER_claims.csv: where it stands (`section`), the words (`quote`), what is
compared (`quantity`) on which data sets (`datasets`), and what it states: a `check` with its ends `low` and `high` in a
`unit`. A paper's module says by `id` how the same number comes out of records (`Quantity`), and makes its table with
`table_of`.

Verdicts (`verdict`), on every one of our numbers, rounded to the claim's decimals in a range:

- holds: inside the range (`range`), within a quarter of a number that stands alone (`about`), at or above what is
  stated as reached (`at least`: "up to 45.6" on our largest), at or below (`at most`).
- less, more: below or above that; both where our numbers lie on both sides. More of a speedup refutes no paper.
- not comparable: seconds of other hardware, shown without a verdict (`none`).
- not run: there is no number of ours; the last column says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpupc_impl.reporting.cells import grouped, number
from gpupc_impl.reporting.quantities import Quantity
from gpupc_impl.reporting.tables import Table

ABOUT = 0.25
"""How far a number may lie from one that the paper states as a single value, as a share of it."""

UNITS = {"x": "×", "%": " %", "s": " s", "GB": " GB", "edges": " edges", "tests": " tests", "faults": "", "": ""}


def verdict(claim: Mapping[str, str], values: Sequence[float]) -> str:
    """Whether our numbers bear a claim out; the module says what the words mean."""
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
    return _span(list(dict.fromkeys(map(number, (min(values), max(values)))))) + UNITS[unit]


def _span(ends: Sequence[str]) -> str:
    return (" to " if any(end.startswith("-") for end in ends) else "–").join(ends)


def table_of(
    title: str,
    reported: Sequence[Mapping[str, str]],
    quantities: Mapping[str, Quantity],
    evidence: Mapping[str, Any],
    notes: Sequence[str],
) -> Table:
    """The claims in order, each for every backend.

    Args:
        reported: rows of results/reported/PAPER_claims.csv.
        quantities: by the id of the claim.
        evidence: by backend.
        notes: what the paper ran on, and what stands for its programs.
    """
    rows, plain, verdicts = [], [], {}
    for backend, known in evidence.items():
        verdicts[backend] = Counter[str]()
        for claim in reported:
            found = quantities[claim["id"]](known, claim["datasets"].split())
            judged = verdict(claim, found.all)
            verdicts[backend][judged] += 1
            on, lacking = "; ".join(found.values), _listed(found.missing)
            rows.append(
                [
                    claim["section"],
                    claim["quote"],
                    claim["quantity"],
                    reported_value(claim),
                    our_value(found.all, claim["unit"]),
                    backend,
                    judged,
                    "; ".join(filter(None, [on, lacking and f"missing: {lacking}"])),
                ]
            )
            plain.append(
                {name: claim[name] for name in ("id", "section", "quote", "quantity", "datasets", "check")}
                | {"reported_low": claim["low"], "reported_high": claim["high"], "unit": claim["unit"]}
                | {"basis": claim["basis"], "backend": backend}
                | {"ours_low": min(found.all, default=None), "ours_high": max(found.all, default=None)}
                | {"verdict": judged, "measured_on": on, "missing": lacking, "citation": claim["citation"]}
            )
    header = ["§", "the paper's sentence", "what is compared", "paper", "ours", "backend", "verdict", "measured on"]
    counted = [
        f"Backend {backend}: " + ", ".join(f"{count} {word}" for word, count in counts.items()) + "."
        for backend, counts in verdicts.items()
    ]
    return Table(title, header, rows, [*counted, *notes, *RULES], plain, left=(0, 1, 2, 5, 6, 7), verdict=6)


RULES = (
    'Holds: every one of our numbers, rounded as the paper\'s, is in the range, keeps the bound (≥, ≤; "up to" is a '
    f"bound on our largest), or is within {100 * ABOUT:g} % of a number that stands alone. Less, more: it lies below "
    "or above; more of a speedup refutes nothing. Not comparable: seconds on other hardware. Where the paper gives "
    "words instead of a number, the bound is our reading; the column `basis` of the CSV says so.",
    "Judged on what the last column names, not on what is missing there. Where the slower method hit its time limit, "
    "the bound counts if it is high enough to tell. Backend host runs the kernels on CPU cores: a "
    "ratio of its times that differs from the paper's does not refute the paper.",
)


def _listed(missing: Mapping[str, str]) -> str:
    """The missing numbers, by reason."""
    reasons = grouped((why, what) for what, why in missing.items())
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
