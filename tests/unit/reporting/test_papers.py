"""What recorded runs do not show: bounds from time limits, exhausted memory, unverified answers, chained speedups."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.reporting import cells, summary
from gpupc_impl.reporting.papers import cmiknn, cupc, gpupc, out_of_core

REPORTED = Path(__file__).parents[3] / "results" / "reported"
LATE = {"status": "timeout", "result": None}
OOM = {"status": "oom", "result": None, "why": "device memory exhausted"}


@pytest.fixture
def claims(load):
    """``claims(records, statuses, ...)``: the CSV rows of cuPC's claims, by id."""

    def rows(records, statuses=None, shared=(), factors=()):
        table = cupc.cupc_claims(load(records, statuses), shared, factors, read_csv(REPORTED / "cupc_claims.csv"), [])
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
    one, none = cells.Speedup(4.0), cells.Speedup(None)
    bound, other = cells.Speedup(9.0, ">"), cells.Speedup(1.0, "<")
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


def test_a_skeleton_that_is_not_verified_counts_for_nothing(claims, record):
    records = [record("cupc-e", 1.0, [1.0]), record("baseline-1", 2.0, [2.0])]
    row = claims(records, {("nci-60", "cupc-e"): "unexplained"})["cupc-e-over-baseline-1"]
    assert (row["ours_low"], row["verdict"]) == (None, "cannot be judged")
    assert row["missing"].startswith("nci-60 (cupc-e not verified)")


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
    factor |= {"peer_cpu_s": "40", "reference_cpu_s": "0.2", "edges": "591", "differing_edges": "0"}
    row = claims(records, factors=[factor])["cupc-e-nci-60"]
    assert row["ours_low"] == pytest.approx(200 * 3)
    assert "200 (pcalg over stable-serial, one core of a CPU) × 3.00 (cuPC-E over stable-serial, " in row["measured_on"]
    assert claims(records, factors=[factor | {"differing_edges": "1"}])["cupc-e-nci-60"]["ours_low"] == pytest.approx(3)
    row = claims(records, factors=[factor | {"edges": "", "differing_edges": ""}])["cupc-e-nci-60"]
    assert (row["ours_low"], row["ours_high_is_bound"]) == (pytest.approx(200 * 3), True)
    assert "more than 200 (pcalg over" in row["measured_on"]


def test_a_speedup_over_tigramite_grows_as_its_time_on_another_machine_does(load, record):
    runs, factors = [], []
    for p, ours, theirs, found in (10, 2.0, "10", "14"), (30, 30.0, "300", ""):
        facts = {"n_variables": p, "k_cmi": 7, "n_samples": 1000}
        runs.append(record("gpucmiknn-parallel", ours, dataset=f"p{p}", problem=facts, params={"selection": "auto"}))
        factors.append({"peer": "tigramite", "dataset": f"p{p}", "peer_cpu_s": theirs, "edges": found})
    table = cmiknn.cmiknn_claims(load(runs), [], [], factors, read_csv(REPORTED / "cmiknn_claims.csv"), [])
    assert {r["id"]: (r["ours_low"], r["ours_high_is_bound"]) for r in table.plain}["parallel-over-N"] == (2, True)


def test_the_time_that_is_hidden_behind_kernels():
    def step(name, start, end):
        return {"step": name, "start_s": start, "end_s": end}

    rows = [step("kernel", 0, 4), step("kernel", 3, 6), step("transfer", 5, 7), step("merge", 6.5, 9)]
    assert out_of_core.hidden_share(pandas.DataFrame(rows)) == pytest.approx(1 / 4)
    assert out_of_core.hidden_share(pandas.DataFrame(rows[:2])) is None


CUPC_S = {"theta": 64, "delta": 2}


def genes(record):
    return [
        record("stable-serial", 9.0),
        record("cupc-authors", 0.040, [0.0, 0.0]),
        record("gpucsl", 0.060, [0.010, 0.020]),
        record("cupc-s", 0.030, [0.004, 0.004], params=CUPC_S),
        record("cupc-s", 0.020, [0.002, 0.004], setting="first", params=CUPC_S, separating_sets="first-come"),
        record("cupc-s", 0.007, [0.001], setting="cupc-s-32-1", params={"theta": 32, "delta": 1}),
        record("pair-scan", 0.005, [0.001, 0.001]),
        record("cupc-authors", 0.090, dataset="mcc"),
        record("cupc-s", 0.010, [0.005], dataset="mcc", params=CUPC_S),
    ]


def test_a_program_is_compared_with_the_same_algorithm_and_rule_and_with_the_fastest(load, record):
    every = summary.compare(load(genes(record)))
    compared = {(each.theirs.setting, each.theirs.dataset, each.kind): each for each in every}
    like = compared["cupc-authors", "nci-60", "like for like"]
    assert (like.ours.setting, cells.speedup(like.theirs, like.ours).value) == ("first", pytest.approx(2))
    assert compared["cupc-authors", "mcc", "like for like"].ours.setting == "cupc-s"
    assert compared["cupc-authors", "nci-60", "fastest"].ours.setting == "pair-scan"
    found = summary.compare(load(genes(record), {("nci-60", "pair-scan"): "unexplained"}))
    fastest = {each.ours.setting for each in found if (each.kind, each.theirs.dataset) == ("fastest", "nci-60")}
    assert fastest == {"cupc-s-32-1"}


def test_means_are_of_what_is_verified(load, record):
    def mean(statuses):
        table = summary.peers(load(genes(record), statuses))
        of_all = (row for row in table.plain if row["dataset"] == "geometric mean")
        return next(row for row in of_all if (row["program"], row["kind"]) == ("cupc-authors", "like for like"))

    assert (mean({})["datasets"], mean({})["whole_speedup"]) == (2, pytest.approx((2 * 9) ** 0.5))
    assert mean({})["levels_speedup"] is None  # The program times no levels.
    assert mean({("mcc", "cupc-authors"): "unexplained"})["whole_speedup"] == pytest.approx(2)


def test_pags_are_drawn_and_compared_with_the_true_one(load, record):
    """A hidden cause of two variables has the PAG 0 o-o 1, which one call found; the other reached its limit."""
    sweeps = {"fci": {"small": 2.0, "large": 3.0}}
    problem = {"n_variables": 3, "edges_with_hidden": [[3, 0], [3, 1]]}
    adjacency = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    sets = SeparatingSets.from_levels(adjacency, [])
    marks = {"marks": [[0, 1, "circle", None], [1, 0, "circle", None]]}
    right = Skeleton(adjacency, sets, ("a", "b", "c"), (3,), (1,), (0.0,), 1, "", facts=marks)
    late = record("fci", None, dataset="large", **LATE)
    runs = load([record("fci", 1.0, dataset="small"), late], skeletons={("small", "fci"): right})
    table = summary.latent_distance(runs, [{"name": "small", **problem}], sweeps)
    assert [row[4:] for row in table.rows] == [["0", "0", "0"], ["–", "–", "–"]]
    drawn = summary.times_over_variables(runs, sweeps)
    assert [(row["variables"], row["status"]) for row in drawn.rows] == [(2.0, "ok"), (3.0, "timeout")]
    plt.close(drawn.figure)
    assert summary.time_series_times(runs, sweeps).rows == [["FCI", "small", "1.00"], ["FCI", "large", "> 60.0 †"]]
