"""gpuPC's claims beside made-up records: workloads by their dimensions, infinity, and what is missing."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.papers.gpupc_claims import gpupc_claims

REPORTED = read_csv(Path(__file__).parents[3] / "results" / "reported" / "gpupc_claims.csv")


def record(dataset, method, seconds, problem=None, status="ok"):
    cpu = method.startswith("discrete")
    return {
        **{"setting": method, "method": method, "family": "discrete", "reference": cpu},
        **{"backend": "cpu" if cpu else "cuda", "dataset": {"name": dataset}, "problem": problem, "status": status},
        "time_s": {"cold": 1.0, "compile": None, "warm": [] if seconds is None else [seconds], "levels": []},
    }


def workload(slow, fast, *, p=1000, categories=4, n=10_000, tests=32, decay=0.9):
    """disc-cuPC's and gpuPC's seconds on one workload; None where there was not enough memory."""
    problem = {"n_variables": p, "max_categories": categories, "n_samples": n, "tests_per_edge": tests, "decay": decay}
    pairs = {"disc-cupc": slow, "gpupc": fast}
    return [
        record("-".join(map(str, problem.values())), method, seconds, problem, "oom" if seconds is None else "ok")
        for method, seconds in pairs.items()
    ]


@pytest.fixture
def table(load):
    """The CSV rows of the table of some records, by claim."""
    return lambda records, factors=(): {row["id"]: row for row in gpupc_claims(load(records), factors, REPORTED).plain}


def judged(row):
    return row["ours_low"], row["ours_high"], row["verdict"]


def test_without_records_nothing_is_run(table):
    rows = table([])
    assert len(rows) == len(REPORTED)
    assert {row["verdict"] for row in rows.values()} == {"not run"}
    assert all(row["missing"] for row in rows.values())


def test_one_dimension_varies_at_a_time(table):
    records = [*workload(8.0, 2.0), *workload(36.0, 9.0, p=2000), *workload(800.0, 16.0, n=500_000)]
    records += [*workload(1500.0, 30.0, n=1_000_000), *workload(1.0, 2.0, tests=1), *workload(9.0, 2.0, tests=128)]
    records += [*workload(30.0, 3.0, decay=0.75)]
    rows = table(records)
    assert judged(rows["up-to-45.6"]) == (50, 50, "holds")
    assert judged(rows["steady-over-N"]) == (4, 4, "holds")
    assert judged(rows["quadruple"]) == (4.5, 4.5, "holds")
    assert judged(rows["500k-samples"]) == (50, 50, "holds")
    assert judged(rows["10k-samples"]) == (4, 4, "less")
    assert judged(rows["linear-in-n"]) == (1.875, 1.875, "holds")
    assert judged(rows["sublinear-in-n"]) == (0.16, 0.16, "holds")
    assert judged(rows["constant-over-T"]) == (1.125, 1.125, "holds")
    assert judged(rows["higher-below-32"]) == (0.125, 0.125, "less")
    assert judged(rows["gap-over-d"]) == (2.5, 2.5, "holds")
    assert judged(rows["always-faster"]) == (0.5, 50, "less")
    assert rows["always-faster"]["measured_on"] == "7 workloads"
    assert rows["two-categories"]["missing"] == "gpuPC over disc-cuPC (nothing that differs in max |V| only)"


def test_memory_that_is_exhausted(table):
    rows = table([*workload(8.0, 2.0), *workload(None, 5.0, categories=20), *workload(None, None, decay=0.5)])
    assert judged(rows["memory-of-categories"]) == (100, 100, "holds")
    assert judged(rows["memory-of-levels"]) == (0, 0, "less")
    assert judged(table(workload(9.0, 5.0, categories=20))["memory-of-categories"]) == (0, 0, "less")


def test_networks_over_the_parallel_reference(table):
    records = []
    for name, times in {"alarm-200000": (40.0, 4.0, 2.0), "link-20000": (30.0, 10.0, 1.0)}.items():
        records += [
            record(name, method, t)
            for method, t in zip(("discrete-parallel", "disc-cupc", "gpupc"), times, strict=True)
        ]
    rows = table(records)
    assert judged(rows["disc-cupc-over-cpu"]) == (3, 10, "holds")
    assert judged(rows["gpupc-over-cpu"]) == (20, 30, "holds")
    assert judged(rows["up-to-6.5"]) == (10, 10, "holds")
    assert judged(rows["up-to-62.1"]) == (30, 30, "less")
    assert rows["gpupc-over-cpu"]["missing"] == "andes-20000, munin-20000 (not in this run)"
    assert rows["bnlearn-over-parallelpc"]["verdict"] == "not run"
    factor = {"peer": "bnlearn", "reference": "discrete-serial", "dataset": "link-20000", "machine": "CPU"}
    chained = table(records, [{**factor, "peer_cpu_s": "6", "reference_cpu_s": "4", "differing_edges": "0"}])
    assert judged(chained["gpupc-over-cpu"]) == (45, 45, "chained")
    assert chained["gpupc-over-cpu"]["measured_on"].startswith(
        "link-20000: 1.50 (bnlearn over discrete-serial, one core of CPU) × 30.0 (gpuPC over discrete-parallel)"
    )
    assert judged(chained["up-to-6.5"]) == (10, 10, "holds")
