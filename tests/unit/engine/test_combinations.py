"""Combinations by rank, and the binomials they are computed from, on the host backend."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl.core.pc_stable import MAX_SETS
from gpupc_impl.engine.graph import binomial_table
from gpupc_impl.integers import ceil_div

UNRANK = Path(__file__).parent / "kernels" / "unrank.cu"


def unrank(backend, n, level, ranks, max_n=None):
    """The combinations of `level` out of n with these ranks, as the kernels compute them."""
    max_n = n if max_n is None else max_n
    out = backend.empty((len(ranks), level), np.int32)
    table, on_device = backend.upload(binomial_table(max_n, level)), backend.upload(np.asarray(ranks, np.uint64))
    arguments = [table, *map(np.int32, (max_n, n, level)), on_device, np.int32(len(ranks)), out]
    backend.kernel(UNRANK, "unrank")((ceil_div(len(ranks), 64),), (64,), arguments)
    return backend.download(out)


def algorithm_6(n, level, t):
    """cuPC's Algorithm 6 to the letter, with its result counted from zero."""
    total, out = 0, [0]
    for c in range(level):
        out.append(out[-1])
        while total <= t:
            out[-1] += 1
            total += math.comb(n - out[-1], level - (c + 1))
        total -= math.comb(n - out[-1], level - (c + 1))
    return [value - 1 for value in out[1:]]


@pytest.mark.parametrize(("n", "level"), [(n, level) for n in (1, 2, 5, 9, 12) for level in range(1, n + 1)])
def test_unranking_gives_all_combinations_in_lexicographic_order(backend, n, level):
    count = math.comb(n, level)
    found = unrank(backend, n, level, np.arange(count), max_n=n + 3)
    assert found.tolist() == [list(c) for c in itertools.combinations(range(n), level)]
    assert found.tolist() == [algorithm_6(n, level, t) for t in range(count)]


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.data())
def test_unranking_is_exact_for_ranks_up_to_the_limit(backend, data):
    level = data.draw(st.integers(1, 40))
    n = data.draw(st.integers(level, 3000))
    while math.comb(n, level) >= MAX_SETS:
        n -= max(1, (n - level) // 8)
    ranks = data.draw(st.lists(st.integers(0, math.comb(n, level) - 1), min_size=1, max_size=20))
    for rank, found in zip(ranks, unrank(backend, n, level, ranks).tolist(), strict=True):
        assert found == sorted(set(found))
        following = sum(math.comb(n - 1 - position, level - c) for c, position in enumerate(found))
        assert math.comb(n, level) - 1 - following == rank


def test_binomials_are_exact_and_saturate():
    table = binomial_table(200, 30)
    for k, m in itertools.product(range(31), range(0, 201, 7)):
        exact = math.comb(m, k)
        assert int(table[k, m]) == exact if exact < MAX_SETS else int(table[k, m]) >= MAX_SETS
