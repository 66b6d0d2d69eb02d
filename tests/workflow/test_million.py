"""The searches of docs/scale.md: the page against the recorded ones, and the command that measures them."""

import json
from pathlib import Path

import pytest

from workflow.pages import million

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table_of_the_recorded_searches(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page, text = tmp_path / "page.md", (ROOT / "docs/scale.md").read_text()
    page.write_text(text)
    assert million.main(["--page", str(page)]) == 0
    assert page.read_text() == text, "python -m workflow.pages.million --page docs/scale.md"


@pytest.mark.parametrize("processes", [False, True])
def test_cases_are_measured_once(tmp_path, monkeypatch, processes):
    monkeypatch.chdir(ROOT)
    out = tmp_path / "million.json"
    call = ["--backend", "host", "--cases", "small-threaded", "--out", str(out), *["--processes"] * processes]
    assert million.main(call) == 0
    measured = json.loads(out.read_text())
    case = measured["cases"]["small-threaded"]
    assert case["problem"]["p"] == 3_000
    assert len(case["level_s"]) == len(case["edges_per_level"]) == len(case["tests_per_level"])
    assert case["edges_sha256"]
    measured["cases"]["small-threaded"]["total_s"] = -1.0
    out.write_text(json.dumps(measured))
    assert million.main(call) == 0
    assert json.loads(out.read_text())["cases"]["small-threaded"]["total_s"] == -1.0
