"""The model of docs/scale.md: formulas by hand, recorded runs, and the page against the script."""

import json
import math
import re
from pathlib import Path

import pytest

from gpupc_impl.distributed import panel_plan
from workflow.pages import million, scale
from workflow.pages.scale import Shape, busy_seconds, panels_made, plan_of, predictions, seconds

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/scale.md"
MEASURED = ROOT / "results/recorded/several-gpus/two-gpus.json"
SMALL = Shape("small", p=64_000, n=100, density=0.5, degree=4, tests_a_pair=10)


def test_the_page_has_the_tables_of_the_script(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    assert scale.main(["--page", str(page)]) == 0
    assert page.read_text() == PAGE.read_text(), "python -m workflow.pages.scale --page docs/scale.md"
    monkeypatch.setattr(scale, "TABLES", {"work": lambda: "| another table |"})
    assert scale.main(["--page", str(page)]) == 0
    assert re.search(r"<!-- work -->\n\n\| another table \|\n\n<!-- end -->\n\n", page.read_text())
    page.write_text("a page of something else\n")
    with pytest.raises(SystemExit):
        scale.main(["--page", str(page)])
    assert "no comment <!-- work -->" in capsys.readouterr().err
    assert page.read_text() == "a page of something else\n"


def test_work_by_hand():
    removed, left = 0.5 * 64_000**2 / 2 - 128_000, 128_000
    assert SMALL.level_one_tests == pytest.approx(removed * 10 + left * 0.75 * 64_000)
    assert SMALL.shard_bytes == pytest.approx(64_000**2 / 8 + 4 * removed)
    assert SMALL.level_two_tests == 64_000 * 4 * 3
    busy = busy_seconds(SMALL, 1)
    assert plan_of(SMALL, 1).panels == 32
    assert busy["scheduler"] == pytest.approx(32 * 33 // 2 * scale.TASK_S)
    panel = 100 * 2048 * 64_000 / scale.FMA_S + 16 * 2048 * 64_000 / scale.MEMORY_BYTES_S
    assert busy["making panels"] == pytest.approx(32 * panel)  # one GPU holds all of them
    assert busy["reading samples"] == pytest.approx(8 * 100 * 64_000 / scale.FILE_BYTES_S)


@pytest.mark.parametrize("workers", [1, 2, 16, 128])
def test_no_resource_is_busy_for_longer_than_the_search(workers):
    busy = busy_seconds(SMALL, workers)
    assert seconds(SMALL, workers) >= max(each for name, each in busy.items() if name != "reading samples")


def test_workers_make_the_panels_of_their_own_blocks():
    plan = panel_plan.choose(100, 28 * 2048, device_memory=10**12, host_memory=10**12, workers=4, rows=2048)
    shares = plan.shares(4)
    needed = [{panel for block, worker in shares.items() if worker == number for panel in block} for number in range(4)]
    assert panels_made(plan, 4) == sum(map(len, needed))
    assert panels_made(plan, 1) == 28
    few = panel_plan.choose(100, 28 * 2048, device_memory=6 * 10**9, host_memory=10**12, workers=1, rows=2048)
    assert 2 < few.held < 28
    assert 28 < panels_made(few, 1) <= 28 + math.ceil(28 / (few.held - 2)) * 28 // 2 + 28


def test_recorded_runs_are_predicted_to_a_twentieth(capsys):
    runs = list(predictions(json.loads(MEASURED.read_text())))
    assert [workers for workers, _, _ in runs] == [1, 1, 2, 2]
    assert all(abs(predicted / measured - 1) < 0.05 for _, measured, predicted in runs)
    assert scale.main(["--measured", str(MEASURED)]) == 0
    assert capsys.readouterr().out.count("\n| ") == 5


def test_a_resumed_run_is_named():
    measured = json.loads(MEASURED.read_text())
    measured["runs"][-1]["report"]["levels"][0]["made"] -= 1
    with pytest.raises(ValueError, match="on 2 workers took shards from an earlier one"):
        list(predictions(measured))


@pytest.mark.parametrize("content", ["{", "[]", '{"runs": []}', '{"runs": [{"workers": 1}]}'])
def test_a_file_of_something_else_is_named(tmp_path, capsys, content):
    path = tmp_path / "scaling.json"
    path.write_text(content)
    with pytest.raises(SystemExit):
        scale.main(["--measured", str(path)])
    assert f"{path}: " in capsys.readouterr().err


def test_cases_are_measured_once(tmp_path):
    out = tmp_path / "million.json"
    call = ["--backend", "host", "--cases", "small-threaded", "--folder", str(tmp_path), "--out", str(out)]
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
