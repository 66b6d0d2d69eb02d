"""Out-of-Core's claims beside made-up records: levels, sizes, the paper's blocks, and what nothing counts."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.papers.out_of_core_claims import ooc_claims

REPORTED = read_csv(Path(__file__).parents[3] / "results" / "reported" / "ooc_claims.csv")
UM, BLOCK = "out-of-core-um", "out-of-core-block"


def record(name, p, method, levels, *, params=None, alpha=0.9999999999999999, left=1.0, device=None):
    cpu, pairs = method.startswith("stable"), p * (p - 1) // 2
    return {
        **{"setting": f"{method}-{params}", "method": method, "family": "gaussian", "reference": cpu},
        **{"backend": "cpu" if cpu else "cuda", "params": params or {}, "dataset": {"name": name}},
        "problem": {"alpha": alpha, "n_variables": p, "n_samples": 7, "max_level": 1},
        "status": "ok" if levels else "oom",
        "time_s": {
            "cold": 1.0,
            "compile": None,
            "warm": [sum(levels)] if levels else [],
            "levels": [levels] * bool(levels),
        },
        "peak_bytes": {"process": 1, "device": device},
        "result": {"tests_per_level": [pairs, pairs * (p - 2)], "edges_per_level": [int(left * pairs)] * 2}
        if levels
        else None,
    }


def connected(p, um, block, blocks=None, device=None):
    """Level times of unified memory, block-based with a layout of its own, and with the paper's."""
    name = f"connected-{p}"
    runs = [record(name, p, UM, um, device=device), record(name, p, BLOCK, block, params={"layout": "auto"})]
    return runs + ([record(name, p, BLOCK, blocks, params={"layout": "blocks"})] if blocks else [])


@pytest.fixture
def table(load):
    """The CSV rows of the table of some records, by claim."""
    return lambda records: {row["id"]: row for row in ooc_claims(load(records), REPORTED).plain}


def judged(row):
    return row["ours_low"], row["ours_high"], row["verdict"]


def test_without_records_nothing_is_run(table):
    rows = table([])
    assert len(rows) == len(REPORTED)
    assert {row["verdict"] for row in rows.values()} == {"not run"}
    assert all(row["missing"] for row in rows.values())
    assert rows["page-faults-35000"]["missing"] == "all (page faults are not counted)"


def test_beyond_the_device_unified_memory_is_modelled_unless_it_was_run(load):
    """Everything fits, so that pages are only new: 16 GB of them take a second."""
    pairs = {"level_one": "pairs", "device_mb": 10**6}
    name, rates = "connected-40000", {"first_touch_gb_s": 16.0, "to_device_gb_s": 1.0, "to_host_gb_s": 1.0}
    refused = record(name, 40_000, UM, [], params=pairs)
    blocks = record(name, 40_000, BLOCK, [1.0, 2.0], params={"layout": "blocks"})
    panels = record(name, 40_000, BLOCK, [1.0, 0.5], params={"layout": "auto"})

    def row(*records, rates=rates):
        found = ooc_claims(load(records), REPORTED, rates)
        return next(each for each in found.plain if each["id"] == "level-1-40000"), found

    modelled, found = row(refused, blocks, panels)
    assert modelled["verdict"] == "modelled"
    # rows and members of 4 p^2 bytes and bits of p^2 / 8, and the kernels as fast as those of panels
    assert modelled["ours_low"] == pytest.approx((0.5 + 8.125 * 40_000**2 / 16e9) / 2, rel=0.02)
    assert any(note.startswith("Modelled: ") and "Where all fits" not in note for note in found.notes)
    assert row(refused, blocks, panels, rates=None)[0]["verdict"] == "not run"
    run = record(name, 40_000, UM, [1.0, 40.0], params=pairs)
    measured, found = row(run, blocks, panels)
    assert (measured["ours_low"], measured["verdict"]) == (20, "holds")
    assert any("Where all fits, on connected-40000: level 0 0.9" in note for note in found.notes)


def test_levels_over_the_number_of_variables(table):
    records = [*connected(5000, [1.0, 9.0], [1.0, 3.0], [16.0, 8.0], device=600_000_000)]
    records += [*connected(40_000, [2.0, 520.0], [1.0, 4.0], [24.0, 40.0])]
    records += [*connected(55_000, [5.0, 900.0], [20.0, 30.0])]
    rows = table(records)
    assert judged(rows["level-0-up-to-15"]) == (16, 16, "holds")
    assert judged(rows["level-0-55000"]) == (4, 4, "holds")
    assert judged(rows["level-0-gap"]) == (0.25, 0.25, "holds")
    assert judged(rows["level-1-similar"]) == (1.125, 1.125, "holds")
    assert judged(rows["level-1-40000"]) == (13, 13, "holds")
    assert judged(rows["level-1-55000"]) == (30, 30, "less")
    assert judged(rows["memory-level-1-5000"]) == (0.6, 0.6, "holds")
    assert rows["memory-level-1-55000"]["verdict"] == "not run"
    assert judged(rows["tests-level-0-5000"]) == (12_497_500, 12_497_500, "holds")
    assert rows["tests-level-1-55000"]["verdict"] == "holds"
    assert judged(rows["more-tests"])[2] == "holds"
    assert judged(rows["less-time"]) == (0.15, 0.15, "holds")  # panels at both sizes: no blocks at 55,000


def test_wide_data(table):
    wide = {"alpha": 0.01, "left": 2 / 3}
    records = [record("tcga-like", 1000, "stable-parallel", [100.0, 2260.0], **wide)]
    records += [
        record("tcga-like", 1000, UM, [1.0, 949.0], **wide),
        record("tcga-like", 1000, BLOCK, [1.0, 9.0], **wide),
    ]
    rows = table(records)
    assert judged(rows["over-um-95"]) == (95, 95, "holds")
    assert judged(rows["over-cpu-236"]) == (236, 236, "holds")
    assert judged(rows["um-seconds"]) == (950, 950, "not comparable")
    assert rows["third-removed"]["ours_low"] == pytest.approx(33.3, abs=0.1)
    assert rows["level-1-similar"]["verdict"] == "not run"


def test_a_method_that_ran_out_of_memory(table):
    rows = table(connected(40_000, None, [1.0, 4.0]))
    assert rows["level-1-40000"]["missing"] == f"connected-40000 ({UM}-None oom)"
