"""The plan to a million variables: formulas, the simulation against closed forms, and the page against the script."""

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from workflow.pages import scale
from workflow.pages.scale import Faults, Tasks, compare, cost, handed_out, list_schedule, panel_rows, simulate

ROOT = Path(__file__).parents[2]
RATES = scale.rates()
FEW = Tasks(panels=12, held=4, panel_s=3.0, block_s=1.0)


PAGE = (ROOT / "docs/scale.md").read_text()
TABLES = dict(re.findall(r"<!-- (\w+) -->\n\n((?:\|.*\n)+)", PAGE))
LONG = {"times", "faults"}
"""Tables of many simulations."""


def test_the_page_has_every_table():
    assert TABLES.keys() == scale.TABLES.keys()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in scale.TABLES])
def test_the_page_has_the_tables_of_the_script(name):
    made = scale.TABLES[name](scale.rates()) + "\n"
    assert TABLES[name] == made, f"{name}: python -m workflow.pages.scale --page docs/scale.md puts in what it should be"


def test_the_command_puts_its_tables_into_a_page(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    monkeypatch.setattr(scale, "TABLES", {"rates": scale.rate_table, "costs": scale.cost_table})
    monkeypatch.setattr(scale, "rates", lambda: dataclasses.replace(RATES, fma=1.0))
    page.write_text(PAGE)
    assert scale.main(["--page", str(page)]) == 0
    made = dict(re.findall(r"<!-- (\w+) -->\n\n((?:\|.*\n)+)", page.read_text()))
    assert made == TABLES | {name: make(scale.rates()) + "\n" for name, make in scale.TABLES.items()}
    assert made["rates"] != TABLES["rates"]
    page.write_text("a page of something else\n")
    with pytest.raises(SystemExit):
        scale.main(["--page", str(page)])
    assert "no comment <!-- rates -->" in capsys.readouterr().err
    assert page.read_text() == "a page of something else\n"


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3, 40])
def test_every_block_is_handed_out_once(workers):
    for panels in (1, 2, 7):
        found = [block for own in handed_out(panels, 4, workers) for block in own]
        assert sorted(found) == [(i, j) for i in range(panels) for j in range(i, panels)]


def test_workers_make_the_panels_of_their_own_blocks():
    """As the method's workers do: 14, 21, 24 and 14 of 28; one that ends before another takes some of its blocks."""
    own = [len({panel for block in blocks for panel in block}) for blocks in handed_out(28, 28, 4)]
    assert own == [14, 21, 24, 14]
    assert sum(own) <= simulate(Tasks(panels=28, held=28, panel_s=0, block_s=1), 4).made <= sum(own) + 2


@pytest.mark.parametrize("held", [2, 3, 5, 12])
def test_one_worker_takes_the_sum_of_its_tasks(held):
    tasks = dataclasses.replace(FEW, held=held, task_s=0.25, numbers_s=7)
    run = simulate(tasks, 1)
    assert run.seconds == pytest.approx(7 + 78 * (1 + 0.25) + run.made * 3)
    assert run.busy_s == pytest.approx(78 + run.made * 3)
    if held == 12:
        assert run.made == 12  # each once


@pytest.mark.parametrize("workers", [1, 2, 3, 16, 100])
def test_without_failures_workers_are_within_the_bounds_of_list_scheduling(workers):
    tasks = dataclasses.replace(FEW, panel_s=0)
    total = 78 * tasks.block_s
    run = simulate(tasks, workers)
    assert run.busy_s == pytest.approx(total)
    assert total / workers <= run.seconds <= total / workers + (1 - 1 / workers) * tasks.block_s + 1e-9
    assert run.seconds == pytest.approx(list_schedule([tasks.block_s] * 78, workers))
    slow = simulate(tasks, workers, Faults(slow_share=0.2, slow_factor=5))
    longest = 5 * tasks.block_s
    assert slow.busy_s / workers <= slow.seconds <= slow.busy_s / workers + (1 - 1 / workers) * longest + 1e-9


def test_where_all_tasks_are_slow_everything_takes_as_many_times_as_long():
    assert simulate(FEW, 1, Faults(slow_share=1, slow_factor=3)).seconds == pytest.approx(3 * simulate(FEW, 1).seconds)


@pytest.mark.parametrize("seed", range(5))
def test_failures_add_the_work_that_they_lost(seed):
    faults = Faults(hours=30 / 3600, restart_s=11, seed=seed)
    run = simulate(FEW, 1, faults)
    assert run.failures > 0
    assert run.seconds == pytest.approx(run.busy_s + run.lost_s + 11 * run.failures)
    assert run.busy_s == pytest.approx(78 + 3 * run.made)
    assert run.made >= simulate(FEW, 1).made
    for workers in (2, 7):
        several = simulate(FEW, workers, faults)
        assert several.busy_s == pytest.approx(78 + 3 * several.made)
        alive = several.seconds * workers
        assert several.busy_s + several.lost_s <= alive


def test_what_all_share_is_a_floor():
    """A saturated scheduler, and a saturated file system: the last shard is written when all were."""
    assert simulate(dataclasses.replace(FEW, task_s=100), 50).seconds >= 78 * 100
    assert simulate(dataclasses.replace(FEW, write_s=100), 50).seconds >= 78 * 100
    read = simulate(dataclasses.replace(FEW, numbers_s=1000, machine=4), 10)
    assert 1000 < read.seconds < 3000  # the first machine has made everything before the third begins


# --- on paper --------------------------------------------------------------------------------------------------------


def test_costs_by_hand():
    shape = scale.Shape("small", p=64_000, n=100, density=0.5, degree=4, tests_a_pair=10)
    rates = dataclasses.replace(scale.rates(), fma=1e9, tests=1e6, memory=math.inf, device=1e11)
    found = cost(shape, rates)
    assert (found.rows, found.panels, found.blocks) == (2048, 32, 32 * 33 // 2)
    assert found.panel_s == pytest.approx(100 * 2048 * 64_000 / 1e9)
    gone, left = 0.5 * 64_000**2 / 2 - 128_000, 128_000
    assert found.block_tests * found.blocks == pytest.approx(gone * 10 + left * 0.75 * 64_000)
    assert found.shard_bytes * found.blocks == pytest.approx(64_000**2 / 8 + 4 * gone)
    assert found.later_tests == 64_000 * 4 * 3
    small = dataclasses.replace(rates, device=1e9)
    with pytest.raises(
        ValueError, match=r"small: two panels of 2048 variables need 2\.2 GB of a worker, which has 1\.0"
    ):
        cost(shape, small)


def test_panels_are_those_of_the_method():
    plans = pytest.importorskip("gpupc_impl.distributed._plan", reason="method distributed is not there")
    for p, workers in itertools.product((5000, 55_572, 450_000), (1, 16, 128)):
        plan = plans.choose(1000, p, device_memory=10**12, host_memory=10**12, workers=workers)
        assert panel_rows(p, workers) == plan.rows
        shape = scale.Shape("", p, 1000, 0.3, 20, 100)
        found = cost(shape, dataclasses.replace(scale.rates(), device=1e12), workers)
        assert found.panels == plan.panels
        assert found.device_bytes == pytest.approx(plan.device_bytes, rel=0.01)


# --- against measured runs -------------------------------------------------------------------------------------------


def measured(workers, tasks, later=(3.0, 2.0, 1.0)):
    """A run as the method's script writes it, with the times of the simulation."""
    run = simulate(tasks, workers)
    first = {
        "step": "levels 0 and 1",
        "tasks": 78,
        "made": 78,
        "seconds": run.seconds,
        "task_seconds": [],
        "workers": {"a": {"tasks": 78, "seconds": {"correlate": 2 * run.made, "level_0": run.made, "level_1": 78.0}}},
    }
    first["workers"]["a"]["panels_made"] = run.made
    level = {"step": "level 2", "tasks": 3, "made": 3, "seconds": list_schedule(later, workers), "workers": {}}
    level["task_seconds"] = list(later)
    report = {"plan": {"panels": tasks.panels, "held": tasks.held}, "levels": [first, level]}
    return {"workers": workers, "levels_total_s": first["seconds"] + level["seconds"], "report": report}


def test_runs_are_predicted_from_the_one_with_the_fewest_workers(tmp_path, capsys):
    runs = {"runs": [measured(4, FEW), measured(1, FEW), measured(2, FEW)]}
    found = compare(runs)
    assert [each.workers for each in found] == [1, 2, 4]
    assert all(abs(each.error) < 1e-9 for each in found)
    runs["runs"][0]["levels_total_s"] *= 2
    assert compare(runs)[-1].error == pytest.approx(-0.5)
    path = tmp_path / "scaling.json"
    path.write_text(json.dumps(runs))
    assert scale.main(["--measured", str(path)]) == 0
    assert "| -50.0% |" in capsys.readouterr().out


def test_recorded_runs_are_predicted_to_a_tenth():
    recorded = json.loads((ROOT / "results/recorded/nvidia-h200/distributed/two-gpus.json").read_text())
    found = compare(recorded)
    assert [each.workers for each in found] == [1, 1, 2, 2]
    assert all(abs(each.error) < 0.1 for each in found)


def test_runs_that_cannot_be_compared_are_named():
    runs = [measured(1, FEW), measured(2, FEW), measured(4, dataclasses.replace(FEW, held=2))]
    assert all(abs(each.error) < 1e-9 for each in compare({"runs": runs}))  # a worker of four has less memory
    runs[1]["report"]["levels"][1]["made"] = 2
    with pytest.raises(ValueError, match="on 2 workers took shards from an earlier one"):
        compare({"runs": runs})
    with pytest.raises(ValueError, match="on 4 workers has 9 panels, the first one 12: measure with the same --panel"):
        compare({"runs": [measured(1, FEW), measured(4, dataclasses.replace(FEW, panels=9))]})


@pytest.mark.parametrize("content", ["{", "[]", '{"runs": []}', '{"runs": [{"workers": 1}]}'])
def test_a_file_of_something_else_is_named(tmp_path, capsys, content):
    path = tmp_path / "scaling.json"
    path.write_text(content)
    with pytest.raises(SystemExit):
        scale.main(["--measured", str(path)])
    assert f"{path}: " in capsys.readouterr().err
