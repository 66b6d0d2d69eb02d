"""Numbered subsets, against itertools."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.core.subsets import MOST_SUBSETS, Subsets, concatenated


@given(st.lists(st.sets(st.integers(0, 30), max_size=8), min_size=1, max_size=5), st.integers(0, 4))
def test_subsets_are_those_of_itertools_in_its_order(lists, size):
    starts, candidates = concatenated([np.array(sorted(each), np.int32) for each in lists])
    subsets = Subsets(np.arange(2 * len(lists), dtype=np.int32).reshape(-1, 2), starts, candidates, size)
    expected = [(q, each) for q, own in enumerate(lists) for each in itertools.combinations(sorted(own), size)]
    assert subsets.total == len(expected)
    numbers = np.arange(subsets.total)
    owners = subsets.owners(numbers)
    members = subsets.members(numbers, owners)
    assert [(q, tuple(each)) for q, each in zip(owners.tolist(), members.tolist(), strict=True)] == expected


def test_a_total_beyond_64_bits_is_exact():
    starts, candidates = concatenated([np.arange(200, dtype=np.int32)])
    subsets = Subsets(np.array([[200, 201]], np.int32), starts, candidates, 100)
    assert subsets.total == 90548514656103281165404177077484163874504589675413336841320
    assert subsets.binomials.max() == MOST_SUBSETS
