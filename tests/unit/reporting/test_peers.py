"""Ours over the authors' programs, from made-up records: who is compared with whom, levels, means, what is left out."""

import pytest

from gpupc_impl.reporting import peers

CUPC_S = {"theta": 64, "delta": 2}


def record(dataset, method, seconds, levels=None, *, setting=None, family="gaussian", params=None, edges=5, **more):
    problem = {
        "gaussian": {"df_convention": "pcalg"},
        "discrete": {"test": "chi-square", "df_rule": "full"},
        "nonlinear": {"k_cmi": 7, "permutations": 100, "transform": "ranks"},
    }[family]
    ok = seconds is not None
    return {
        **{"setting": setting or method, "method": method, "family": family, "reference": method.startswith("stable")},
        **{"backend": "cpu" if method.startswith("stable") else "cuda", "params": params or {}},
        **{"dataset": {"name": dataset}, "problem": problem, "status": "ok" if ok else "skipped"},
        "why": None if ok else "no library",
        "time_s": {
            "cold": None,
            "compile": None,
            "warm": [seconds] if ok else [],
            "levels": [levels] if levels else [],
        },
        "result": {"edges": edges} if ok else None,
        **more,
    }


GENES = [
    record("nci-60", "stable-serial", 9.0),
    record("nci-60", "cupc-authors", 0.040, [0.0, 0.0]),
    record("nci-60", "gpucsl", 0.060, [0.010, 0.020]),
    record("nci-60", "cupc-s", 0.030, [0.004, 0.004], params=CUPC_S),
    record("nci-60", "cupc-s", 0.020, [0.002, 0.004], setting="first", params=CUPC_S, separating_sets="first-come"),
    record("nci-60", "cupc-s", 0.001, [0.001], setting="cupc-s-32-1", params={"theta": 32, "delta": 1}),
    record("nci-60", "pair-scan", 0.005, [0.001, 0.001]),
    record("mcc", "cupc-authors", 0.090, edges=3),
    record("mcc", "cupc-s", 0.010, [0.005], params=CUPC_S),
]


@pytest.fixture
def table(load):
    """The table of some records, and its CSV rows by program, data set and kind."""

    def make(records, statuses=None):
        found = peers.peers(load(records, statuses))
        return found, {(row["program"], row.get("dataset"), row.get("kind")): row for row in found.plain}

    return make


def test_like_for_like_takes_the_same_algorithm_and_rule(table):
    _, rows = table(GENES)
    like = rows["cupc-authors", "nci-60", "like for like"]
    assert (like["ours"], like["whole_speedup"]) == ("first", pytest.approx(2))
    assert like["levels_speedup"] is None  # the program tells no levels
    assert like["test"] == "df_convention = pcalg; separating sets: first-come, ours first-come"
    assert rows["gpucsl", "nci-60", "like for like"]["levels_speedup"] == pytest.approx(5)
    assert rows["cupc-authors", "mcc", "like for like"]["ours"] == "cupc-s"


def test_the_fastest_of_ours_is_no_program_and_no_reference(table):
    records = [each for each in GENES if each["setting"] != "cupc-s-32-1"]
    _, rows = table(records)
    assert rows["cupc-authors", "nci-60", "fastest"]["ours"] == "pair-scan"
    assert rows["gpucsl", "nci-60", "fastest"]["whole_speedup"] == pytest.approx(12)
    assert rows["gpucsl", "nci-60", "fastest"]["levels_speedup"] == pytest.approx(15)
    _, rows = table(records, {("nci-60", "pair-scan"): "unexplained"})
    assert rows["cupc-authors", "nci-60", "fastest"]["ours"] == "first"


def test_means_are_of_what_is_verified(table):
    shown, rows = table(GENES)
    mean = rows["cupc-authors", "geometric mean", "like for like"]
    assert (mean["datasets"], mean["whole_speedup"]) == (2, pytest.approx((2 * 9) ** 0.5))
    assert mean["levels_speedup"] is None
    assert ["cuPC-S, authors' program", "geometric mean of 2"] in [row[:2] for row in shown.rows]
    _, rows = table(GENES, {("mcc", "cupc-authors"): "unexplained"})
    mean = rows["cupc-authors", "geometric mean", "like for like"]
    assert (mean["datasets"], mean["whole_speedup"]) == (1, pytest.approx(2))
    assert rows["cupc-authors", "mcc", "like for like"]["whole_speedup"] == pytest.approx(9)


def test_gpu_cmiknn_is_compared_search_by_search(table):
    records = [
        record("cgm", "gpucmiknn-authors", 3.0, [1.0, 2.0], family="nonlinear", params={"search": "parallel"}),
        record("cgm", "gpucmiknn-authors", 9.0, [9.0], setting="one", family="nonlinear", params={"search": "single"}),
    ]
    for method, seconds in (("gpucmiknn-parallel", 0.5), ("gpucmiknn-single", 4.0)):
        for selection, factor in (("counting", 1), ("insertion", 2)):
            params, setting = {"selection": selection}, f"{method}-{selection}"
            records.append(record("cgm", method, factor * seconds, family="nonlinear", setting=setting, params=params))
    shown, rows = table(records, {("cgm", "gpucmiknn-authors"): "random"})
    assert rows["gpucmiknn-authors", "cgm", "like for like"]["ours"] == "gpucmiknn-parallel-insertion"
    assert rows["gpucmiknn-authors", "cgm", "like for like"]["whole_speedup"] == pytest.approx(3)
    assert rows["one", "cgm", "like for like"]["ours"] == "gpucmiknn-single-insertion"
    assert rows["one", "cgm", "fastest"]["ours"] == "gpucmiknn-parallel-counting"
    assert "k_cmi = 7, permutations = 100, transform = ranks" in rows["one", "cgm", "fastest"]["test"]
    assert any(note.startswith("~ The program draws its own random numbers") for note in shown.notes)


def test_a_program_that_is_missing_says_why(table):
    records = [
        record("alarm", "gpucsl-discrete", None, family="discrete"),
        record("alarm", "gpupc", 0.1, family="discrete"),
    ]
    shown, rows = table(records)
    assert rows["gpucsl-discrete", "alarm", "like for like"]["why"] == "no library"
    assert shown.rows == []
    assert "geometric mean" not in {row["dataset"] for row in shown.plain}
    assert "alarm not run: GPUCSL: no library" in shown.notes


def test_without_programs_the_table_says_so(table):
    shown, _ = table(GENES[:1])
    assert shown.rows == []
    assert peers.MISSING in shown.notes
