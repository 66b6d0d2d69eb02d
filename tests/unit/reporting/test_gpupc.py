"""gpuPC's Tables 1 to 3 from made-up facts and records: infinity, bounds, distances to the true graph."""

from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.reporting.papers import gpupc

ROOT = Path(__file__).parents[3]
REPORTED = {k: read_csv(ROOT / f"results/reported/gpupc_table{k}.csv") for k in (1, 2, 3)}
LIMIT = 200_000_000


PAPER = {"counting": "samples", "tables": "global"}
BEST = {"counting": "bit-planes", "tables": "shared"}


def record(dataset, method, warm, *, status="ok", backend=None, problem=None, setting=None, params=None):
    kernels = method in ("gpupc", "disc-cupc")
    return {
        "setting": setting or method,
        "method": method,
        "family": "discrete",
        "reference": not kernels,
        "backend": backend or ("host" if kernels else "cpu"),
        "params": params or {},
        "separating_sets": "canonical",
        "dataset": {"name": dataset},
        "problem": problem,
        "status": status,
        "why": None if status == "ok" else f"a reason ({method})",
        "limits": {"time_s": 60.0, "device_memory_bytes": LIMIT if kernels else None},
        "time_s": {"cold": 1.0, "warm": warm, "levels": []},
        "peak_bytes": {"device": 100, "process": 10},
        "result": {"tests_per_level": [6, 7], "edges_per_level": [4, 3], "edges": 3, "levels_run": 2}
        if status == "ok"
        else None,
        "environment": {
            "git_commit": "0123456789abcdef",
            "git_dirty": False,
            "cpu": "Some CPU",
            "threads": 2,
            "device": {"device": "Some GPU"},
        },
    }


def row_of(table, *start):
    return next(row for row in table.rows if tuple(row[: len(start)]) == start)


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def facts(name, **own):
    return {"name": name, "available": True, "why": None, "alpha": 0.01, "source": "somewhere"} | own


def test_table1_has_the_papers_shapes_beside_ours():
    drawn = facts("alarm-200000", n_variables=37, n_samples=200_000, max_categories=4, categories_declared=37)
    drawn |= {"categories_observed": 0, "constant_variables": 0, "true_edges": [[0, 1]] * 46}
    read = facts("read", n_variables=9, n_samples=10, max_categories=3, categories_declared=4, categories_observed=5)
    read |= {"constant_variables": 2}
    missing = facts("gone", available=False, why="data set 'gone' is not here", true_edges=[[0, 1]])
    table = gpupc.gpupc_table1([drawn, read, missing], REPORTED[1])
    assert table.rows[0] == [
        *("alarm-200000", "37", "37", "200,000", "200,000", "4", "4", "declared", "0", "46", "somewhere")
    ]
    assert table.rows[1] == ["read", "9", "–", "10", "–", "3", "–", "4 declared, 5 observed", "2", "–", "somewhere"]
    assert table.rows[2][1:9] == ["–"] * 8
    assert "data set 'gone' is not here" in table.notes
    assert [row["true_edges"] for row in table.plain] == [46, None, 1]


# --- Table 2 ---------------------------------------------------------------------------------------------------------

SWEEPS = {
    "p": {"base": 60, "p30": 30},
    "categories": {"base": 4, "c20": 20},
    "decay": {"base": 0.9, "d0.5": 0.5},
}


@pytest.fixture
def workload(load):
    records = []
    times = {"base": (3.0, 1.0), "p30": (0.5, 0.25), "c20": (None, 4.0), "d0.5": (None, None)}
    for graph, (slow, fast) in times.items():
        problem = {
            "n_variables": 30 if graph == "p30" else 60,
            "max_categories": 20 if graph == "c20" else 4,
            "n_samples": 1000,
            "tests_per_edge": 16,
            "decay": 0.5 if graph == "d0.5" else 0.9,
        }
        why = "oom" if slow is None else "ok"
        records.append(record(graph, "disc-cupc", [slow] if slow else [], status=why, problem=problem))
        late = "timeout" if fast is None else "ok"
        records.append(record(graph, "gpupc", [fast] if fast else [], status=late, problem=problem))
    return load(records)


def test_table2_has_the_papers_layout_with_ours_above(workload):
    table = gpupc.gpupc_table2(workload, REPORTED[2], SWEEPS)
    start = table.rows.index(row_of(table, "N", "ours: N"))
    assert [row[1:4] for row in table.rows[start : start + 6]] == [
        ["ours: N", "30", "60"],
        ["disc-cuPC, s", "0.500", "3.00"],
        ["gpuPC, s", "0.250", "1.00"],
        ["speedup", "2.00×", "3.00×"],
        ["paper: N", "1,000", "2,000"],
        ["speedup", "4.2×", "4.38×"],
    ]
    assert {len(row) for row in table.rows} == {len(table.header)}


def test_table2_is_infinite_where_only_the_baseline_ran_out_of_memory(workload):
    table = gpupc.gpupc_table2(workload, REPORTED[2], SWEEPS)
    start = table.rows.index(row_of(table, "max |V|", "ours: max |V|"))
    assert table.rows[start + 1][2:4] == ["3.00", "oom"]
    assert table.rows[start + 3][2:4] == ["3.00×", "∞"]
    assert table.rows[start + 5][2:7] == ["3.6×", "7.67×", "7.5×", "6.4×", "∞"]
    start = table.rows.index(row_of(table, "d", "ours: d"))
    assert table.rows[start][2:4] == ["0.9", "0.5"]  # from few tests to many, as in the paper
    assert table.rows[start + 3][3] == "timeout"  # gpuPC did not finish either
    ours = [row for row in table.plain if row["source"] == "ours"]
    found = {(row["parameter"], row["graph"], row["method"]): row["speedup"] for row in ours}
    assert found["categories", "c20", "gpupc"] == "inf"
    assert found["decay", "d0.5", "gpupc"] is None


def test_table2_states_the_memory_limit_and_what_is_fixed(workload):
    notes = "\n".join(gpupc.gpupc_table2(workload, REPORTED[2], SWEEPS).notes)
    assert "Device memory of disc-cuPC and gpuPC: 200 MB, backend host." in notes
    assert "Ours, where not varied: N = 60, max |V| = 4, n = 1,000, T = 16, d = 0.9." in notes
    assert "gpupc" in notes
    assert "a reason (gpupc)" in notes


def test_like_is_compared_with_like_in_both_tables(load):
    """The paper's choice first, whatever settings are called and in whatever order they come; then the best of each."""
    times = {("disc-cupc", "b"): 3.0, ("gpupc", "b"): 1.0, ("disc-cupc", "a"): 8.0, ("gpupc", "a"): 2.0}
    problem = {"n_variables": 60, "max_categories": 4, "n_samples": 9, "tests_per_edge": 16, "decay": 0.9}
    records = [
        record("base", m, [t], setting=f"{name}-{m}", params=PAPER if name == "a" else BEST, problem=problem)
        for (m, name), t in times.items()
    ]
    table = gpupc.gpupc_table2(load(records), REPORTED[2], {"p": {"base": 60}})
    start = table.rows.index(row_of(table, "N", "ours: N"))
    assert [row[1:3] for row in table.rows[start + 1 : start + 7]] == [
        *(["disc-cuPC, s", "8.00"], ["gpuPC, s", "2.00"], ["speedup", "4.00×"]),
        *(["best disc-cuPC, s", "3.00"], ["best gpuPC, s", "1.00"], ["speedup", "3.00×"]),
    ]
    assert [row["choice"] for row in table.plain if row["source"] == "ours"] == ["paper", "paper", "best", "best"]
    assert any("count as in the paper" in note for note in table.notes)
    without = [each for each in records if each["setting"] != "b-disc-cupc"]
    table = gpupc.gpupc_table2(load(without), REPORTED[2], {"p": {"base": 60}})
    assert "best gpuPC, s" in [row[1] for row in table.rows]
    assert "best disc-cuPC, s" not in [row[1] for row in table.rows]  # It was not measured.
    table = gpupc.gpupc_table3(load(records), [], REPORTED[3])
    assert table.header[4:] == [
        *("disc-cuPC", "gpuPC", "best disc-cuPC", "best gpuPC", "gpuPC over disc-cuPC", "best over best"),
        *("gpuPC over the parallel CPU version", "SHD of the skeleton"),
    ]
    assert row_of(table, "base")[4:10] == ["8.00", "2.00", "3.00", "1.00", "4.00×", "3.00×"]
    assert {len(row) for row in table.rows} == {len(table.header)}


# --- Table 3 ---------------------------------------------------------------------------------------------------------


def skeleton(edges, p=4):
    adjacency = np.zeros((p, p), bool)
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = True
    sets = SeparatingSets.from_levels(adjacency, [])
    return Skeleton(adjacency, sets, tuple("ABCD"), (), (), (), 0, "complete")


STATUSES = {("small", "causal-learn-discrete"): "convention"}


@pytest.fixture
def times():
    return [
        record("small", "discrete-serial", [4.0]),
        record("small", "discrete-parallel", [3.0]),
        record("small", "causal-learn-discrete", [30.0]),
        record("small", "disc-cupc", [2.0]),
        record("small", "gpupc", [1.0]),
        record("munin-20000", "discrete-serial", [], status="timeout"),
        record("munin-20000", "discrete-parallel", [8.0]),
        record("munin-20000", "causal-learn-discrete", [], status="skipped"),
        record("munin-20000", "disc-cupc", [], status="oom"),
        record("munin-20000", "gpupc", [2.0]),
    ]


def test_table3_has_ours_above_the_papers(load, times):
    table = gpupc.gpupc_table3(load(times, STATUSES), [], REPORTED[3])
    assert table.header[2:9] == [
        *("parallelPC", "bnlearn", "discrete-serial", "discrete-parallel", "causal-learn-discrete", "disc-cuPC"),
        "gpuPC",
    ]
    assert row_of(table, "small")[1:11] == [
        *("ours: host", "–", "–", "4.00", "3.00", "30.0 ≈", "2.00", "1.00", "2.00×", "3.00×")
    ]
    assert row_of(table, "munin-20000")[4:11] == ["> 60.0 †", "8.00", "not run", "∞", "2.00", "∞", "4.00×"]
    after = table.rows[table.rows.index(row_of(table, "munin-20000")) + 1]
    assert after[:11] == ["", "paper", "110,740.5", "273.79", "–", "–", "–", "97.45", "14.99", "6.50×", "18.3×"]
    assert row_of(table, "link-20000")[1] == "paper"


def test_table3_counts_what_the_skeleton_misses(load, times):
    problems = [{"name": "small", "true_edges": [[0, 1], [1, 2], [3, 2]]}, {"name": "munin-20000"}]
    skeletons = {
        ("small", "gpupc"): skeleton([(0, 1), (0, 3)]),
        ("small", "causal-learn-discrete"): skeleton([(0, 1), (1, 2), (2, 3)]),
    }
    for content in times:
        skeletons.setdefault((content["dataset"]["name"], content["setting"]), skeleton([(0, 2)]))
    table = gpupc.gpupc_table3(load(times, STATUSES, skeletons), problems, REPORTED[3])
    assert row_of(table, "small")[-1] == "3 (−2 +1)"
    assert row_of(table, "munin-20000")[-1] == "–"
    found = {(row["dataset"], row["setting"]): row["skeleton_shd"] for row in table.plain if row["source"] == "ours"}
    assert found["small", "causal-learn-discrete"] == 0
    assert found["small", "discrete-serial"] == 4
    assert found["munin-20000", "gpupc"] is None


def test_backends_have_rows_of_their_own(load):
    records = [record("small", "discrete-parallel", [3.0])]
    records += [record("small", m, [t], backend=b) for m, t, b in (("gpupc", 1, "host"), ("disc-cupc", 2, "host"))]
    records += [record("small", m, [t], backend="cuda") for m, t in (("gpupc", 0.1), ("disc-cupc", 0.4))]
    table = gpupc.gpupc_table3(load(records), [], REPORTED[3])
    assert row_of(table, "small", "ours: host")[-3:-1] == ["2.00×", "3.00×"]
    assert row_of(table, "small", "ours: cuda")[-3:-1] == ["4.00×", "30.0×"]
