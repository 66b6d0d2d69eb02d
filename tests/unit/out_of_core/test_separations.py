"""Lists of separated pairs that threads merge from blocks are those that sorting gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.gaussian.pair_block import MEMBER, NO_MEMBER
from gpupc_impl.out_of_core import host_blocks, separations
from gpupc_impl.out_of_core.host_blocks import upper_blocks


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Use many parts and several threads, whatever the machine has."""
    monkeypatch.setattr(separations, "PAIRS_AT_ONCE", 16)
    monkeypatch.setattr(separations, "TILE", 3)
    monkeypatch.setattr(host_blocks, "available_cores", lambda: 3)


def random_members(p: int, share: float, seed: int) -> np.ndarray:
    """(p, p) uint32: members of sets above the diagonal, some from the second side; elsewhere `NO_MEMBER`."""
    chance = np.random.default_rng(seed)
    members = chance.integers(0, p, (p, p), dtype=np.uint32) | (chance.integers(0, 2, (p, p), dtype=np.uint32) << 31)
    members[np.tril_indices(p)] = NO_MEMBER
    members[chance.random((p, p)) >= share] = NO_MEMBER
    return members


@given(
    p=st.integers(1, 23), side=st.integers(1, 24), share=st.sampled_from([0.0, 0.05, 0.6, 1.0]), seed=st.integers(0, 9)
)
def test_blocks_make_one_ascending_list(p, side, share, seed):
    members = random_members(p, share, seed)
    blocks = []
    for rows, columns in upper_blocks(p, side):
        block = np.ascontiguousarray(members[rows, columns])
        blocks += separations.find(block, rows, columns)
    pairs, sets = separations.in_order(blocks, p)
    expected = np.argwhere(members != NO_MEMBER)
    assert pairs.dtype == sets.dtype == np.int32
    assert blocks == []  # it is emptied while it is read
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(sets[:, 0], members[tuple(expected.T)] & MEMBER)


@pytest.mark.parametrize("few", [0, 10**6], ids=["one by one", "mirrored"])
@given(p=st.integers(2, 20), share=st.sampled_from([0.01, 0.5, 1.0]), seed=st.integers(0, 9))
def test_pairs_are_taken_out_of_both_halves(few, p, share, seed):
    chance = np.random.default_rng(seed)
    graph = np.triu(chance.random((p, p)) < 0.7, 1)
    graph |= graph.T
    pairs = np.argwhere(np.triu(graph, 1) & (chance.random((p, p)) < share)).astype(np.int32)
    expected = graph.copy()
    for i, j in pairs:
        expected[i, j] = expected[j, i] = False
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(separations, "SPARSE_FACTOR", few)
        separations.take_out(graph, pairs)
    np.testing.assert_array_equal(graph, expected)


@given(p=st.integers(1, 20), side=st.integers(1, 21), seed=st.integers(0, 9))
def test_blocks_above_the_diagonal_make_a_symmetric_graph(p, side, seed):
    full = np.random.default_rng(seed).random((p, p)) < 0.5
    np.fill_diagonal(full, False)
    above = np.triu(full)
    graph = np.zeros((p, p), bool)
    for rows, columns in upper_blocks(p, side):
        graph[rows, columns] = above[rows, columns]
        separations.mirror(graph, rows, columns)
    np.testing.assert_array_equal(graph, above | above.T)


def test_nothing_is_removed():
    pairs, sets = separations.in_order([], 7)
    assert (pairs.shape, sets.shape, pairs.dtype, sets.dtype) == ((0, 2), (0, 1), np.int32, np.int32)
    graph = ~np.eye(7, dtype=bool)
    separations.take_out(graph, pairs)
    np.testing.assert_array_equal(graph, ~np.eye(7, dtype=bool))


def test_a_fault_in_a_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        host_blocks.in_threads(lambda part: 1 // part, [2, 1, 0])
