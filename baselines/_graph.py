"""Graphs and subsets, compiled with numba, for the references of all families."""

import numpy as np

from baselines._compile import compiled, inlined


@compiled
def neighbour_lists(adjacent):
    """Return the graph G' of a level as (starts, neighbours, edges).

    Row i's neighbours, ascending, are ``neighbours[starts[i] : starts[i + 1]]``; edges are pairs i < j, ascending.
    """
    p = len(adjacent)
    starts = np.zeros(p + 1, np.int64)
    for i in range(p):
        starts[i + 1] = starts[i] + adjacent[i].sum()
    neighbours = np.empty(starts[p], np.int32)
    edges = np.empty((starts[p] // 2, 2), np.int32)
    filled = listed = 0
    for i in range(p):
        for j in range(p):
            if adjacent[i, j]:
                neighbours[filled] = j
                filled += 1
                if i < j:
                    edges[listed, 0] = i
                    edges[listed, 1] = j
                    listed += 1
    return starts, neighbours, edges


@inlined
def may_be_member(tiers, i, j, k):
    """Return whether a variable may be in a separating set for a pair, from the (p,) tiers: it is not later than both
    ends. A variable in no tier (-1) is never later, and a pair with an end in no tier limits nothing, nor do tiers of
    length 0."""
    if len(tiers) == 0 or tiers[i] < 0 or tiers[j] < 0:
        return True
    return tiers[k] <= max(tiers[i], tiers[j])


@inlined
def neighbours_without(starts, neighbours, row, other, tiers, out):
    """Write the neighbours of ``row`` that may be in a set for it and ``other`` to ``out``; return their number."""
    n = 0
    for at in range(starts[row], starts[row + 1]):
        if neighbours[at] != other and may_be_member(tiers, row, other, neighbours[at]):
            out[n] = neighbours[at]
            n += 1
    return n


@inlined
def next_combination(chosen, n):
    """Advance to the lexicographically next subset of range(n); return the first position that changed, -1 at the
    end."""
    size = len(chosen)
    place = size - 1
    while place >= 0 and chosen[place] == n - size + place:
        place -= 1
    if place >= 0:
        chosen[place] += 1
        for t in range(place + 1, size):
            chosen[t] = chosen[t - 1] + 1
    return place
