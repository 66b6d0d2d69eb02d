"""What is common to all papers' claims: what a claim says, verdicts, and numbers of series."""

from pathlib import Path

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import claims, quantities
from gpupc_impl.reporting.papers import cmiknn, cupc, gpupc, out_of_core

ROOT = Path(__file__).parents[3]
MODULES = {"cupc": cupc, "gpupc": gpupc, "cmiknn": cmiknn, "ooc": out_of_core}


@pytest.mark.parametrize("paper", MODULES)
def test_every_claim_has_a_quantity_and_says_what_it_states(paper):
    reported = read_csv(ROOT / "results" / "reported" / f"{paper}_claims.csv")
    quantities = MODULES[paper].QUANTITIES
    judged = [claim["id"] for claim in reported if claim["id"] in quantities]
    assert judged == list(quantities)
    for claim in reported:
        assert claim["id"] in quantities or claim["why"]
        assert claim["check"] in ("range", "about", "at least", "at most", "none")
        assert claim["basis"] in ("printed", "our reading")
        assert claim["section"]
        assert claim["quote"]
        assert claim["datasets"]
        assert claim["unit"] in claims.UNITS
        assert claim["low"] or claim["high"]
        assert bool(claim["low"]) == (claim["check"] != "at most")
        assert bool(claim["high"]) == (claim["check"] != "at least")
        if claim["check"] == "about":
            assert claim["low"] == claim["high"]
        assert (claim["direction"] in ("higher", "lower", "equal")) == (claim["check"] != "none")
        assert claim["check"] != "none" or claim["why"]


@pytest.mark.parametrize(
    ("check", "low", "high", "direction", "contradicted", "values", "word"),
    [
        ("range", "1.3", "3.9", "higher", "1", [1.26, 3.94], "holds"),  # rounded as in the paper
        ("range", "1.3", "3.9", "higher", "1", [1.24, 3.9], "holds less strongly"),
        ("range", "1.3", "3.9", "higher", "1", [4.0, 17.0], "holds more strongly"),
        ("range", "1.3", "3.9", "higher", "1", [0.9, 0.8, 4.0], "contradicted"),
        ("range", "49", "83", "equal", "", [30.0], "holds less strongly"),
        ("about", "45.8", "45.8", "higher", "1", [57.0], "holds"),
        ("about", "45.8", "45.8", "higher", "1", [58.0], "holds more strongly"),
        ("about", "1", "1", "equal", "0.5 2", [0.12, 0.17], "contradicted"),
        ("about", "53", "53", "lower", "200", [489.0], "contradicted"),
        ("about", "-40", "-40", "lower", "0", [-53.0], "holds more strongly"),
        ("at least", "8500", "", "higher", "1", [8499.0], "holds less strongly"),
        ("at least", "8500", "", "higher", "1", [9000.0], "holds"),
        ("at least", "8500", "", "higher", "1", [20000.0], "holds more strongly"),
        ("at most", "", "10", "lower", "20", [9.6], "holds"),
        ("at most", "", "10", "lower", "20", [10.4], "holds less strongly"),
        ("at most", "", "0.5", "lower", "1", [0.47, 0.95, 1.2], "holds less strongly"),
        ("none", "1", "2", "", "", [9.0], "cannot be judged"),
        ("range", "1", "2", "higher", "", [], "cannot be judged"),
    ],
)
def test_verdicts(check, low, high, direction, contradicted, values, word):
    claim = {"check": check, "low": low, "high": high, "direction": direction, "contradicted": contradicted}
    assert claims.verdict({**claim, "basis": "printed"}, values) == word


def test_numbers_of_a_series():
    assert quantities.smallest_step([1, 2, 3], [1.0, 3.0, 4.5]) == pytest.approx(1.5)
    assert quantities.straightness([1, 2, 3], [1, 2, 3]) == pytest.approx(1)
    assert quantities.straightness([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)  # a falling line is no linear growth
    assert quantities.within(2, 3)([1, 2, 3], [5.0, 6.0, 7.0]) == [6.0, 7.0]
    assert quantities.within(2, 3, max)([1, 2, 3], [5.0, 6.0, 7.0]) == 7.0
    assert quantities.growth(3, 1)([1, 2, 3], [5.0, 6.0, 10.0]) == 0.5
    assert quantities.percent_growth(1, 3)([1, 2, 3], [5.0, 6.0, 10.0]) == pytest.approx(100)
    assert quantities.per_doubling(1, 4)([1, 2, 3, 4], [5.0, 6.0, 7.0, 18.0]) == [6 / 5, 3.0]


@pytest.mark.parametrize(
    "compute",
    [quantities.straightness, quantities.within(8, 9), quantities.growth(1, 3), quantities.per_doubling(2, 9)],
)
def test_a_number_that_a_series_does_not_have_is_missing(compute):
    with pytest.raises(quantities.Missing):
        compute([1, 2], [1.0, 2.0])


def test_missing_numbers_are_listed_by_reason():
    found = quantities.over_datasets(_odd)(None, ["a", "bb", "ccc", "dddd"])
    assert found.values == {"a": [1], "ccc": [3]}
    assert claims._listed(found.missing) == "bb, dddd (even)"
    assert claims._listed(found.missing, most=1) == "bb and 1 more (even)"
    assert quantities.over_datasets(_odd, max)(None, ["a", "ccc"]).values == {"largest of a, ccc": [3]}


def _odd(_, dataset):
    if len(dataset) % 2 == 0:
        raise quantities.Missing("even")
    return len(dataset)
