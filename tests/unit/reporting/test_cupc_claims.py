"""cuPC's claims beside made-up records: how the numbers come about, and what is missing."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import runs
from gpupc_impl.reporting.papers.cupc_claims import Evidence, cupc_claims
from gpupc_impl.reporting.sources import Source

ROOT = Path(__file__).parents[3]
REPORTED = read_csv(ROOT / "results" / "reported" / "cupc_claims.csv")
PARAMS = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}


def record(dataset, method, warm, *, setting=None, params=None, status="ok", source=None, levels=None, problem=None):
    cpu = method.startswith("stable")
    return {
        "setting": setting or method,
        "method": method,
        "family": "gaussian",
        "reference": cpu,
        "backend": "cpu" if cpu else "host",
        "params": params or PARAMS.get(method, {}),
        "separating_sets": "canonical",
        "dataset": {"name": dataset, "source": source},
        "problem": problem,
        "status": status,
        "why": None,
        "limits": {"time_s": 60.0},
        "time_s": {"cold": None, "warm": warm, "levels": levels or [[t / 4, t / 2, t / 4] for t in warm]},
        "result": {"edges": 5, "levels_run": 3, "tests_per_level": [9, 9, 9]} if status == "ok" else None,
        "environment": {"git_commit": "0123456789", "git_dirty": False, "cpu": "CPU", "threads": 2, "device": None},
    }


def generated(n, m, d, seed, e, s, tolerance=0):
    """One graph of section 5.6, with the times of cuPC-E and cuPC-S."""
    name, source = f"dag-{n}-{m}-{d}-{seed}", f"generated: cuPC section 5.6, p={n}, m={m}, density={d}, seed={seed}"
    facts = {"source": source, "problem": {"residual_tolerance": tolerance}}
    return [record(name, "cupc-e", [e], **facts), record(name, "cupc-s", [s], **facts)]


@pytest.fixture
def table(load):
    """The CSV rows of the table of some records, by claim."""

    def make(records, shared=(), factors=()):
        found = cupc_claims(load(records), shared, factors, REPORTED)
        return {row["id"]: row for row in found.plain}

    return make


def test_the_paper_s_rule_for_separating_sets_counts_where_it_was_measured(load):
    published = [record("nci-60", "cupc-e", [1.0]) | {"setting": "a", "separating_sets": "first-come"}]
    ours = [record("nci-60", "cupc-e", [2.0]), record("nci-60", "cupc-s", [3.0])]
    ours.append(record("nci-60", "cupc-e", [4.0], setting="b", params={"beta": 4, "gamma": 32}))
    evidence = Evidence(load([*ours, *published]), "host", [])
    assert evidence.run("nci-60", "cupc-e").median == 1
    assert evidence.run("nci-60", "cupc-s").median == 3
    assert [run.median for run in evidence.of("nci-60", "cupc-e")] == [4, 1]


def test_without_records_nothing_is_measured(table):
    rows = table([])
    assert len(rows) == len(REPORTED)
    assert {row["verdict"] for row in rows.values()} == {"not run"}
    assert all(row["missing"] for row in rows.values())


def test_ratios_and_shares(table):
    records = [record("nci-60", "stable-serial", [525.0])]
    records += [record("nci-60", "cupc-e", [1.0]), record("nci-60", "cupc-s", [0.5])]
    records += [record("nci-60", "baseline-1", [3.94]), record("nci-60", "baseline-2", [1.7])]
    records += [record("mcc", "stable-serial", [2100.0]), record("mcc", "cupc-e", [4.0])]
    records += [record("mcc", "cupc-s", [], status="timeout"), record("mcc", "baseline-1", [2.0])]
    rows = table(records)
    assert rows["cupc-e-mean"]["ours_low"] == pytest.approx(525)
    assert (rows["cupc-e-mean"]["verdict"], rows["cupc-e-mean"]["measured_on"]) == ("holds", "mean of nci-60, mcc")
    assert rows["cupc-s-mean"]["ours_low"] == pytest.approx(1050)
    assert "mcc (cupc-s timeout)" in rows["cupc-s-mean"]["missing"]
    assert "dream5-insilico (not in this run)" in rows["cupc-s-mean"]["missing"]
    over = rows["cupc-e-over-baseline-1"]
    assert (over["ours_low"], over["ours_high"], over["verdict"]) == (0.5, 3.94, "less")
    assert rows["cupc-e-over-baseline-2"]["verdict"] == "less"  # 1.7 is below 1.8
    assert rows["cupc-s-over-cupc-e"]["verdict"] == "holds"
    assert rows["level-1-first-five"]["ours_low"] == 50
    assert rows["cupc-e-seconds"]["verdict"] == "not comparable"
    assert rows["same-skeleton"]["verdict"] == "holds"
    assert rows["stable-seconds"]["verdict"] == "not run"


def test_fig_5_and_the_shares_of_levels_are_judged_by_the_levels_and_table_2_by_whole_calls(table):
    records = [record("nci-60", "stable-serial", [525.0])]
    records += [record("nci-60", "cupc-e", [1.0], levels=[[0.1, 0.2, 0.1]])]
    records += [record("nci-60", "cupc-s", [0.5], levels=[[0.1, 0.6, 0.1]])]
    records += [record("nci-60", "baseline-1", [1.2], levels=[[0.1, 0.6, 0.1]])]
    records += [record("nci-60", "baseline-2", [2.0], levels=[[0.0, 0.0, 0.0]])]  # does not time its levels
    rows = table(records)
    assert rows["cupc-e-mean"]["ours_low"] == pytest.approx(525)
    assert rows["cupc-e-over-baseline-1"]["ours_low"] == pytest.approx(2)  # of whole calls: 1.2
    assert rows["cupc-e-over-baseline-1"]["verdict"] == "holds"
    assert rows["cupc-s-over-cupc-e"]["ours_low"] == pytest.approx(0.5)  # of whole calls: 2
    assert rows["cupc-s-over-cupc-e"]["verdict"] == "less"
    assert "nci-60 (baseline-2 does not time its levels)" in rows["cupc-e-over-baseline-2"]["missing"]
    share = rows["level-1-first-five"]
    assert (share["ours_low"], share["ours_high"]) == pytest.approx((50, 75))
    assert share["verdict"] == "holds"


def test_cupc_s_and_cupc_e_are_compared_with_algorithm_7_for_every_set_where_that_was_measured(table):
    def pseudo(dataset, method, seconds):
        params = {**PARAMS[method], "inverse": "pseudo"}
        return record(dataset, method, [seconds], setting=f"{method}-pseudo", params=params)

    records = [record(name, method, [1.0]) for name in ("nci-60", "mcc") for method in PARAMS]
    records += [pseudo("nci-60", "cupc-e", 9.0), pseudo("nci-60", "cupc-s", 3.0), pseudo("mcc", "cupc-s", 9.0)]
    rows = table(records)
    row = rows["cupc-s-over-cupc-e"]
    assert row["measured_on"] == "nci-60 (Algorithm 7 for every set); mcc"
    assert (row["ours_low"], row["ours_high"], row["verdict"]) == (1, 3, "holds")
    assert rows["cupc-e-seconds"]["ours_high"] == 1


def test_a_skeleton_that_is_not_verified_counts_for_nothing(load):
    found = load([record("nci-60", "cupc-e", [1.0])], {("nci-60", "cupc-e"): "unexplained"})
    found = cupc_claims(found, [], [], REPORTED)
    row = next(row for row in found.plain if row["id"] == "cupc-e-seconds")
    assert (row["verdict"], row["missing"].split("; ")[0]) == ("not run", "nci-60 (cupc-e not verified)")


def test_an_experiment_verifies_its_own_settings(tmp_path, save):
    paths = []
    for setting in ("cupc-s", "cupc-s-32-1"):
        paths.append(tmp_path / f"{setting}.json")
        save(record("mcc", "cupc-s", [1.0], setting=setting), paths[-1])
        verification = tmp_path / f"{setting}.csv"
        verification.write_text(f"dataset,setting,status,differing_edges\nmcc,{setting},equal,0\n")
    tables = [tmp_path / "cupc-s.csv", tmp_path / "cupc-s-32-1.csv"]
    found = runs.load(Source(None, "host", {"records": [*paths, paths[0]], "verification": tables}))
    assert [run.setting for run in found] == ["cupc-s", "cupc-s-32-1"]


def test_configurations_are_found_by_method_and_parameters(table):
    def cell(beta, gamma, time):
        setting = f"cupc-e-{beta}-{gamma}"
        return record("nci-60", "cupc-e", [time], setting=setting, params={"beta": beta, "gamma": gamma})

    alone = record("nci-60", "cupc-e", [1.4]) | {"separating_sets": "first-come"}  # not of the grid
    rows = table([alone, cell(2, 128, 2.0), cell(2, 16, 1.2), cell(2, 32, 1.3)])
    assert rows["fig7-range"]["measured_on"] == "nci-60 (3 configurations)"
    assert rows["fig7-range"]["ours_low"] == pytest.approx(1.3 / 2)
    assert rows["fig7-range"]["verdict"] == "holds"
    assert rows["cupc-e-2-128"]["ours_low"] == pytest.approx(-40)
    assert rows["cupc-e-2-128"]["verdict"] == "holds"
    assert rows["fig8-range"]["verdict"] == "not run"


def test_series_vary_one_thing_and_take_the_median_of_the_graphs(table):
    records = [*generated(100, 1000, 0.1, 0, 1.0, 0.5), *generated(100, 1000, 0.1, 1, 3.0, 0.5)]
    records += [*generated(200, 1000, 0.1, 0, 5.0, 2.0), *generated(50, 500, 0.7, 0, 9.0, 1.0)]
    records += [*generated(100, 1000, 0.2, 0, 10.0, 2.0), *generated(100, 1000, 0.3, 0, 11.0, 3.0)]
    records += [*generated(100, 1000, 0.4, 0, 12.0, 4.0)]
    records += generated(100, 1000, 0.02, 0, 99.0, 99.0, tolerance=1e-10)  # another problem, so no point of the series
    rows = table(records)
    assert rows["runtime-over-n"]["ours_low"] == pytest.approx(2.5)
    assert "cuPC-E, n = 100, 200 (m = 1000, d = 0.1)" in rows["runtime-over-n"]["measured_on"]
    assert rows["linear-in-d"]["ours_low"] == pytest.approx(1)
    assert rows["fast-at-d-0.1"]["ours_high"] == pytest.approx(0.25)
    assert rows["linear-in-m"]["missing"] == "cuPC-E, cuPC-S (nothing that differs in m only)"
    assert rows["cupc-s-always-faster"]["measured_on"] == "7 generated sets"
    assert rows["cupc-e-n-1000"]["verdict"] == "not run"


def test_a_reference_that_hit_its_limit_is_a_lower_bound(table):
    graph = generated(1000, 10000, 0.1, 0, 0.005, 0.002)
    name, source = graph[0]["dataset"].values()
    problem = {"residual_tolerance": 0}
    slow = record(name, "stable-serial", [], status="timeout", source=source, problem=problem)
    rows = table([*graph, slow])
    assert rows["cupc-e-over-stable-fast"]["ours_low"] == pytest.approx(12_000)
    assert rows["cupc-e-over-stable-fast"]["verdict"] == "holds"
    rows = table([*generated(1000, 10000, 0.1, 0, 10.0, 2.0), slow])
    assert rows["cupc-e-over-stable-fast"]["verdict"] == "not run"
    assert "more than 6.00×" in rows["cupc-e-over-stable-fast"]["missing"]


def test_shared_sets(table):
    shared = [
        {"dataset": "dream5-insilico", "kind": "file", "setting": "cupc-s", "rows": str(rows), "sets": str(sets)}
        for rows, sets in ((1, 7), (2, 96), (50, 4))
    ]
    rows = table([record("dream5-insilico", "cupc-s", [1.0])], shared)
    assert (rows["shared-by-40-rows"]["ours_low"], rows["shared-by-40-rows"]["verdict"]) == (96, "holds")


def test_the_stand_in_is_judged_where_the_real_set_did_not_run(table):
    stand_in = [record("dream5-like", "stable-serial", [10178.0]), record("dream5-like", "cupc-s", [1.0])]
    for absent in ([], [record("dream5-insilico", "cupc-s", [], status="skipped")]):
        row = table(stand_in + absent)["cupc-s-dream5"]
        assert (row["verdict"], row["measured_on"]) == ("holds", "dream5-like (stand-in for dream5-insilico)")
    real = [record("dream5-insilico", "stable-serial", [3.0]), record("dream5-insilico", "cupc-s", [1.0])]
    row = table(stand_in + real)["cupc-s-dream5"]
    assert (row["ours_low"], row["measured_on"]) == (3, "dream5-insilico")


def factor(dataset, peer_s, reference_s, differing=0, peer="pcalg", reference="stable-serial"):
    """A line of cpu_factors.csv."""
    return {
        **{"peer": peer, "reference": reference, "dataset": dataset, "machine": "CPU"},
        **{"peer_cpu_s": str(peer_s), "reference_cpu_s": str(reference_s), "differing_edges": str(differing)},
    }


def test_a_claim_over_pcalg_is_a_chain_of_two_factors(table):
    records = [record("nci-60", "stable-serial", [9.0]), record("nci-60", "cupc-e", [3.0])]
    records += [record("mcc", "stable-serial", [8.0]), record("mcc", "cupc-e", [2.0])]
    row = table(records, factors=[factor("nci-60", 40.0, 0.2), factor("mcc", 5.0, 1.0, differing=1)])["cupc-e-mean"]
    assert (row["verdict"], row["ours_low"]) == ("chained", pytest.approx(200 * 3))
    assert row["measured_on"] == (
        "nci-60: 200 (pcalg over stable-serial, one core of CPU) × 3.00 (cuPC-E over stable-serial); "
        "the product agrees with the paper"
    )
    assert row["missing"].startswith("mcc, ")  # where its edges differ, its work does too
    assert row["missing"].endswith("(pcalg not measured)")
    both = [factor("nci-60", 40.0, 0.2), factor("mcc", 50.0, 1.0)]
    assert table(records, factors=both)["cupc-e-mean"]["ours_low"] == pytest.approx((600 * 200) ** 0.5)
    unchained = table(records)["cupc-e-mean"]
    assert (unchained["verdict"], unchained["ours_low"]) == ("less", pytest.approx(12**0.5))
    assert table(records, factors=both)["cupc-s-mean"]["verdict"] == "not run"
