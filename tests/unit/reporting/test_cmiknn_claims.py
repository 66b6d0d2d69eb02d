"""GPU-CMIknn's claims beside made-up tests and records: which implementation stands for whom, series, medians."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.papers.cmiknn_claims import cmiknn_claims

REPORTED = read_csv(Path(__file__).parents[3] / "results" / "reported" / "cmiknn_claims.csv")


def cell(method, seconds, *, k=7, n=1000, permutations=100, size=1, params=None, backend="cuda"):
    cpu = method == "tigramite"
    return {
        **{"samples": n, "permutations": permutations, "set_size": size, "implementation": method, "method": method},
        **{"k_cmi": 0.2 * n if k == "adaptive" else k, "k_rule": "adaptive" if k == "adaptive" else "fixed"},
        "params": params or ({"workers": 1} if cpu else {"selection": "insertion"}),
        "backend": "cpu" if cpu else backend,
        **{"status": "ok" if seconds else "timeout", "seconds": [seconds] * 3 if seconds else []},
    }


def pair(cpu, gpu, **case):
    return [cell("tigramite", cpu, **case), cell("gpucmiknn-single", gpu, **case)]


def search(method, seconds, *, p, k=7, seed=0, params=None):
    cpu = method == "tigramite"
    params = params or ({"workers": 1} if cpu else {"selection": "insertion"})
    return {
        **{"setting": f"{method}-{params}", "method": method, "family": "nonlinear", "reference": cpu},
        **{"backend": "cpu" if cpu else "cuda", "params": params, "dataset": {"name": f"cgm-p{p}-k{k}-seed{seed}"}},
        **{"problem": {"n_variables": p, "k_cmi": k, "n_samples": 1000}, "status": "ok"},
        "time_s": {"cold": 1.0, "compile": None, "warm": [seconds], "levels": []},
    }


@pytest.fixture
def table(load):
    """The CSV rows of the table of some searches and cells, by claim."""

    def make(searches=(), cells=()):
        found = cmiknn_claims(load(searches), [{"cells": list(cells)}], REPORTED)
        return {row["id"]: row for row in found.plain}

    return make


def judged(row):
    return row["ours_low"], row["ours_high"], row["verdict"]


def test_without_records_nothing_is_run(table):
    rows = table()
    assert len(rows) == len(REPORTED)
    assert {row["verdict"] for row in rows.values()} == {"not run"}
    assert all(row["missing"] for row in rows.values())


def test_single_tests_of_insertion_over_tigramite(table):
    counting = cell("gpucmiknn-single", 0.001, params={"selection": "counting"})
    rows = table(cells=[*pair(1.5, 0.005), *pair(3.0, 1.0, k=500), *pair(2.0, None, k=50), counting])
    assert judged(rows["test-range"]) == (3, 300, "holds")
    assert judged(rows["test-up-to-352"]) == (300, 300, "less")
    assert judged(rows["test-k-500"]) == (3, 3, "holds")
    assert judged(rows["cpu-over-k"]) == (100, 100, "more")
    assert judged(rows["gpu-over-k"]) == (200, 200, "holds")
    assert "(GPU test timeout)" in rows["test-range"]["missing"]


def test_series_are_of_one_k(table):
    cells = [*pair(1.0, 0.1, k=200, permutations=50), *pair(20.0, 1.9, k=200, permutations=1000)]
    cells += [*pair(1.0, 0.01, permutations=50), *pair(20.0, 0.2, permutations=1000)]
    cells += [*pair(2.0, 0.3, k=200), *pair(3.2, 0.3, k=200, size=5)]
    cells += [*pair(5.0, 0.01, n=2500), *pair(10.0, 0.03, n=5000), *pair(20.0, 0.15, n=10_000)]
    cells += [*pair(50.0, 400.0, n=10_000, k="adaptive"), *pair(0.4, 0.002, n=100, k="adaptive")]
    rows = table(cells=cells)
    assert judged(rows["cpu-over-permutations"]) == (20, 20, "holds")
    assert judged(rows["gpu-over-permutations"]) == (20, 20, "more")
    assert rows["gpu-over-permutations"]["missing"] == "GPU test at k_CMI = 20 (nothing that differs in perm only)"
    assert judged(rows["gpu-over-permutations-200"]) == (pytest.approx(19), pytest.approx(19), "holds")
    assert judged(rows["cpu-over-sets"]) == (pytest.approx(60), pytest.approx(60), "holds")
    assert judged(rows["gpu-over-sets"]) == (1, 1, "holds")
    assert judged(rows["gpu-quadratic"]) == (pytest.approx(3), pytest.approx(5), "holds")
    assert judged(rows["gain-from-2500"]) == (pytest.approx(500), pytest.approx(500), "holds")
    assert judged(rows["adaptive-loss"]) == (8, 8, "holds")
    assert judged(rows["gain-to-1000"])[1] == pytest.approx(200)
    assert rows["adaptive-loss"]["measured_on"].startswith("k_CMI = adaptive, n = 10,000")
    late = table(cells=[*pair(1.0, 0.1), *pair(1.0, None, n=10_000, k="adaptive")])
    assert late["adaptive-loss"]["missing"] == "(k_CMI = adaptive, perm = 100, |S| = 1, n = 10,000) (GPU test timeout)"


def test_backends_are_apart(load):
    cells = [cell("tigramite", 2.0), cell("gpucmiknn-single", 0.004), cell("gpucmiknn-single", 0.5, backend="host")]
    plain = cmiknn_claims(load([]), [{"cells": cells}], REPORTED).plain
    found = {row["backend"]: row["ours_low"] for row in plain if row["id"] == "test-up-to-352"}
    assert found == {"cuda": 500, "host": 4}


def test_searches_are_medians_of_the_graphs_of_a_size(table):
    runs = []
    for seed, seconds in enumerate((1.0, 2.0, 9.0)):
        runs += [search("tigramite", 900.0, p=10, seed=seed), search("gpucmiknn-parallel", seconds, p=10, seed=seed)]
        runs += [search("gpucmiknn-single", 4.0, p=10, seed=seed)]
        runs += [search("tigramite", 300.0, p=10, seed=seed, params={"workers": 8})]
    runs += [search("tigramite", 2400.0, p=40), search("gpucmiknn-parallel", 2.0, p=40)]
    runs += [search("tigramite", 9.0, p=10, k=200), search("tigramite", 6.0, p=10, k=200, params={"workers": 8})]
    runs += [
        search("gpucmiknn-parallel", 4.0, p=10, k=200),
        search("gpucmiknn-parallel", 1.0, p=10, k=200, params={"selection": "counting"}),
    ]
    runs += [
        search("gpucmiknn-single", 40.0, p=30),
        search("gpucmiknn-parallel", 1.0, p=30, params={"selection": "auto"}),
    ]
    rows = table(runs)
    assert judged(rows["parallel-up-to-1000"]) == (1200, 1200, "holds")
    assert judged(rows["parallel-up-to-240"]) == (150, 150, "less")
    assert judged(rows["parallel-over-single"]) == (2, 2, "holds")  # and not 40 of one selection over the other
    assert judged(rows["parallel-over-N"]) == (pytest.approx(1200 / 450), pytest.approx(1200 / 450), "holds")
    assert judged(rows["cpu-8"]) == (3, 3, "holds")
    assert judged(rows["cpu-8-at-200"]) == (0.5, 0.5, "holds")
    assert judged(rows["cpu-8-similar-at-200"]) == (1.5, 1.5, "holds")
    late = search("tigramite", 1.0, p=50) | {"status": "timeout", "limits": {"time_s": 6000.0}}
    late["time_s"] = late["time_s"] | {"warm": []}
    rows_with_bounds = table([*runs, late, search("gpucmiknn-parallel", 4.0, p=50)])
    assert judged(rows_with_bounds["parallel-up-to-1000"]) == (1500, 1500, "holds")
    assert rows_with_bounds["parallel-up-to-1000"]["ours_high_is_bound"]
    assert not rows["parallel-up-to-1000"]["ours_high_is_bound"]
    rows_with_bounds = table([late, search("gpucmiknn-parallel", 8.0, p=50)])
    assert rows_with_bounds["parallel-up-to-1000"]["verdict"] == "not run"
    assert "all we know is more than 750×" in rows_with_bounds["parallel-up-to-1000"]["missing"]
    assert rows["parallel-at-200"]["missing"] == "cgm-p10-k200-seed0 (GPU-CMIknn-Single-insertion not measured)"
