"""Tiers that limit separating sets; tests/conformance/test_knowledge.py compares the searches with their definition."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import BackgroundKnowledge, InvalidProblem, skeleton
from gpupc_impl.core.colliders import judged_triples
from tests.graphs import linear_samples

QUICK = settings(deadline=None, derandomize=True, max_examples=20)


def sample(seed: int, p: int) -> np.ndarray:
    return linear_samples(p, 120, 0.5, seed)


def p_value(data: np.ndarray, i: int, j: int, members: tuple[int, ...]) -> float:
    """Fisher's z of the correlation of the residuals of two regressions."""
    design = np.column_stack([np.ones(len(data)), data[:, list(members)]])
    rest = data[:, [i, j]] - design @ np.linalg.lstsq(design, data[:, [i, j]], rcond=None)[0]
    r = scipy.stats.pearsonr(*rest.T).statistic
    return 2 * scipy.stats.norm.sf(abs(np.arctanh(r)) * np.sqrt(len(data) - len(members) - 3))


def tiers_of(numbers) -> list[list[int]]:
    """The tiers from the tier of each variable; -1 stands for none."""
    return [[k for k, tier in enumerate(numbers) if tier == number] for number in range(max(*numbers, 0) + 1)]


@QUICK
@given(st.integers(0, 10**6), st.lists(st.integers(-1, 3), min_size=5, max_size=8), st.randoms())
def test_the_skeleton_does_not_depend_on_the_order_of_columns(seed, numbers, random):
    data, order = sample(seed, len(numbers)), list(range(len(numbers)))
    random.shuffle(order)
    graphs = []
    for columns in (sorted(order), order):
        known = BackgroundKnowledge(tiers=tiers_of([numbers[k] for k in columns]), tiers_in_search=True)
        adjacency = skeleton(data[:, columns], method="stable-serial", knowledge=known).adjacency
        graphs.append(adjacency[np.ix_(np.argsort(columns), np.argsort(columns))])
    assert np.array_equal(*graphs)


def test_one_tier_limits_nothing():
    data, found = sample(1, 6), {}
    for name, known in {
        "none": None,
        "one": BackgroundKnowledge(tiers=[range(6)], tiers_in_search=True),
        "orients alone": BackgroundKnowledge(tiers=[[3, 4], [0, 1, 2, 5]]),
    }.items():
        found[name] = skeleton(data, method="stable-serial", knowledge=known)
    assert found["none"] == found["one"] == found["orients alone"]
    assert len({each.problem.fingerprint for each in found.values()}) == 1


def chain() -> tuple[np.ndarray, BackgroundKnowledge]:
    """Data in which only c separates a and b, and tiers in which c is later than both."""
    rng = np.random.default_rng(0)
    c = rng.standard_normal(500)
    data = np.stack([c + rng.standard_normal(500), c + rng.standard_normal(500), c], axis=1)
    return data, BackgroundKnowledge(tiers=[["V0", "V1"], ["V2"]], tiers_in_search=True)


def test_it_is_part_of_the_problem_and_shown(tmp_path):
    data, known = chain()
    found = skeleton(data, knowledge=known, method="stable-serial")
    assert skeleton(data, method="stable-serial").n_edges == 2
    assert found.n_edges == 3
    problem = found.problem
    problem.save(tmp_path / "problem.npz")
    loaded = type(problem).load(tmp_path / "problem.npz")
    assert loaded.tiers.tolist() == [0, 0, 1]
    assert loaded.fingerprint == problem.fingerprint
    assert len({problem.fingerprint, dataclasses.replace(problem, tiers=None).fingerprint}) == 2
    assert found.facts["problem"]["tiers_in_search"] == 2
    assert "no set has a member later than both ends" in str(found.summary())
    strengths = found.strengths()
    assert strengths["given"].tolist()[0] == ()  # the edge a - b was tested given the empty set alone


def literal_votes(found, data, tier_of):
    """The colliders and the ambiguous triples of the majority rule, which counts no set that the tiers keep out."""
    p, near = found.adjacency.shape[0], [np.flatnonzero(row).tolist() for row in found.adjacency]
    colliders, ambiguous = [], []
    for k, i, j in itertools.product(range(p), repeat=3):
        if not (i < j and i in near[k] and j in near[k] and j not in near[i]):
            continue
        last = max(tier_of[i], tier_of[j])
        votes = [
            k in members
            for end in (i, j)
            for level in range(p)
            for members in itertools.combinations([v for v in near[end] if tier_of[v] <= last], level)
            if p_value(data, i, j, members) >= 0.05
        ]
        if 2 * sum(votes) < len(votes):
            colliders.append([i, k, j])
        elif not votes or 2 * sum(votes) == len(votes):
            ambiguous.append([i, k, j])
    return colliders, ambiguous


@QUICK
@given(st.integers(0, 10**6), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_votes_count_no_set_that_the_tiers_keep_out(seed, numbers):
    data = sample(seed, 6)
    known = BackgroundKnowledge(tiers=tiers_of(numbers), tiers_in_search=True)
    found = skeleton(data, method="stable-serial", knowledge=known)
    (triples,) = judged_triples(found, "majority", found.problem)
    assert (triples.colliders.tolist(), triples.ambiguous.tolist()) == literal_votes(found, data, numbers)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ({"tiers_in_search": True}, "tiers_in_search is true, but there are no tiers"),
        ({"tiers": [["V0"]], "tiers_in_search": "yes"}, "tiers_in_search is 'yes'; it must be true or false"),
    ],
)
def test_what_may_not_be_said(statements, message):
    with pytest.raises(InvalidProblem, match=message):
        BackgroundKnowledge(**statements)


def test_from_a_file(tmp_path):
    (tmp_path / "known.yaml").write_text("tiers: [[V0, V1], [V2]]\ntiers_in_search: true\n")
    assert BackgroundKnowledge.from_file(tmp_path / "known.yaml") == chain()[1]
