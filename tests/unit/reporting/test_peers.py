"""Ours over the authors' programs: who is compared with whom, and what the means are of."""

import pytest

from gpupc_impl.reporting import summary
from gpupc_impl.reporting.cells import speedup

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
    compared = {
        (each.theirs.setting, each.theirs.dataset, each.kind): each for each in summary.compare(load(genes(record)))
    }
    like = compared["cupc-authors", "nci-60", "like for like"]
    assert (like.ours.setting, speedup(like.theirs, like.ours).value) == ("first", pytest.approx(2))
    assert compared["cupc-authors", "mcc", "like for like"].ours.setting == "cupc-s"
    assert compared["cupc-authors", "nci-60", "fastest"].ours.setting == "pair-scan"
    found = summary.compare(load(genes(record), {("nci-60", "pair-scan"): "unexplained"}))
    assert {each.ours.setting for each in found if each.kind == "fastest" and each.theirs.dataset == "nci-60"} == {
        "cupc-s-32-1"
    }


def test_means_are_of_what_is_verified(load, record):
    def mean(statuses):
        table = summary.peers(load(genes(record), statuses))
        of_all = (row for row in table.plain if row["dataset"] == "geometric mean")
        return next(row for row in of_all if (row["program"], row["kind"]) == ("cupc-authors", "like for like"))

    assert (mean({})["datasets"], mean({})["whole_speedup"]) == (2, pytest.approx((2 * 9) ** 0.5))
    assert mean({})["levels_speedup"] is None  # The program times no levels.
    assert mean({("mcc", "cupc-authors"): "unexplained"})["whole_speedup"] == pytest.approx(2)


def test_gpu_cmiknn_is_compared_search_by_search(load, record):
    records = [record("gpucmiknn-authors", 9.0, setting="one", params={"search": "single"})]
    records += [
        record(method, 1.0, setting=f"{method}-{selection}", params={"selection": selection})
        for method in ("gpucmiknn-parallel", "gpucmiknn-single")
        for selection in ("counting", "insertion")
    ]
    records.append(record("gpucmiknn-authors", 3.0, params={"search": "parallel"}))
    like = {each.theirs.setting: each.ours.setting for each in summary.compare(load(records)) if each.kind != "fastest"}
    assert like["gpucmiknn-authors"] == "gpucmiknn-parallel-insertion"
    assert like["one"].startswith("gpucmiknn-single")


def test_what_is_missing_says_why(load, record):
    late = {"status": "skipped", "why": "no library", "result": None}
    table = summary.peers(load([record("gpucsl", None, **late), record("cupc-s", 0.1)]))
    assert table.rows == []
    assert summary.MISSING in table.notes
    assert "nci-60 not run: GPUCSL: no library" in table.notes
