"""GPU-CMIknn's Tables 1 to 10 and Fig. 1 from made-up times, records and skeletons."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.cells import Speedup
from gpupc_impl.reporting.papers import cmiknn, cmiknn_tests

ROOT = Path(__file__).parents[3]
NAMES = (*(f"cmiknn_table{k}" for k in (1, 2, 4, 5, 6, 10)), "cmiknn_fig1")
REPORTED = {name: read_csv(ROOT / f"results/reported/{name}.csv") for name in NAMES}

ENVIRONMENT = {
    "git_commit": "0123456789abcdef",
    "git_dirty": False,
    "cpu": "Some CPU",
    "threads": 2,
    "device": {"device": "Some GPU"},
}

# --- single tests ----------------------------------------------------------------------------------------------------


def cell(name, seconds, *, k=7, rule="fixed", n=250, permutations=50, size=1, status="ok", p_values=None):
    kernels = name.startswith("gpucmiknn")
    return {
        "samples": n,
        "permutations": permutations,
        "set_size": size,
        "k_cmi": k,
        "k_rule": rule,
        "implementation": name,
        "method": "gpucmiknn-single" if kernels else name,
        "params": {"workers": 1} if name == "tigramite" else {},
        "backend": "host" if kernels else "cpu",
        "random": name == "tigramite",
        "status": status,
        "why": None if status == "ok" else f"a reason ({name})",
        "limit_s": 60.0,
        "cold_s": 2.0,
        "seconds": seconds,
        "p_values": p_values or [0.5] * len(seconds),
    }


def timed(*cells):
    return {"environments": {"cpu": ENVIRONMENT, "host": ENVIRONMENT}, "cells": list(cells)}


def row_of(table, *start):
    return next(row for row in table.rows if tuple(row[: len(start)]) == start)


def column(table, name):
    return table.header.index(name)


def test_single_tests_are_medians_with_the_papers_below():
    table = cmiknn_tests.single_tests(
        "A title",
        timed(
            cell("tigramite", [4.0, 8.0, 6.0]),
            cell("gpucmiknn-counting", [1.0, 2.0, 9.0]),
            cell("tigramite", [], k=15, status="timeout"),
            cell("gpucmiknn-counting", [1.0, 1.0, 3.0], k=15),
        ),
        "k_cmi",
        REPORTED["cmiknn_table1"],
    )
    assert table.header[:5] == ["seconds", "k_CMI = 7", "k_CMI = 10", "k_CMI = 15", "k_CMI = 20"]
    assert row_of(table, "ours: tigramite")[1:4] == ["6.00", "–", "DNF (> 60.0)"]
    assert row_of(table, "ours: gpucmiknn-counting (host)")[1:4] == ["2.00", "–", "1.00"]
    assert row_of(table, "gpucmiknn-counting (host) over tigramite")[1:4] == ["3.00×", "–", "–"]
    paper = row_of(table, "paper: GPU-CMIknn")
    assert (paper[1], paper[column(table, "k_CMI = 500")]) == ("0.005", "1.15")
    notes = "\n".join(table.notes)
    assert "perm = 50, |S| = 1, n = 250; medians of 3 tests" in notes
    assert "Paper: perm = 100, |S| = 1, n = 1,000; 20 tests" in notes
    assert "tigramite: a reason (tigramite)" in notes


def test_percentiles_have_rows_of_their_own():
    table = cmiknn_tests.single_tests(
        "A title",
        timed(cell("tigramite", [float(x) for x in range(101)])),
        "k_cmi",
        REPORTED["cmiknn_table6"],
        cmiknn_tests.PERCENTILES,
    )
    assert [row_of(table, "ours: tigramite", p)[2] for p in ("5th", "50th", "95th")] == ["5.00", "50.0", "95.0"]
    assert row_of(table, "paper: CMIknn", "95th")[2] == "2.03"
    assert len({len(row) for row in table.rows}) == 1


def test_every_table_of_single_tests_has_its_own_caption():
    captions = {number: entries()[f"cmiknn_table{number}"].caption for number in (1, 2, 3, 4, 6, 7, 8, 9)}
    assert captions[2].startswith(
        "The table shows the median seconds of single CI tests with local permutations over perm"
    )
    assert "percentiles of the times of Table 3, the seconds" in captions[8]
    assert len(set(captions.values())) == 8


def test_a_row_a_k_where_something_else_varies():
    table = cmiknn_tests.single_tests(
        "A title",
        timed(
            cell("tigramite", [1.0], k=7, n=100),
            cell("tigramite", [2.0], k=20, n=100, rule="adaptive"),
            cell("tigramite", [3.0], k=50, n=250, rule="adaptive"),
        ),
        "samples",
        REPORTED["cmiknn_table4"],
    )
    assert table.header[:4] == ["seconds", "k_CMI", "n = 100", "n = 250"]
    assert row_of(table, "ours: tigramite", "7")[2:4] == ["1.00", "–"]
    assert row_of(table, "ours: tigramite", "adaptive")[2:4] == ["2.00", "3.00"]
    assert row_of(table, "paper: GPU-CMIknn", "adaptive")[-1] == "355.77"
    assert "adaptive: k_CMI = 0.2 n." in table.notes


def test_columns_ascend_and_hold_every_reported_value():
    table = cmiknn_tests.single_tests(
        "A title", timed(cell("tigramite", [1.0])), "permutations", REPORTED["cmiknn_table2"]
    )
    assert table.header[2:] == [f"perm = {x}" for x in (50, 100, 250, 500, 1000)]


def test_differing_p_values_are_noted():
    same = [cell("cmiknn-serial", [1.0]), cell("gpucmiknn-counting", [1.0]), cell("tigramite", [1.0], p_values=[0.1])]
    table = cmiknn_tests.single_tests("A title", timed(*same), "k_cmi", REPORTED["cmiknn_table1"])
    assert any("computed the same p-values" in note for note in table.notes)
    wrong = [cell("cmiknn-serial", [1.0]), cell("gpucmiknn-counting", [1.0], p_values=[0.1])]
    table = cmiknn_tests.single_tests("A title", timed(*wrong), "k_cmi", REPORTED["cmiknn_table1"])
    assert "✗ Implementations differ in their p-values in 1 of 1 problems." in table.notes


# --- searches --------------------------------------------------------------------------------------------------------


def record(dataset, method, warm, *, k=7, p=10, status="ok", backend=None, source="a graph", limit=60.0):
    kernels = method.startswith("gpucmiknn")
    problem = {"n_variables": p, "n_samples": 100, "permutations": 50, "k_perm": 15, "k_cmi": k, "alpha": 0.01}
    return {
        "setting": method,
        "method": method.removesuffix("-2"),
        "family": "nonlinear",
        "reference": not kernels,
        "backend": backend or ("host" if kernels else "cpu"),
        "params": {"workers": int(method.partition("-")[2] or 1)} if method.startswith("tigramite") else {},
        "separating_sets": "canonical",
        "dataset": {"name": dataset, "source": source},
        "problem": None if status == "skipped" else problem,
        "status": status,
        "why": None if status == "ok" else f"a reason ({method})",
        "limits": {"time_s": limit},
        "time_s": {"cold": 1.0, "warm": warm, "levels": []},
        "result": {"tests_per_level": [6], "edges_per_level": [4], "edges": 4, "levels_run": 1}
        if status == "ok"
        else None,
        "environment": ENVIRONMENT,
    }


@pytest.fixture
def searches(load):
    records = []
    for seed, (slow, fast) in enumerate(((10.0, 1.0), (20.0, 1.0), (90.0, 3.0))):
        records += [record(f"cgm-k7-seed{seed}", "tigramite", [slow])]
        records += [record(f"cgm-k7-seed{seed}", "tigramite-2", [slow / 2])]
        records += [record(f"cgm-k7-seed{seed}", "gpucmiknn-parallel", [fast])]
    for seed, late in enumerate((False, True)):
        status = "timeout" if late else "ok"
        records += [record(f"cgm-k200-seed{seed}", "tigramite", [] if late else [30.0], k=200, status=status)]
        records += [record(f"cgm-k200-seed{seed}", "gpucmiknn-parallel", [2.0], k=200)]
    statuses = {("cgm-k7-seed1", "gpucmiknn-parallel"): "unexplained", ("cgm-k7-seed0", "tigramite"): "random"}
    return load(records, statuses)


def test_table5_is_the_median_of_ratios(searches):
    table = cmiknn.cmiknn_table5(searches, REPORTED["cmiknn_table5"])
    assert table.header[2:] == [f"N = {p}" for p in (10, 20, 30, 40, 50)]
    assert row_of(table, "ours: tigramite, seconds", "7")[2:4] == ["20.0 s", "–"]
    assert row_of(table, "ours: tigramite-2", "7")[2] == "2.00×"
    assert row_of(table, "ours: GPU-CMIknn-Parallel (host)", "7")[2] == "20.0× ✗"  # of 10, 20 and 30
    assert row_of(table, "paper: GPU-CMIknn-Parallel", "7")[2:] == [
        "469.07×",
        "458.64×",
        "844.69×",
        "985.83×",
        "1002.0×",
    ]


def test_table5_has_seconds_where_the_cpu_version_was_not_run(load):
    runs = load(
        [
            record("cgm-k7-seed0", "gpucmiknn-parallel", [1.0]),
            record("cgm-k7-seed1", "gpucmiknn-parallel", [4.0]),
            record("cgm-k7-seed2", "gpucmiknn-parallel", [], status="timeout"),
            record("cgm-k20-seed0", "gpucmiknn-parallel", [2.0], k=20),
            record("cgm-k20-seed0", "tigramite", [9.0], k=20),
            record("cgm-k200-seed0", "gpucmiknn-parallel", [], k=200, status="timeout"),
        ]
    )
    table = cmiknn.cmiknn_table5(runs, REPORTED["cmiknn_table5"])
    cells = [row_of(table, "ours: GPU-CMIknn-Parallel (host)", k)[2] for k in ("7", "20", "200")]
    assert cells == ["2.50 s", "4.50×", "–"]
    assert any(note.startswith("Cells in seconds are medians") for note in table.notes)
    with_all = load([record("cgm-k20-seed0", method, [2.0], k=20) for method in ("gpucmiknn-parallel", "tigramite")])
    notes = cmiknn.cmiknn_table5(with_all, []).notes
    assert not any(note.startswith("Cells in seconds are medians") for note in notes)


def test_a_limit_that_was_hit_is_a_bound_of_the_median(searches):
    table = cmiknn.cmiknn_table5(searches, REPORTED["cmiknn_table5"])
    assert row_of(table, "ours: GPU-CMIknn-Parallel (host)", "200")[2] == "> 22.5× †"  # 15 and more than 30
    assert any("graphs, ours 2 or 3 of each kind" in note for note in table.notes)


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ([Speedup(2.0), Speedup(4.0)], "3.00×"),
        ([Speedup(2.0), Speedup(4.0, "<")], "< 3.00× †"),
        ([Speedup(2.0, ">"), Speedup(4.0, "<")], "–"),
        ([Speedup(2.0), Speedup(None, why="oom")], "–"),
        ([], "–"),
    ],
)
def test_medians_of_bounds(ratios, text):
    assert str(cmiknn.median_speedup(ratios)) == text


def test_table10_says_what_did_not_finish(load):
    runs = load(
        [
            record("cgm-sparse-p100-n1000", "tigramite-2", [], status="timeout"),
            record("cgm-sparse-p100-n1000", "gpucmiknn-single", [25.0]),
            record("nci-60-nonlinear", "tigramite-2", [], status="skipped"),
            record("nci-60-nonlinear", "gpucmiknn-single", [], status="skipped"),
        ],
    )
    table = cmiknn.cmiknn_table10(runs, REPORTED["cmiknn_table10"])
    assert table.header[1:3] == ["cgm-sparse-p100-n1000", "nci-60-nonlinear"]
    assert row_of(table, "ours: tigramite-2")[1:4] == ["DNF (> 60.0)", "not run", "–"]
    assert row_of(table, "ours: GPU-CMIknn-Single (host)")[1:3] == ["25.0", "not run"]
    paper = row_of(table, "paper: CPU-8")
    assert paper[1:3] == ["1,399", "82,287"]
    assert paper[column(table, "mcc-nonlinear")] == "DNF"
    assert any("nci-60-nonlinear not run: tigramite-2: a reason (tigramite-2)" in note for note in table.notes)


# --- Fig. 1 ----------------------------------------------------------------------------------------------------------


def skeleton(edges, sets=(), p=3):
    adjacency = np.zeros((p, p), bool)
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = True
    found = SeparatingSets.from_levels(adjacency, sets)
    return Skeleton(adjacency, found, tuple("ABC"), (), (), (), 0, "complete")


def test_fig1_is_the_change_of_the_distance_of_cpdags(load):
    """The truth is A -> B <- C, a v-structure. At k = 7 B separates A and C: two directions are missing."""
    chain = skeleton([(0, 1), (1, 2)], [(np.array([[0, 2]]), np.array([[1]]))])
    collider = skeleton([(0, 1), (1, 2)])
    one_edge = skeleton([(0, 1)])
    found = {"g-k7-s0": chain, "g-k20-s0": collider, "g-k7-s1": collider, "g-k20-s1": one_edge, "g-k50-s1": collider}
    records = [
        record(name, "gpucmiknn-parallel", [1.0], k=int(name.split("-")[1][1:]), p=3, source=name[-2:])
        for name in found
    ]
    problems = [{"name": name, "true_edges": [[0, 1], [2, 1]]} for name in found]
    runs = load(records, skeletons={(name, "gpucmiknn-parallel"): skeleton for name, skeleton in found.items()})
    drawing = cmiknn.cmiknn_fig1(runs, problems, REPORTED["cmiknn_fig1"])
    assert {row["graph"]: (row["shd"], row["change"]) for row in drawing.rows} == {
        "g-k7-s0": (2, 0),
        "g-k20-s0": (0, -2),
        "g-k7-s1": (0, 0),
        "g-k20-s1": (2, 2),
        "g-k50-s1": (0, 0),
    }
    lines = {line.get_marker(): list(line.get_ydata()) for line in drawing.figure.axes[0].lines}
    assert lines["o"] == [0, 0, 0]
    assert "median +0 at 20, +0 at 50" in drawing.figure.get_suptitle()
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == ["minimum, median, maximum", "the paper's statements (above)"]
    stated = {text.get_text(): text.xy[0] for text in drawing.figure.axes[0].texts}
    assert stated == pytest.approx({"improves": 210**0.5, "remains\nsimilar": 2250**0.5, "deteriorates": 20_000**0.5})
    plt.close(drawing.figure)


def test_fig1_leaves_out_what_is_not_verified(load):
    records = [record(f"g-k{k}", "gpucmiknn-parallel", [1.0], k=k, p=3) for k in (7, 20)]
    found = {(name, "gpucmiknn-parallel"): skeleton([(0, 1)]) for name in ("g-k7", "g-k20")}
    runs = load(records, {("g-k20", "gpucmiknn-parallel"): "unexplained"}, found)
    problems = [{"name": name, "true_edges": [[0, 1]]} for name, _ in found]
    drawing = cmiknn.cmiknn_fig1(runs, problems, REPORTED["cmiknn_fig1"])
    assert [row["change"] for row in drawing.rows] == [0, None]
    plt.close(drawing.figure)


# --- scaling ---------------------------------------------------------------------------------------------------------


def test_scaling_has_a_panel_a_sweep_and_a_line_a_setting(load):
    sweeps = {"n": {"g-100": 100, "g-200": 200, "g-400": 400}, "k_cmi": {"g-100": 7, "h": 20}}
    records = [record(name, "gpucmiknn-parallel", [2.0 * at + 1]) for at, name in enumerate(["g-100", "g-200", "h"])]
    records[2]["result"]["tests_per_level"] = [1000, 234]
    records.append(record("g-400", "gpucmiknn-parallel", [], status="timeout"))
    drawing = cmiknn.cmiknn_scaling(load(records), sweeps)
    by_n, by_k = drawing.figure.axes
    assert [axes.get_xlabel() for axes in (by_n, by_k)] == ["number of samples n", "k_CMI"]
    points = [[list(zip(*line.get_data(), strict=True)) for line in axes.lines] for axes in (by_n, by_k)]
    assert points == [[[(100, 1.0), (200, 3.0)], [(400, 60.0)]], [[(7, 1.0), (20, 5.0)], []]]
    assert [text.get_text() for text in by_k.texts] == ["6", "1,234"]
    assert [row["value"] for row in drawing.rows] == [100, 200, 400, 7, 20]
    plt.close(drawing.figure)
