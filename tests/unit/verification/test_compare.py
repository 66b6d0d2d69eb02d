"""Made-up answers compared edge by edge and set by set, and every way in which a difference is explained."""

import types

import numpy as np
import pytest

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.result import NO_PAIRS, SeparatingSets, Skeleton, complete_graph
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.compare import Comparison

P = 6


def answer(removed, ratio=0.5, tolerance=1e-9, *, canonical=True, random=False):
    """An answer of six variables that removed these pairs with these sets, in whose eyes every test has this ratio."""
    adjacency = complete_graph(P)
    for i, j in removed:
        adjacency[i, j] = adjacency[j, i] = False
    sizes = {len(members) for members in removed.values() if members}
    levels = [[(pair, members) for pair, members in removed.items() if len(members) == size] for size in sizes]
    sets = [tuple(map(np.array, zip(*level, strict=True))) for level in levels]
    made = Answer.__new__(Answer)
    sepsets = SeparatingSets.from_levels(adjacency, sets)
    made.skeleton = Skeleton(adjacency, sepsets, tuple("abcdef"), (), (), (), 0, "made up")
    made.problem, made.gaps = types.SimpleNamespace(fixed=None), NO_PAIRS
    made.canonical, made.random, made.sizes = canonical, random, sepsets.sizes()
    made.ratios = lambda pairs, _: (np.array([ratio]), np.array([tolerance]), np.zeros(len(pairs), bool))
    return made


OURS = {(0, 1): (2,), (0, 2): (1, 3), (0, 3): (1,), (1, 2): (), (1, 3): (0,), (2, 3): (0,), (4, 5): (), (1, 4): ()}
THEIRS = {(0, 1): (2, 3), (0, 2): (1,), (0, 3): (2,), (1, 2): (0,), (1, 3): (0,), (4, 5): (), (1, 4): (2,)}
THEIRS |= {(0, 5): (1,)}


@pytest.mark.parametrize("piece", [1, mapped_arrays.PIECE_BYTES])
@pytest.mark.parametrize("turned", [False, True])
def test_what_differs(monkeypatch, turned, piece):
    monkeypatch.setattr(mapped_arrays, "PIECE_BYTES", piece)
    one, other = (answer(THEIRS), answer(OURS)) if turned else (answer(OURS), answer(THEIRS))
    found = Comparison(one, other)
    assert found.edges.tolist() == [[0, 5], [2, 3]]
    assert {tuple(pair) for pair in found.sets.tolist()} == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)}
    assert Comparison(one, one).edges.shape == Comparison(one, one).sets.shape == (0, 2)
    without = Comparison(one, answer(OURS, canonical=False))
    assert without.sets.shape == (0, 2)


RATIOS = {
    "near-threshold": [(1 + 1e-12, 0.5), (1 - 1e-12, 0.5), (0.5, 1 + 1e-12), (0.5, 1 - 1e-12)],
    "unexplained": [(1 + 1e-8, 0.5), (2.0, 2.0), (0.5, 0.7)],  # the own set does not separate, or the other had to go
    "convention": [(0.5, 1 + 1e-8), (0.5, 2.0)],
}


@pytest.mark.parametrize(("status", "owner", "other"), [(name, *pair) for name in RATIOS for pair in RATIOS[name]])
def test_why_one_removed_what_the_other_kept(owner, other, status):
    removed, kept = answer({(0, 1): (2,)}, owner, 1e-9), answer({}, other, 1e-9)
    for pair in ((removed, kept), (kept, removed)):
        assert Comparison(*pair).statuses() == ([status], [])


def test_what_follows_from_another_difference_is_explained_by_that():
    """a - b went given c; the other could not find that, as it had removed both a - c and b - c before."""
    one = answer({(0, 1): (2,)}, 0.5)
    other = answer({(0, 2): (), (1, 2): ()}, 1 + 1e-12)
    assert Comparison(one, other).statuses() == (["near-threshold"] * 3, [])
