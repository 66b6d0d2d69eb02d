"""The level loop: what it counts and hands on, and why it stops, with a search that is made up."""

import re

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable, stop_reason
from tests.graphs import edges_to_adjacency


def problem(p=5, n_samples=100, max_level=None):
    return GaussianProblem.from_correlation(np.eye(p), n_samples=n_samples, max_level=max_level)


class Search(LevelSearch):
    """A search whose levels are written down."""

    OUTCOMES = (
        LevelOutcome(edges=8, max_degree=4, tests=10),
        LevelOutcome(5, 3, 30, np.array([[0, 1], [1, 4], [3, 4]]), np.array([[2], [0], [2]]), undefined=2, seconds=7.5),
        LevelOutcome(4, 2, 20, np.array([[0, 4]]), np.array([[1, 2]]), undefined=1, pseudo_inverses=4),
    )

    def __init__(self):
        self.ran = []

    def run_level(self, level):
        self.ran.append(level)
        return self.OUTCOMES[level]

    def adjacency(self):
        return edges_to_adjacency([(0, 2), (0, 3), (1, 2), (2, 4)], 5)

    def pmax(self):
        return None


def test_what_levels_did_is_collected():
    search, seen = Search(), []
    found = pc_stable(problem(), search, facts={"method": "made up"}, progress=seen.append)
    assert search.ran == [0, 1, 2]
    assert (found.tests_per_level, found.edges_per_level) == ((10, 30, 20), (8, 5, 4))
    assert found.seconds_per_level[1] == 7.5
    assert 0 <= found.seconds_per_level[0] < 5
    assert (found.undefined_tests, found.pseudo_inverses, found.levels_run) == (3, 4, 3)
    assert {pair: members for pair, members in found.sepsets.items() if members} == {
        **{(0, 1): (2,), (1, 4): (0,), (3, 4): (2,)},
        (0, 4): (1, 2),
    }
    assert found.stopped_because == "complete: no variable has the 4 neighbours that a test of level 3 needs"
    assert found.facts == {"method": "made up"}
    assert [(each.level, each.edges, each.tests) for each in seen] == [(0, 8, 10), (1, 5, 30), (2, 4, 20)]
    assert seen[1].seconds == 7.5


def test_one_variable_has_no_level():
    search = Search()
    search.adjacency = lambda: np.zeros((1, 1), bool)
    found = pc_stable(problem(1), search)
    assert (search.ran, found.levels_run, found.edges_per_level) == ([], 0, ())
    assert found.stopped_because == "complete: no variable has the 1 neighbours that a test of level 0 needs"


@pytest.mark.parametrize(
    ("level", "max_degree", "given", "reason"),
    [
        (0, 1, {}, None),
        (0, 0, {}, "complete: no variable has the 1 neighbours that a test of level 0 needs"),
        (3, 3, {}, "complete: no variable has the 4 neighbours that a test of level 3 needs"),
        (1, 3, {"max_level": 2}, None),
        (2, 3, {"max_level": 2}, None),
        (3, 9, {"max_level": 2}, "max_level: levels up to 2 were asked for"),
        (96, 200, {}, "too many sets: .* subsets of size 96, .* set max_level to 95 or lower alpha"),
        (97, 200, {}, r"no degrees of freedom: 100 samples leave m - \|S\| - 3 = 0 at level 97"),
        (2, 70, {"n_samples": 200}, None),
        (33, 65, {"n_samples": 200}, None),  # 3.6e18 sets, below 2^62
        (33, 66, {"n_samples": 200}, "too many sets: 66 neighbours have 7.2.e.18 subsets of size 33"),
    ],
)
def test_why_a_level_is_not_run(level, max_degree, given, reason):
    said = stop_reason(problem(**given), level, max_degree)
    if reason is None:
        assert said is None
    else:
        assert re.match(reason, said), said
