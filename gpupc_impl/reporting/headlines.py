"""The headlines: the main sentences of each paper, and whether our runs on a GPU confirm them.

The rows of results/reported/headlines.csv name claims of the four papers. Their verdicts come from the papers' claim
tables (`reporting.claims`), so a headline never differs from its claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpupc_impl.reporting.cells import AtLeast
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

NOT_RUN = {"verdict": "not run"}

HEADER = ("paper", "headline", "reported", "measured", "on", "verdict", "why it differs")
VERDICT = HEADER.index("verdict")


def headlines(claims: Mapping[str, Iterable[Mapping[str, str]]], reported: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of headlines, without papers that were measured on no GPU.

    A headline is that of the first GPU, in the order of the claim tables, on which its claim was judged.

    Args:
        claims: the rows of each paper's claim table (PAPER_claims.csv), by PAPER.
        reported: the rows of results/reported/headlines.csv.

    Raises:
        ValueError: a headline names a claim that its paper's table does not have.
    """
    chosen: dict[tuple[str, str], Mapping[str, str]] = {}
    for paper, rows_of_paper in claims.items():
        for row in rows_of_paper:
            if row["backend"] == "cuda" and chosen.get(key := (paper, row["id"]), NOT_RUN)["verdict"] == "not run":
                chosen[key] = row
    devices = Counter(row.get("device", "") or "this GPU" for row in chosen.values() if row["verdict"] != "not run")
    if not devices:
        return Table("Headlines", HEADER, [], ["No claim has been judged on a GPU."], [])
    measured_papers = {paper for paper, _ in chosen}
    rows = []
    for headline in reported:
        if headline["claims"] not in measured_papers:
            continue
        claim = chosen.get((headline["claims"], headline["claim"]))
        if claim is None:
            raise ValueError(f"headlines.csv: {headline['claims']}_claims.csv has no claim {headline['claim']!r}")
        stated = reported_value({**claim, "low": claim["reported_low"], "high": claim["reported_high"]})
        ends = [float(claim[end]) for end in ("ours_low", "ours_high") if claim[end]]
        if claim["ours_high_is_bound"] == "True":
            ends = [end if end < max(ends) else AtLeast(end) for end in ends]
        measured = our_value(ends, claim["unit"])
        verdict = WORDS.get(claim["verdict"], claim["verdict"])
        device = "" if verdict == "not run" else claim.get("device", "")
        reasons = {"holds": "", "chained": claim.get("measured_on", "")}
        why = reasons.get(verdict, headline["why"])
        rows.append([headline["paper"], headline["sentence"], stated, measured, device, verdict, why])
    notes = [
        "Holds: our numbers bear the paper's out. Weaker, stronger: they lie below or above the paper's. Chained: the "
        "product of two factors from two machines. Modelled: one of the times comes from a model, since the run could "
        "hang the machine. "
        f"Of all {len(chosen)} claims of the four papers, {sum(devices.values())} have a number of "
        f"{' or '.join(devices)}; the papers' tables of claims judge each. The papers ran on older hardware: ratios "
        "and counts are compared, never seconds."
    ]
    return Table("Headlines", HEADER, rows, notes, [], left=(0, 1, 4, 5, 6), verdict=VERDICT)


def in_markdown(table: Table) -> str:
    """Return the headlines for README and the site, with a coloured mark before each verdict."""
    rows = [
        [*row[:VERDICT], f"{MARKS.get(row[VERDICT], '')} {row[VERDICT]}".strip(), *row[VERDICT + 1 :]]
        for row in table.rows
    ]
    return markdown(HEADER, rows, numeric=(2, 3))
