"""The headlines: the main sentences of each paper, and whether our runs on a GPU confirm them.

The rows of results/reported/headlines.csv name claims of the four papers. Their verdicts come from the papers' claim
tables (`reporting.claims`), so a headline never differs from its claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpupc_impl.reporting.claims import our_value, reported_value
from gpupc_impl.reporting.tables import Table, markdown

CLAIMS = ("cupc", "ooc", "gpupc", "cmiknn")
"""The papers whose claims are judged, as results/reported/PAPER_claims.csv names them."""

WORDS = {"less": "weaker", "more": "stronger", "less and more": "mixed"}
"""The names of the verdicts of claims in headlines; the other verdicts keep their names."""

MARKS = {
    **{"holds": "🟢", "stronger": "🔵", "weaker": "🟠", "mixed": "🟠"},
    **{"modelled": "🟣", "chained": "🟣", "not run": "⚪"},
}
"""The coloured marks of verdicts on pages without a style sheet."""

HEADER = ("paper", "headline", "reported", "measured", "verdict", "why it differs")


def headlines(claims: Mapping[str, Iterable[Mapping[str, str]]], reported: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of headlines for the GPU on which most claims were judged, without papers that were not measured
    on it; the table has no rows if no claim was judged on a GPU.

    Args:
        claims: the rows of each paper's claim table (PAPER_claims.csv), by PAPER.
        reported: the rows of results/reported/headlines.csv.

    Raises:
        ValueError: a headline names a claim that its paper's table does not have.
    """
    judged = [(paper, row) for paper, rows in claims.items() for row in rows if row["backend"] == "cuda"]
    numbers = Counter(row.get("device", "") for _, row in judged if row["verdict"] != "not run")
    if not numbers:
        return Table("Headlines", HEADER, [], ["No claim has been judged on a GPU."], [])
    ((device, number),) = numbers.most_common(1)
    by_name = {(paper, row["id"]): row for paper, row in judged if row.get("device", "") == device}
    measured_papers = {paper for paper, _ in by_name}
    rows = []
    for headline in reported:
        if headline["claims"] not in measured_papers:
            continue
        claim = by_name.get((headline["claims"], headline["claim"]))
        if claim is None:
            raise ValueError(f"headlines.csv: {headline['claims']}_claims.csv has no claim {headline['claim']!r}")
        stated = reported_value({**claim, "low": claim["reported_low"], "high": claim["reported_high"]})
        ends = [float(claim[end]) for end in ("ours_low", "ours_high") if claim[end]]
        measured = our_value(ends, claim["unit"])
        verdict = WORDS.get(claim["verdict"], claim["verdict"])
        reasons = {"holds": "", "chained": claim.get("measured_on", "")}
        why = reasons.get(verdict, headline["why"])
        rows.append([headline["paper"], headline["sentence"], stated, measured, verdict, why])
    notes = [
        "Holds: our numbers bear the paper's out. Weaker, stronger: they lie below or above the paper's. Chained: the "
        "product of two factors from two machines. Of all "
        f"{len(by_name)} sentences with numbers in the four papers, {number} have a number of {device or 'this GPU'}; "
        "the papers' tables of claims judge each. The papers ran on older hardware: ratios and counts are compared, "
        "never seconds."
    ]
    return Table("Headlines", HEADER, rows, notes, [], left=(0, 1, 4, 5), verdict=4)


def in_markdown(table: Table) -> str:
    """Return the headlines for README and the site, with a coloured mark before each verdict."""
    rows = [[*row[:4], f"{MARKS.get(row[4], '')} {row[4]}".strip(), row[5]] for row in table.rows]
    return markdown(HEADER, rows, numeric=(2, 3))
