"""The estimate of what a configuration costs: tests / rate, as ranges, and the runs that are made of each setting."""

import math
import re
from pathlib import Path

import pytest
import yaml

from gpupc_impl.core.files import read_csv
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.record import Limits, Record, Result, Times
from workflow.lib import cost
from workflow.lib.config import complete
from workflow.lib.cost import Job, Range, Rates
from workflow.lib.plan import Plan

ROOT = Path(__file__).parents[2]
TIMING = {"repeats": 4, "time_limit_s": 1000, "long_run_s": 100}
PAPER = {"a": 100.0, "b": 200.0, "c": 400.0}


def record(dataset, method, seconds, tests, params=None, status="ok"):
    ok = status == "ok"
    return Record(
        setting=method,
        method=method,
        family="gaussian",
        reference=method == cost.SERIAL,
        canonical=True,
        backend="cpu" if method == cost.SERIAL else "host",
        params=params or cost.SELECTED.get(method, {}),
        separating_sets="canonical",
        dataset=dataset,
        problem=None,
        status=status,
        why=None if ok else "too slow",
        limits=Limits(),
        time_s=Times(warm=[seconds] if ok else []),
        result=Result(0, 2, "complete", [0, 0], [tests - 7, 7], 0, 0, "a" * 64, "b" * 64) if ok else None,
        code="c" * 64,
        environment=environment(1, 1),
    )


@pytest.fixture
def records():
    return [
        record("a", cost.SERIAL, 1.0, 10**8),
        record("a", "cupc-s", 2.0, 2 * 10**8),
        record("b", cost.SERIAL, 4.0, 4 * 10**8),
        record("b", "cupc-s", 16.0, 10**9),
        record("b", "cupc-s", 1.0, 10**9, params={"theta": 32, "delta": 1}),
        record("small", cost.SERIAL, 5.0, 1000),
        record("small", "cupc-s", 5.0, 1000),
        record("c", "cupc-s", 0, 0, status="timeout"),
    ]


def job(dataset, method="cupc-s", params=None, variables=None):
    return Job("t", dataset, method, params or {}, 4, variables)


def test_what_was_measured_is_not_estimated(records):
    assert Rates(records, PAPER).estimate(job("b")) == Range(16, 16)
    assert Rates(records, PAPER).estimate(job("b", params={"theta": 32, "delta": 1})) == Range(1, 1)


def test_a_data_set_of_the_paper_is_estimated_from_the_runtime_it_has_there(records):
    rates = Rates(records, PAPER)
    assert rates.tests_like_paper("c") == Range(4 * 10**8, 8 * 10**8)  # 1 to 2 million tests a second
    assert rates.estimate(job("c")) == Range(4 * 10**8 / (50 * 10**6), 8 * 10**8 / (25 * 10**6))


def test_only_level_zero_is_known_of_other_data(records):
    found = Rates(records, PAPER).estimate(job("unheard-of", variables=1000))
    assert found == Range(math.comb(1000, 2) / (50 * 10**6), math.inf)
    assert Rates(records, PAPER).estimate(job("a", method="cupc-e")) == Range(0, math.inf)


def test_each_data_set_is_predicted_from_the_others(records):
    rows = {(row[0], row[1]): row[2:] for row in cost.check(Rates(records, PAPER))}
    assert rows["a", "cupc-s"] == ["2.00", "4.00", "2.0", "8.00", "4.0"]
    assert rows["b", "cupc-s"][:3] == ["16.0", "8.00", "2.0"]
    assert not any(dataset == "small" for dataset, _ in rows)


@pytest.mark.parametrize(
    ("run", "time"),
    [
        (Range(10, 20), Range(50, 100)),
        (Range(200, 300), Range(400, 600)),
        (Range(50, 110), Range(200, 500)),  # 100 s is run five times, anything longer twice
        (Range(400, 1200), Range(800, 2000)),
        (Range(5000, math.inf), Range(1000, 1000)),
        (Range(0, math.inf), Range(0, 2000)),
    ],
)
def test_runs_of_a_setting(run, time):
    assert cost.measuring_time(run, TIMING, repeats=4) == time


def test_every_time_in_a_range_lies_in_the_measuring_time():
    for low, high in ((50, 110), (400, 1200), (10, 5000), (99, 101)):
        found = cost.measuring_time(Range(low, high), TIMING, repeats=4)
        for k in range(101):
            exact = low + (high - low) * k / 100
            inside = cost.measuring_time(Range(exact, exact), TIMING, repeats=4)
            assert found.low <= inside.low == inside.high <= found.high


VARIABLES = {row["dataset"]: int(row["variables"]) for row in read_csv(ROOT / "results/reported/cupc_table1.csv")}


@pytest.fixture(scope="module")
def paper():
    config = yaml.safe_load((ROOT / "config" / "paper.yaml").read_text())
    complete(config)
    return Plan(config)


def test_the_paper_configuration_has_the_papers_grids(paper):
    rows = {row[0]: row[1:3] for row in cost.cost(paper, Rates([], {}), VARIABLES)}
    assert rows["cupc_fig7"] == ["6", "180"]
    assert rows["cupc_fig8"] == ["6", "96"]
    assert rows["cupc_fig10"] == ["120", "240"]  # ten graphs each; the three sweeps meet in one point


def test_a_grid_leaves_out_the_data_sets_that_it_is_without(paper):
    paper.config["experiments"]["cupc_fig8"]["without"] = ["nci-60", "mcc"]
    rows = {row[0]: row[1:3] for row in cost.cost(Plan(paper.config), Rates([], {}), VARIABLES)}
    paper.config["experiments"]["cupc_fig8"]["without"] = []
    assert rows["cupc_fig8"] == ["4", "64"]


def test_the_page_speaks_of_the_paper_configuration_as_it_is(paper):
    page = (ROOT / "docs" / "cost.md").read_text()
    for target, datasets, settings, _ in cost.cost(paper, Rates([], {}), VARIABLES):
        assert re.search(rf"^\| {target} \| {datasets} \| {settings} \|", page, re.MULTILINE), target


def test_command_line(records, tmp_path, capsys):
    for number, content in enumerate(records):
        folder = tmp_path / content.dataset
        content.save(folder / f"{number}.json")
    config = ROOT / "config" / "paper.yaml"
    reported = ROOT / "results" / "reported"
    arguments = ["--config", str(config), "--records", str(tmp_path), "--reported", str(reported)]
    assert cost.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "| cupc_fig7 | 6 | 180 |" in shown
    assert "| a | cupc-s | 2.00 |" in shown
