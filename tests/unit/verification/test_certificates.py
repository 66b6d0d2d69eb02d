"""Which removed edges are tested again, in whatever pieces they come, and what is said of those that fail."""

import dataclasses
import math
import types

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, GaussianProblem, skeleton
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.result import SeparatingSets, complete_graph
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.verification import certificates
from gpupc_impl.verification.answer import Answer
from tests.unit.verification.test_verify import changed, linear_data, record_of

P = 16
GAPS = [(0, 14), (4, 5), (8, 9)]
"""Forbidden pairs: in rows that come in different pieces, their other ends not in order."""


@pytest.fixture(scope="module")
def problem():
    return with_knowledge(GaussianProblem.from_data(linear_data(P)), BackgroundKnowledge(forbidden_edges=GAPS))


@pytest.fixture(scope="module")
def right(problem):
    return skeleton(problem, method="stable-serial")


@pytest.fixture
def answer(problem, right):
    return Answer(problem, record_of(problem, right), right)


@pytest.mark.parametrize("size", [1, 15, 33, 49, 1 << 20])
def test_every_removed_pair_comes_once_with_its_set(answer, size, monkeypatch):
    monkeypatch.setattr(certificates, "_PAIRS_AT_ONCE", size)
    parts = list(certificates._removed(answer))
    of_level_zero = [pairs for pairs, sets in parts if sets.shape[1] == 0]
    assert len(of_level_zero) == math.ceil(P / max(size // P, 1))
    assert all(len(pairs) <= size for pairs, sets in parts if sets.shape[1])
    found = [
        (i, j, *members) for pairs, sets in parts for (i, j), members in zip(pairs.tolist(), sets.tolist(), strict=True)
    ]
    there, sepsets = answer.skeleton.adjacency, answer.skeleton.sepsets
    removed = [(i, j) for i in range(P) for j in range(i + 1, P) if not there[i, j] and (i, j) not in GAPS]
    assert sorted(found) == [(i, j, *sepsets[i, j]) for i, j in removed]


@pytest.mark.parametrize("affordable", [None, 0, 1, 7, 10, 50, "all", 10_000])
def test_what_is_tested_is_spread_evenly(answer, affordable, monkeypatch):
    monkeypatch.setattr(certificates, "_PAIRS_AT_ONCE", 49)
    removed = [pair for pairs, _ in certificates._removed(answer) for pair in pairs.tolist()]
    affordable = len(removed) if affordable == "all" else affordable
    monkeypatch.setattr(Retest, "affordable", affordable)
    asked, ratios = [], answer.ratios
    answer.ratios = lambda pairs, sets: asked.extend(pairs.tolist()) or ratios(pairs, sets)
    checked, failures = certificates.certificates(answer)
    assert asked == removed[:: 1 if affordable is None else math.ceil(len(removed) / max(affordable, 1))]
    assert (checked, failures) == (len(asked), [])


def test_where_nothing_was_removed_or_tests_decide_nothing(problem, right, monkeypatch):
    monkeypatch.setattr(Retest, "affordable", 10)
    whole = complete_graph(P)
    whole = dataclasses.replace(right, adjacency=whole, sepsets=SeparatingSets.from_levels(whole, []))
    free = GaussianProblem.from_data(linear_data(P))
    assert certificates.certificates(Answer(free, record_of(free, whole), whole)) == (0, [])
    workload = types.SimpleNamespace(problem=types.SimpleNamespace(decided_by_tests=False))
    assert certificates.certificates(workload) == (0, [])


def test_what_is_said_of_failures(answer):
    """A ratio may be one and its tolerance, and no more; one that is undefined fails."""
    parts = certificates._removed(answer)
    removed = [(pair, members) for pairs, sets in parts for pair, members in zip(pairs, sets, strict=True)]
    said = [  # ratio, tolerance, whether misplaced, and what is said
        (1.25, 0.25, False, None),
        (1.2500000001, 0.25, False, "it does not separate: the statistic is 1.2500000001 times its critical value"),
        (np.nan, 0.25, False, "it does not separate: the statistic is nan times its critical value"),
        (0.5, 0.25, True, "the set is not of one end's neighbours"),
        (3.0, 0.25, True, "the set is not of one end's neighbours"),
        *[(0.5, 0.0, False, None)] * (len(removed) - 6),
        (3.0, 0.25, False, "it does not separate: the statistic is 3 times its critical value"),
    ]
    coming = iter(said)

    def ratios(pairs, sets):
        found = np.array([next(coming)[:3] for _ in pairs]).reshape(-1, 3)
        return found[:, 0], found[:, 1], found[:, 2].astype(bool)

    answer.ratios = ratios
    expected = [
        f"V{i} - V{j} given {{{', '.join(f'V{k}' for k in members)}}}: {sentence}"
        for ((i, j), members), (*_, sentence) in zip(removed, said, strict=True)
        if sentence
    ]
    assert len(removed[-1][1]) > 1  # the deepest
    assert certificates.certificates(answer) == (len(removed), expected)


def test_what_knowledge_fixes_is_kept_and_has_no_set(problem, right):
    i, j = GAPS[1]
    there, with_set = changed(right, [(i, j, True)]), changed(right, sets={(i, j): (1,)})
    for wrong, sentence in (
        (there, "background knowledge requires or forbids it"),
        (with_set, "it is forbidden, and has a set"),
    ):
        _, failures = certificates.certificates(Answer(problem, record_of(problem, wrong), wrong))
        own = [failure for failure in failures if "{" not in failure]  # others are of sets
        assert own == [f"V{i} - V{j}: {sentence}"]


def test_sizes_and_edges_left_say_the_same(answer, right):
    assert certificates.wrong_sizes(answer) == []
    for level, left in enumerate(right.edges_per_level):
        for off in (-1, 1):
            counts = list(right.edges_per_level)
            counts[level] += off
            answer.skeleton = dataclasses.replace(right, edges_per_level=tuple(counts))
            assert certificates.wrong_sizes(answer) == [
                f"{left + off} edges were left after level {level}, but by the sets' sizes {left}"
            ]
    many = types.SimpleNamespace(n_edges=9_999, edges_per_level=(10_001, 9_999))
    assert certificates.wrong_sizes(types.SimpleNamespace(skeleton=many, sizes=np.array([1, 1]))) == []
