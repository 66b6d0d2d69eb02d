"""What recorded runs do not show: bounds from time limits, exhausted memory, unverified answers, chained speedups."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import cells
from gpupc_impl.reporting.papers import cmiknn, cupc, gpupc, out_of_core

REPORTED = Path(__file__).parents[3] / "results" / "reported"
LATE = {"status": "timeout", "result": None}
OOM = {"status": "oom", "result": None, "why": "device memory exhausted"}


@pytest.fixture
def claims(load):
    """``claims(records, statuses, ...)``: the CSV rows of cuPC's claims, by id."""

    def rows(records, statuses=None, shared=(), factors=()):
        table = cupc.cupc_claims(load(records, statuses), shared, factors, read_csv(REPORTED / "cupc_claims.csv"))
        return {row["id"]: row for row in table.plain}

    return rows


@pytest.mark.parametrize(
    ("slow", "fast", "text"),
    [
        ((8.0, {}), (2.0, {}), "4.00×"),
        ((None, LATE), (2.0, {}), "> 30.0× †"),
        ((8.0, {}), (None, LATE), "< 0.133× †"),
        ((None, LATE), (None, LATE), "–"),
        ((8.0, {}), (None, OOM), "oom"),
    ],
)
def test_a_limit_that_was_hit_is_a_bound(load, record, slow, fast, text):
    pair = [record("stable-serial", slow[0], **slow[1]), record("cupc-s", fast[0], **fast[1])]
    assert str(cells.speedup(*load(pair))) == text


def test_exhausted_memory_of_the_slow_method_alone_is_infinity(load, record):
    slow, fast = load([record("disc-cupc", None, **OOM), record("gpupc", 1.0)])
    assert str(gpupc.speedup_or_infinity(slow, fast)) == "∞"
    assert str(gpupc.speedup_or_infinity(fast, slow)) == "oom"


def test_the_median_of_speedups_is_a_bound_if_some_are_and_missing_if_one_is():
    one, bound, other, none = (
        cells.Speedup(4.0),
        cells.Speedup(9.0, ">"),
        cells.Speedup(1.0, "<"),
        cells.Speedup(None),
    )
    assert str(cmiknn.median_speedup([one, bound])) == "> 6.50× †"
    assert cmiknn.median_speedup([bound, other]).value is None
    assert cmiknn.median_speedup([one, none]).value is None


def test_means_of_table_2_are_over_the_data_sets_that_all_finished_and_are_verified(load, record):
    records = [
        record(method, seconds * scale, dataset=name)
        for name, scale in (("nci-60", 1), ("mcc", 2))
        for method, seconds in (("stable-serial", 8.0), ("cupc-e", 2.0), ("cupc-s", 1.0))
    ]
    records.append(record("cupc-s", 0.1, dataset="wide"))
    reported = read_csv(REPORTED / "cupc_table2.csv")

    def mean(statuses):
        table = cupc.cupc_table2(load(records, statuses), reported)
        row = next(row for row in table.rows if row[0] == "T3/T5" and row[1].startswith("ours"))
        return dict(zip(table.header, row, strict=True))

    assert mean({})["geometric mean (data sets)"] == "8.00× (2)"
    unverified = mean({("mcc", "cupc-s"): "unexplained"})
    assert (unverified["mcc"], unverified["geometric mean (data sets)"]) == ("8.00× ✗", "8.00× (1)")


def test_the_paper_s_rule_for_separating_sets_counts_where_it_was_measured(claims, record):
    ours = [record("cupc-e", 2.0, setting="a"), record("cupc-e", 1.0, setting="b", separating_sets="first-come")]
    reference = record("stable-serial", 6.0)
    assert claims([*ours, reference])["cupc-e-mean"]["ours_low"] == pytest.approx(6)
    assert claims([ours[0], reference])["cupc-e-mean"]["ours_low"] == pytest.approx(3)


def test_a_skeleton_that_is_not_verified_counts_for_nothing(claims, record):
    records = [record("cupc-e", 1.0, [1.0]), record("baseline-1", 2.0, [2.0])]
    row = claims(records, {("nci-60", "cupc-e"): "unexplained"})["cupc-e-over-baseline-1"]
    assert (row["ours_low"], row["verdict"]) == (None, "cannot be judged")
    assert row["missing"].startswith("nci-60 (cupc-e not verified)")


def test_ratios_of_fig_5_are_those_of_the_levels_and_of_table_2_those_of_whole_calls(claims, record):
    records = [record("cupc-e", 1.0, [0.2, 0.2]), record("baseline-1", 1.2, [0.4, 0.4]), record("stable-serial", 5.0)]
    records.append(record("baseline-2", 2.0, [0.0, 0.0]))
    rows = claims(records)
    assert rows["cupc-e-over-baseline-1"]["ours_low"] == pytest.approx(2)
    assert rows["cupc-e-mean"]["ours_low"] == pytest.approx(5)
    assert rows["level-1-first-five"]["ours_low"] is None  # cuPC-S is missing.
    assert "baseline-2 does not time its levels" in rows["cupc-e-over-baseline-2"]["missing"]


def test_configurations_are_compared_with_the_selected_one_of_the_grid(claims, record):
    grid = [
        record("cupc-e", seconds, setting=f"cupc-e-{beta}-{gamma}", params={"beta": beta, "gamma": gamma})
        for beta, gamma, seconds in ((2, 128, 2.0), (2, 16, 1.2), (2, 32, 1.3))
    ]
    rows = claims(grid)
    assert (rows["fig7-range"]["ours_low"], rows["fig7-range"]["ours_high"]) == pytest.approx((1.3 / 2, 1.3 / 1.2))
    assert rows["cupc-e-2-128"]["ours_low"] == pytest.approx(-40)
    assert rows["fig8-range"]["ours_low"] is None


def test_a_series_varies_one_thing_and_takes_the_median_of_the_graphs(claims, record):
    def graph(n, d, seed, seconds, tolerance=0):
        source = f"generated: cuPC section 5.6, p={n}, m=100, density={d}, seed={seed}"
        facts = {"dataset": {"name": f"dag-{n}-{d}-{seed}-{tolerance}", "source": source}}
        return record("cupc-e", seconds, problem={"residual_tolerance": tolerance}, **facts)

    runs = [graph(100, 0.1, 0, 1.0), graph(100, 0.1, 1, 3.0), graph(200, 0.1, 0, 5.0), graph(50, 0.7, 0, 9.0)]
    row = claims([*runs, graph(400, 0.1, 0, 1.0, tolerance=1e-10)])["runtime-over-n"]  # That is another problem.
    assert row["ours_low"] == pytest.approx(2.5)
    assert row["measured_on"] == "cuPC-E, n = 100, 200 (m = 100, d = 0.1)"


def test_a_claim_over_pcalg_is_a_chain_of_two_factors_where_the_skeletons_are_the_same(claims, record):
    records = [record("stable-serial", 9.0), record("cupc-e", 3.0)]
    factor = {"peer": "pcalg", "reference": "stable-serial", "dataset": "nci-60", "machine": "a CPU"}
    factor |= {"peer_cpu_s": "40", "reference_cpu_s": "0.2", "differing_edges": "0"}
    row = claims(records, factors=[factor])["cupc-e-mean"]
    assert row["ours_low"] == pytest.approx(200 * 3)
    assert "200 (pcalg over stable-serial, one core of a CPU) × 3.00 (cuPC-E over stable-serial, " in row["measured_on"]
    assert claims(records, factors=[factor | {"differing_edges": "1"}])["cupc-e-mean"]["ours_low"] == pytest.approx(3)


def test_the_time_that_is_hidden_behind_kernels():
    def step(name, start, end):
        return {"step": name, "start_s": start, "end_s": end}

    rows = [step("kernel", 0, 4), step("kernel", 3, 6), step("transfer", 5, 7), step("merge", 6.5, 9)]
    assert out_of_core.hidden_share(rows) == pytest.approx(1 / 4)
    assert out_of_core.hidden_share(rows[:2]) is None
