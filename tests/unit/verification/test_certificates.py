"""Which removed edges are tested again, in whatever pieces they come, and what is said of those that fail."""

import dataclasses
import types

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, GaussianProblem, skeleton
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.result import SeparatingSets, complete_graph
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.verification import verify
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


def test_where_nothing_was_removed_or_tests_decide_nothing(problem, right, monkeypatch):
    monkeypatch.setattr(Retest, "affordable", 10)
    whole = complete_graph(P)
    whole = dataclasses.replace(right, adjacency=whole, sepsets=SeparatingSets.from_levels(whole, []))
    free = GaussianProblem.from_data(linear_data(P))
    assert verify.certificates(Answer(free, record_of(free, whole), whole)) == (0, [])
    workload = types.SimpleNamespace(problem=types.SimpleNamespace(decided_by_tests=False))
    assert verify.certificates(workload) == (0, [])


def test_what_knowledge_fixes_is_kept_and_has_no_set(problem, right):
    i, j = GAPS[1]
    there, with_set = changed(right, [(i, j, True)]), changed(right, sets={(i, j): (1,)})
    for wrong, sentence in (
        (there, "background knowledge requires or forbids it"),
        (with_set, "it is forbidden, and has a set"),
    ):
        _, failures = verify.certificates(Answer(problem, record_of(problem, wrong), wrong))
        own = [failure for failure in failures if "{" not in failure]  # others are of sets
        assert own == [f"V{i} - V{j}: {sentence}"]


def test_sizes_and_edges_left_say_the_same(answer, right):
    assert verify.wrong_sizes(answer) == []
    for level, left in enumerate(right.edges_per_level):
        for off in (-1, 1):
            counts = list(right.edges_per_level)
            counts[level] += off
            answer.skeleton = dataclasses.replace(right, edges_per_level=tuple(counts))
            assert verify.wrong_sizes(answer) == [
                f"{left + off} edges were left after level {level}, but by the sets' sizes {left}"
            ]
    many = types.SimpleNamespace(n_edges=9_999, edges_per_level=(10_001, 9_999))
    assert verify.wrong_sizes(types.SimpleNamespace(skeleton=many, sizes=np.array([1, 1]))) == []
