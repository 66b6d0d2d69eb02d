"""Every table and figure, drawn from the project's recorded runs: whole, and with the numbers of the records."""

import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import cells
from gpupc_impl.reporting.catalogue import READERS, entries
from gpupc_impl.reporting.claims import CLAIMS, NOT_JUDGED, VERDICTS, headlines
from gpupc_impl.reporting.page import outcome, report_page
from workflow.lib.plan import recorded_plans
from workflow.pages import recorded

ROOT = Path(__file__).parents[3]
REPORTED = ROOT / "results" / "reported"

JUDGED = {"cupc": 19, "ooc": 14, "gpupc": 21, "cmiknn": 28}
"""The claims of each paper that the recorded runs judge, at least."""

pytestmark = pytest.mark.xdist_group("drawn")  # so that only one process draws everything


@pytest.fixture(scope="session")
def sources():
    """The recorded sources of every table and figure that has any, by name."""
    plans = recorded_plans({"recorded": None})
    found = {name: [s for plan in plans if (s := plan.recorded_source(entry))] for name, entry in entries().items()}
    return {name: its for name, its in found.items() if its}


@pytest.fixture(scope="session")
def drawn(sources, tmp_path_factory):
    """The files of every table, and of every figure of the first device, by name and kind."""
    folder = tmp_path_factory.mktemp("drawn")
    files = {}
    for name, its in sources.items():
        entry = entries()[name]
        files[name] = {kind: folder / f"{name}.{kind}" for kind in entry.outputs()}
        entry.write(its[:1] if entry.figure else its, files[name])
    return files


@pytest.fixture(scope="session")
def runs(sources):
    """All recorded runs, by device, data set and setting."""
    return {
        (source.name, run.dataset, run.setting): run
        for source in sources["methods_by_dataset"] + sources["cupc_claims"] + sources["gpupc_table2"]
        for run in READERS["runs"](source)
    }


def test_every_paper_is_drawn_whole(drawn):
    planned = {name for plan in recorded_plans({"recorded": None}) for name in plan.outputs()}
    assert set(drawn) == planned
    assert {"cupc_table2", "ooc_fig2", "gpupc_table2", "cmiknn_table10", "peers"} <= set(drawn)
    for name, files in drawn.items():
        if "svg" in files:
            root = ElementTree.parse(files["svg"]).getroot()
            assert root.findall("{http://www.w3.org/2000/svg}svg"), name
            assert files["pdf"].read_bytes().startswith(b"%PDF")
        else:
            assert files["html"].read_text().count("<table>") >= 1, name
            assert files["md"].read_text().startswith("**")
        if "csv" in files:
            assert read_csv(files["csv"]), name


def test_a_csv_has_the_numbers_of_the_records_and_of_the_papers(drawn, runs):
    """Every row about a run has that run's time; rows of the papers are those of results/reported."""
    compared = 0
    for name, files in drawn.items():
        rows = read_csv(files["csv"]) if "csv" in files else []
        of_runs = [row for row in rows if row.get("median_s") and row.get("edges_per_level") and "level" not in row]
        for row in of_runs:
            run = runs.get((row["device"], row["dataset"], row["setting"]))
            if run is not None:
                assert math.isclose(float(row["median_s"]), run.median), (name, row)
                assert row["verification"] == run.verification
                compared += 1
        printed = [row["value"] for row in rows if row.get("source") == "paper" and row.get("value")]
        if printed:
            stated = [row["value"] for row in read_csv(REPORTED / entries()[name].reported)]
            assert not set(printed) - set(stated), name
    assert compared > 500


def test_cells_are_medians_and_ratios_of_the_runs(drawn, runs):
    """Table 2 of cuPC, recomputed: times, speedups over the serial reference, and the paper's below them."""
    page = drawn["cupc_table2"]["md"].read_text()
    header, *lines = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    column = header.index("nci-60")
    device = max(key[0] for key in runs if key[1:] == ("nci-60", "cupc-s-first-come"))  # whose block is the last one
    run, reference = (runs[device, "nci-60", name] for name in ("cupc-s-first-come", "stable-serial"))
    cell = {(line[0], line[1]): line[column] for line in lines}
    assert cell["| T5, s", "ours: cuPC-S, first-come (cuda)"] == cells.time_cell(run)
    ratio = cells.number(reference.median / run.median)
    assert cell["| T3/T5", "ours: cuPC-S, first-come (cuda) over stable-serial"].startswith(f"{ratio}×")
    assert cell["| T5, s", "paper: cuPC-S, Nvidia GTX 1080"] == "0.39"


@pytest.mark.parametrize("paper", CLAIMS)
def test_every_claim_has_a_verdict_with_a_number_or_a_reason(drawn, paper):
    rows = read_csv(drawn[f"{paper}_claims"]["csv"])
    stated = [row["id"] for row in read_csv(REPORTED / f"{paper}_claims.csv")]
    on_gpu = [row for row in rows if row["backend"] == "cuda"]
    devices = {row["device"] for row in on_gpu}
    assert all([row["id"] for row in on_gpu if row["device"] == device] == stated for device in devices)
    for row in rows:
        assert row["verdict"] in VERDICTS
        assert row["ours_low"] or row["verdict"] == NOT_JUDGED, row
        assert row["measured_on"] or row["missing"], row
    assert len({row["id"] for row in on_gpu if row["verdict"] != NOT_JUDGED}) >= JUDGED[paper]


def test_a_claim_s_number_is_that_of_the_runs(drawn, runs):
    rows = {row["id"]: row for row in read_csv(drawn["cupc_claims"]["csv"]) if row["backend"] == "cuda"}
    row = rows["cupc-e-over-baseline-1"]
    of_device = {key: run for key, run in runs.items() if key[0] == row["device"]}
    pairs = [(key, run) for key, run in of_device.items() if run.method == "baseline-1" and run.levels_median]
    ratios = []
    for (device, dataset, _), run in pairs:
        fast = runs.get((device, dataset, "cupc-e-first-come"))
        if run.backend == "cuda" and fast and fast.counts and dataset in row["datasets"].split():
            ratios.append(run.levels_median / fast.levels_median)
    assert (float(row["ours_low"]), float(row["ours_high"])) == pytest.approx((min(ratios), max(ratios)))
    assert float(rows["same-skeleton"]["ours_high"]) == 0


def test_headlines_are_claims_that_were_judged_on_a_gpu(drawn):
    claims = {paper: read_csv(drawn[f"{paper}_claims"]["csv"]) for paper in CLAIMS}
    reported = read_csv(REPORTED / "headlines.csv")
    table = headlines(claims, reported)
    assert [row[0] for row in table.rows] == [row["paper"] for row in reported]
    assert all(row[table.verdict] for row in table.rows)
    with pytest.raises(ValueError, match=r"cupc_claims\.csv has no claim 'z'"):
        headlines(claims, [{**reported[0], "claim": "z"}])
    on_cores = {paper: [row for row in rows if row["backend"] == "host"] for paper, rows in claims.items()}
    assert not headlines(on_cores, reported).rows


def test_figures_and_tables_stand_in_the_report_in_the_papers_order(drawn):
    claims = {paper: read_csv(drawn[f"{paper}_claims"]["csv"]) for paper in CLAIMS}
    table = headlines(claims, read_csv(REPORTED / "headlines.csv"))
    ended, shown = (True, "All is well."), [entries()[name] for name in drawn]
    page = report_page(ended, ["of this run"], table, shown, dict.fromkeys(drawn, "A caption."), drawn)
    sections = dict(re.findall(r'<h2 class="paper" id="[^"]*">([^<]*)</h2>(.*?)(?=<h2 class="paper"|$)', page, re.S))
    titles = {paper: re.findall("<details[^>]*><summary>(.*?)</summary><p>", part) for paper, part in sections.items()}
    numbered = [title.partition(":")[0] for title in titles["cuPC"]]
    assert numbered == [*(f"Fig. {k}" for k in range(5, 11)), "Table 1", "Table 2", "Section 5"]
    assert sum(map(len, titles.values())) == len(drawn)
    assert page.index("All is well.") < page.index(table.notes[0][:40]) < page.index("<img") < page.index("of this run")
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # It is one file.


@pytest.mark.parametrize(
    ("ended", "fine", "words"),
    [
        ({"a": "equal", "b": "alone", "c": "timeout", "d": "skipped"}, True, "1 known to differ, or without another"),
        ({"a": "equal", "b": "unexplained"}, False, "1 differ (data b); 0 failed; none is missing"),
        ({"a": "equal", "b": "error"}, False, "0 differ; 1 failed (data b)"),
        ({"a": "equal", "pair-scan": "skipped"}, False, "0 differ; 1 failed (data pair-scan)"),  # it misses nothing
        ({"a": "skipped"}, False, "0 answers equal; 0 differ; 0 failed; 1 not there: no file"),
    ],
)
def test_a_report_says_how_this_machine_s_runs_ended(ended, fine, words):
    compared = {"equal", "alone", "unexplained"}
    records = [
        {"dataset.name": "data", "setting": name, "status": "ok" if end in compared else end, "why": "no file"}
        for name, end in ended.items()
    ]
    of_authors = {"method": "cupc-authors", "backend": "host", "detail": "no GPU"}
    own = {"pair-scan": {**of_authors, "method": "pair-scan"}}
    facts = {name: {"setting": name, "status": end, **own.get(name, of_authors)} for name, end in ended.items()}
    verification = [{"dataset": "data", **each} for each in facts.values()]
    found, text = outcome(records, verification)
    assert found == fine
    assert words in text


@pytest.mark.parametrize("file", sorted(path.name for path in REPORTED.glob("*.csv")))
def test_every_file_of_the_papers_numbers_is_read(file):
    assert file == "headlines.csv" or any(entry.reported == file for entry in entries().values())


@pytest.mark.slow
def test_the_pages_say_what_the_records_say(tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path)
    recorded.write(tmp_path)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 1 + 2 * (len(CLAIMS) + 1)
    for path in written:
        assert (tmp_path / path).read_text(encoding="utf-8") == (ROOT / path).read_text(encoding="utf-8"), path
