"""The headlines beside made-up claim tables: words of verdicts, the device that is shown, and the README's table."""

import shutil
from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.headlines import CLAIMS, headlines, in_markdown
from workflow.pages.headlines import main

ROOT = Path(__file__).parents[3]
REPORTED = ROOT / "results/reported/headlines.csv"


def claim(name, verdict, low="", high="", *, backend="cuda", device="gpu", reported=("2", "")):
    return {
        **{"id": name, "device": device, "backend": backend, "verdict": verdict, "check": "at least", "unit": "x"},
        **{"reported_low": reported[0], "reported_high": reported[1], "ours_low": low, "ours_high": high},
        "ours_high_is_bound": "False",
    }


def headline(name, why="the reference is faster"):
    return {"paper": "cuPC", "claims": "cupc", "claim": name, "sentence": f"about {name}", "why": why}


def test_a_reason_stands_where_a_headline_does_not_hold():
    claims = [claim("a", "holds", "3", "5"), claim("b", "less", "1.5", "1.5"), claim("c", "more", "9", "9")]
    table = headlines({"cupc": [*claims, claim("d", "not run")]}, [headline(name) for name in "abcd"])
    assert [row[3:] for row in table.rows] == [
        ["3.00–5.00×", "gpu", "holds", ""],
        ["1.50×", "gpu", "weaker", "the reference is faster"],
        ["9.00×", "gpu", "stronger", "the reference is faster"],
        ["–", "", "not run", "the reference is faster"],
    ]
    assert [row[2] for row in table.rows] == ["≥ 2×"] * 4
    assert "Of all 4 claims" in table.notes[0]
    assert "3 have a number" in table.notes[0]
    assert "| about b | ≥ 2× | 1.50× | gpu | 🟠 weaker |" in in_markdown(table)
    assert table.html().count("background: #cdeedd") == 1


def test_a_bound_is_told_from_a_number():
    bound = {"ours_high_is_bound": "True"}
    claims = [claim("a", "holds", "1893", "1893") | bound, claim("b", "holds", "3", "9") | bound]
    table = headlines({"cupc": claims}, [headline("a"), headline("b")])
    assert [row[3] for row in table.rows] == ["more than 1,893×", "3.00 to more than 9.00×"]


def test_a_chain_shows_both_factors():
    row = headlines({"cupc": [claim("a", "chained", "600", "600") | {"measured_on": "x: 200 × 3.00"}]}, [headline("a")])
    assert row.rows[0][3:] == ["600×", "gpu", "chained", "x: 200 × 3.00"]
    assert "🟣 chained" in in_markdown(row)


def test_a_headline_is_of_the_first_gpu_that_judged_it_and_of_no_cores():
    claims = [
        claim("a", "holds", "7", "7", device="this machine", backend="host"),
        claim("a", "holds", "3", "3", device="one"),
        claim("b", "not run", device="one"),
        claim("a", "less", "1", "1", device="another"),
        claim("b", "holds", "4", "4", device="another"),
    ]
    table = headlines({"cupc": claims}, [headline("a"), headline("b")])
    assert [row[3:5] for row in table.rows] == [["3.00×", "one"], ["4.00×", "another"]]
    assert "2 have a number of one or another" in table.notes[0]
    assert not headlines({"cupc": claims[:1]}, [headline("a")]).rows


def test_papers_that_the_gpu_did_not_measure_have_no_row():
    elsewhere = {"paper": "gpuPC", "claims": "gpupc", "claim": "c", "sentence": "about c", "why": "not measured"}
    table = headlines({"cupc": [claim("a", "holds", "3", "3")]}, [headline("a"), elsewhere])
    assert [row[0] for row in table.rows] == ["cuPC"]


def test_an_unknown_claim_is_named():
    with pytest.raises(ValueError, match=r"cupc_claims\.csv has no claim 'z'"):
        headlines({"cupc": [claim("a", "holds", "3", "3")]}, [headline("z")])


def test_every_headline_is_a_claim_and_says_why():
    ids = {paper: {row["id"]: row for row in read_csv(REPORTED.with_name(f"{paper}_claims.csv"))} for paper in CLAIMS}
    for row in read_csv(REPORTED):
        assert row["claim"] in ids[row["claims"]]
        assert len(row["sentence"].split()) <= 10
    assert 12 <= len(read_csv(REPORTED)) <= 16


@pytest.mark.slow
def test_pages_have_the_headlines_of_the_records(tmp_path):
    pages = [ROOT / "README.md", ROOT / "docs/index.md"]
    copies = [Path(shutil.copy(page, tmp_path)) for page in pages]
    assert main(list(map(str, copies))) == 0
    assert [copy.read_text(encoding="utf-8") for copy in copies] == [page.read_text(encoding="utf-8") for page in pages]
