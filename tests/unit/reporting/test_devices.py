"""The page of the site that compares all devices: its rows, marks and links, and the plots."""

import json
import re
from pathlib import Path

import pytest

from workflow.pages import devices


def run(setting, seconds, device="cuda", **changes):
    base = {"setting": setting, "method": setting, "family": "gaussian", "reference": False, "backend": device}
    measured = {"status": "ok", "time_s": {"warm": [seconds], "levels": [[seconds]]}, "dataset": {"name": "d"}}
    return base | measured | changes


@pytest.fixture
def shown(tmp_path, publish):
    late = run("cupc-e", 0, status="timeout", result=None, time_s={"warm": []})
    publish([run("cupc-s", 0.25), run("cupc-s-2-32", 0.5, method="cupc-s"), late], tmp_path / "some-gpu")
    told = run("stable-serial", 2.0, "cpu", reference=True)
    publish([told, run("cupc-s", 1.0, "host")], tmp_path / "some-cpu", {"cupc-s": "unexplained"})
    return devices.rows([tmp_path / "some-gpu", tmp_path / "some-cpu"])


def test_rows_stand_by_data_set_and_time_with_their_division(shown):
    assert [(row.device, row.run.setting, row.division) for row in shown] == [
        ("some-gpu", "cupc-s", "closed"),
        ("some-cpu", "cupc-s", "open"),
        ("some-cpu", "stable-serial", "closed"),
        ("some-gpu", "cupc-e", None),
    ]


def test_the_page_has_a_place_for_the_table():
    page = Path(__file__).parents[3] / "docs/devices.md"
    assert page.read_text(encoding="utf-8").count(devices.PLACE) == 1


def test_every_number_leads_to_its_record(shown):
    page, files = devices.content(shown), dict(devices.records(shown))
    links = re.findall(r'<td class="number" data-value="[^"]+"><a href="([^"]+)">([^<]+)</a>', page)
    assert [text for _, text in links] == ["0.250 ‡", "1.00 ‡", "2.00 ‡", "&gt; 60.0"]
    assert {link for link, _ in links} == files.keys()
    assert set(re.findall(r'xlink:href="(records/[^"]+)"', page)) == {row.link for row in shown if row.run.ok}
    record = json.loads(files["records/some-cpu/d/cupc-s.json"])
    assert (record["time_s"]["warm"], record["verification"]["division"]) == ([1.0], "open")
    assert record["environment"]["git_commit"]


def test_what_is_stale_is_said_once_for_a_device(shown):
    page = devices.content(shown)
    assert "<p>some-gpu: 1 of 1 times (‡) are those of code that has changed since.</p>" in page
    assert page.count("has changed since") == 2
    assert not any(not line.strip() for line in page.splitlines())  # Markdown would end the HTML there
