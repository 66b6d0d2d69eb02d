"""The published runs of the project are valid, and the page that shows them shows these."""

import re
from pathlib import Path

import pytest

from gpupc_impl import cli
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement import exclusions
from gpupc_impl.measurement.checking import check, compare, unknown_origins
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.published import open_published
from gpupc_impl.reporting import recorded
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES
from workflow.pages import digests

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "results" / "recorded"
PAGE = (ROOT / "docs" / "recorded.md").read_text(encoding="utf-8")
DEVICES = sorted(path.parent for path in RECORDED.glob("*/machines.json"))
SHOWN = [device for device in DEVICES if f"\n## {device.name}\n" in PAGE]
"""The devices on which the papers' sizes were recorded; others contribute folders, which the site's table shows."""


@pytest.mark.parametrize("device", DEVICES, ids=lambda path: path.name)
def test_published_runs_are_valid_and_in_few_files(device):
    assert check(device) == []
    assert unknown_origins(device) == []
    assert sum(path.is_file() for path in device.rglob("*")) < 150
    for record in open_published(device).records():
        # A run on a GPU was alone there, or is known not to have been; a run that was skipped looked at none.
        if record.backend == "cuda" and record.status != "skipped":
            others = record.environment["gpu"]["others_on_gpu"]
            assert others is any("another process used" in said for said in record.environment["warnings"])


def test_all_methods_found_the_same_on_all_devices():
    """One skeleton a problem, and one set of separating sets where they are canonical; what differs is known."""
    assert compare(DEVICES)[1] == []
    for device in SHOWN:
        published = open_published(device)
        for record in published.records():
            known = (record.method, record.dataset, record.edges) in KNOWN_DIFFERENCES
            verified = published.verification(record.dataset, record.setting)
            of_another_test = verified is not None and verified["status"] == "convention"
            division = published.division(record.dataset, record.setting)
            assert division in ("closed", "alone") or known or of_another_test or record.random or not record.ok


def test_a_release_has_no_stale_run():
    """Between releases the changelog has a section of what is unreleased, and code may be newer than the runs."""
    if "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        pytest.skip("this is no release")
    assert cli.main(["records", "check", "--current", *map(str, SHOWN)]) == 0


@pytest.mark.parametrize("device", SHOWN, ids=lambda path: path.name)
def test_the_page_shows_the_records(device, capsys):
    assert recorded.main([str(device)]) == 0
    printed = capsys.readouterr().out
    shown = [recorded.markdown(open_published(device).records())]
    if timed := recorded.read_tests(device):
        shown.append(recorded.single_tests(timed))
    assert printed == "\n".join(shown)
    assert all(part in PAGE for part in shown)


def test_a_device_is_shown():
    assert SHOWN


def test_statuses_and_numbers(tmp_path, publish):
    record = {
        "setting": "fast",
        "method": "fast",
        "family": "gaussian",
        "problem": {"n_variables": 3},
        "reference": False,
        "backend": "cuda",
        "status": "ok",
        "dataset": {"name": "small"},
        "result": {"tests_per_level": [10, 5]},
        "time_s": {"warm": [0.001, 0.002, 0.003], "levels": [[0.0005, 0.0005]] * 3},
        "environment": {
            "git_commit": "0123456789abcdef",
            "git_dirty": False,
            "cpu": "A CPU",
            "threads": 2,
            "python": "3.12",
            "device": {"device": "A GPU", "nvrtc": "13.0", "cupy": "14.2"},
            "gpu": {"driver": "580", "others_on_gpu": False},
        },
    }
    slow = {**record, "setting": "slow", "status": "oom", "result": None, "time_s": {"warm": [], "levels": []}}
    publish([record, slow], tmp_path)
    shown = recorded.markdown(open_published(tmp_path).records())
    assert "| ms | fast | slow |" in shown
    assert "| small | 2.00 [1.40–2.60] / 1.00 | oom |" in shown
    assert "- GPU methods: A GPU, driver 580, NVRTC 13.0, CuPy 14.2, Python 3.12; commit 0123456789" in shown


def test_digests_follow_a_changed_rule_and_others_stay(tmp_path, publish, monkeypatch, capsys):
    folder, noted = tmp_path / "device", tmp_path / "noted.json"
    cupc_s, other = code_version(get_method("cupc-s"), "cuda"), "f" * 64
    run = {
        "method": "cupc-s",
        "backend": "cuda",
        "family": "gaussian",
        "status": "ok",
        "reference": False,
        "dataset": {"name": "d"},
    }
    publish([run | {"setting": "a", "code": cupc_s}, run | {"setting": "b", "code": other}], folder)
    digests.main(["note", str(noted), str(folder)])
    monkeypatch.setitem(exclusions.EXCLUDED_OF_METHODS, "gpupc_impl/gaussian/correlation.py", "to see a changed rule")
    digests.main(["replace", str(noted), str(folder)])
    changed = code_version(get_method("cupc-s"), "cuda")
    assert changed != cupc_s
    assert [record.code for record in open_published(folder).records()] == [changed, other]
    assert capsys.readouterr().out == "replaced: 1, left: 1\n"


def test_words_of_others_are_text(tmp_path, publish):
    """A record's machine is what its sender wrote."""
    environment = {"python": "<img src=x onerror=alert(1)>", "cpu": "[here](javascript:alert(1))", "git_commit": "<b>"}
    time = {"warm": [0.001], "levels": []}
    method = {"dataset": {"name": "d"}, "setting": "a", "method": "a", "family": "gaussian", "reference": True}
    publish([method | {"backend": "cpu", "status": "ok", "time_s": time, "environment": environment}], tmp_path)
    shown = recorded.markdown(open_published(tmp_path).records())
    assert "&lt;img src=x" in shown
    assert not re.search(r"<[a-z]|\]\(", shown)


def test_seeds_of_a_series_share_a_row(tmp_path, publish):
    """Ten seeds with medians of 1 to 10 ms, of which two ran into their time limits under one setting."""
    records = []
    for seed in range(10):
        its = {
            "dataset": {"name": f"graph-seed{seed}-fig1"},
            "family": "gaussian",
            "reference": False,
            "backend": "cuda",
        }
        time = {"time_s": {"warm": [(seed + 1) / 1000], "levels": [[(seed + 1) / 2000]]}}
        late = {"status": "timeout", "result": None, "time_s": {"warm": [], "levels": []}}
        for setting, own in (("a", {"status": "ok"} | time), ("b", late if seed > 7 else {"status": "ok"} | time)):
            records.append(its | {"setting": setting, "method": setting} | own)
    for record in records:
        record["environment"] = {"python": "3.12"}
    records.append(records[0] | {"dataset": {"name": "alone-seed3"}, "setting": "c", "method": "c"})
    publish(records, tmp_path)
    shown = recorded.markdown(open_published(tmp_path).records())
    cells = ["graph-fig1, median of 10 seeds", "5.50 [2.80–8.20] / 2.75", "4.50 [2.40–6.60] / 2.25; 2 timeout"]
    assert f"| {' | '.join(cells)} |" in shown
    assert "| alone-seed3 | 1.00 [1.00–1.00] / 0.500 |" in shown


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        recorded.main([str(tmp_path)])
    assert "holds no published runs" in capsys.readouterr().err
