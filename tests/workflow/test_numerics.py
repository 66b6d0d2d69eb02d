"""The study of docs/numerics.md on small data: what it counts is counted here by hand."""

import itertools

import numpy as np
import pytest

import datasets
from datasets import Dataset, DatasetUnavailable
from gpupc_impl import GaussianProblem, skeleton
from tests.unit.baselines.test_gaussian import r_squared

pytest.importorskip("numba")
pytest.importorskip("mpmath")

from workflow.pages import decisions, numerics


def samples(p: int = 12, m: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.random((p, p)) < 0.4, -1) * rng.uniform(0.3, 1, (p, p))
    return np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T


def with_copies() -> np.ndarray:
    data = samples(p=20, seed=4)
    return np.column_stack([data, data[:, 3], -2 * data[:, 7], data[:, 11] * 3 + 1])


def decided_by_hand(problem: GaussianProblem, found) -> list[tuple[float, int, int, tuple[int, ...]]]:
    """(margin, i, j, S) of every test of a search, level by level."""
    made = []
    for level in range(found.levels_run):
        graph, critical = found.adjacency_at(level), problem.critical_r_squared(level)
        for i, j in np.argwhere(np.triu(graph, 1)).tolist():
            rows = [np.flatnonzero(graph[end]) for end in ((i, j) if level else (i,))]
            rows = [row[(row != i) & (row != j)].tolist() for row in rows]
            for members in itertools.chain(*(itertools.combinations(row, level) for row in rows)):
                square = r_squared(problem.correlation, i, j, members)
                made.append((abs(square / critical - 1), i, j, members))
                if square <= critical:
                    break
    return made


def test_decisions_near_their_threshold_are_counted_and_listed(monkeypatch):
    monkeypatch.setattr(numerics, "BOUNDS", (0.01, 0.1, 0.5))
    problem = GaussianProblem.from_data(samples())
    found = skeleton(problem, method="stable-serial")
    near, made = numerics.nearness(problem, found), decided_by_hand(problem, found)
    assert near.tests == len(made) == sum(found.tests_per_level)
    assert near.within == tuple(sum(margin < bound for margin, *_ in made) for bound in numerics.BOUNDS)
    assert near.within[-1] > 5
    assert sorted(near.nearest) == sorted(tuple(test) for margin, *test in made if margin < 0.5)
    assert near.below == -np.inf
    assert 0 < near.above < 1


def test_every_program_says_the_same_of_a_decision_that_is_not_near():
    pytest.importorskip("causallearn")
    problem = GaussianProblem.from_data(samples())
    found = skeleton(problem, method="stable-serial")
    made = [test for margin, *test in decided_by_hand(problem, found) if margin > 1e-6][::25]
    said = [{says(problem, *test) for says in decisions.PROGRAMS.values()} for test in made]
    assert all(len(verdicts) == 1 for verdicts in said)
    assert set.union(*said) == {True, False}


def test_the_emulated_pcalg_is_ours_without_copies():
    for seed in range(5):
        data = samples(seed=seed)
        expected = skeleton(data, method="stable-serial")
        correlation = decisions.correlations_of_r(data)
        np.testing.assert_allclose(correlation, np.corrcoef(data, rowvar=False), rtol=0, atol=1e-14)
        assert np.array_equal(decisions.pcalg_answer(correlation, len(data), 0.05).adjacency, expected.adjacency)


def test_every_difference_that_copies_make_is_explained(monkeypatch):
    data = with_copies()
    made = Dataset("copies", data, tuple(f"V{k}" for k in range(data.shape[1])), "gaussian")
    monkeypatch.setattr(datasets, "load", lambda name, offline: made)
    table = numerics.copies_table("copies", 0.05).splitlines()
    assert "of 3 between copies" in table[0]
    assert len(table) == 2 + 6
    rows = [list(map(int, line.strip("| ").split(" | ")[2:])) for line in table[2:]]
    for edges, between, gone, new, without_variance, follows, unexplained in rows:
        assert edges == rows[0][0] - gone + new
        assert without_variance + follows == gone + new
        assert between == 3
        assert unexplained == 0
    assert any(row[4] for row in rows)


def test_data_that_are_not_here_are_named(monkeypatch):
    def load(name, offline):
        raise DatasetUnavailable(f"{name} is not here")

    monkeypatch.setattr(datasets, "load", load)
    with pytest.raises(SystemExit, match="error: mcc is not here"):
        numerics.main(["mcc"])
