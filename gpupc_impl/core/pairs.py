"""Lists of up to billions of pairs of variables: sorting, merging, and writing them into matrices. A list is a (k, 2)
int32 array of pairs i < j; an ascending list is in lexicographic order."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from gpupc_impl.core import mapped_arrays

PAIRS_AT_ONCE = 1 << 20  # keeps temporary arrays small


def connect(adjacency: np.ndarray, edges: np.ndarray) -> None:
    for part in mapped_arrays.pieces(len(edges), PAIRS_AT_ONCE):
        i, j = edges[part].T.astype(np.int64)
        adjacency[i, j] = adjacency[j, i] = True


def equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare two arrays like `numpy.array_equal`, without a temporary array of their size."""
    return one.shape == other.shape and all(
        np.array_equal(one[rows], other[rows]) for rows in mapped_arrays.row_pieces(one)
    )


def find(ascending: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where numbers are, or belong, in an ascending array, and whether it contains them."""
    positions = np.searchsorted(ascending, numbers)
    contained = positions < len(ascending)
    contained[contained] = ascending[positions[contained]] == numbers[contained]
    return positions, contained


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the distinct numbers, ascending; `numpy.unique` of millions takes several times as long."""
    ascending = np.sort(numbers)
    result: np.ndarray = ascending[np.diff(ascending, prepend=ascending[:1] - 1) != 0]
    return result


def gathered(starts: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and the values of some rows of lists that lie one after the other."""
    lengths = np.diff(starts)[rows]
    ends = np.cumsum(lengths)
    places = np.arange(int(lengths.sum())) - np.repeat(ends - lengths - starts[rows], lengths)
    return np.concatenate([[0], ends]).astype(np.int64), values[places]


def in_order(pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ascending pairs that one level removed, and their separating sets."""
    for part in mapped_arrays.pieces(len(pairs) - 1, PAIRS_AT_ONCE):
        (i, j), (next_i, next_j) = pairs[part].T, pairs[part.start + 1 : part.stop + 1].T
        if not ((i < next_i) | ((i == next_i) & (j < next_j))).all():
            order = np.lexsort((pairs[:, 1], pairs[:, 0]))
            return pairs[order], sets[order]
    return pairs, sets


def row_starts(pairs: np.ndarray, p: int) -> np.ndarray:
    """The position of the first of the ascending pairs whose first variable is at least i: (p + 1,) int64."""
    counts = np.zeros(p + 1, np.int64)
    for part in mapped_arrays.pieces(len(pairs), PAIRS_AT_ONCE):
        counts[1:] += np.bincount(pairs[part, 0], minlength=p)
    return np.cumsum(counts)


def row_groups(starts: np.ndarray, most: int | None = None) -> Iterator[slice]:
    """Cut the first variables into slices of at most `most` pairs, given `row_starts`; one with more has its own."""
    first, p = 0, len(starts) - 1
    while first < p:
        last = int(np.searchsorted(starts, starts[first] + (most or PAIRS_AT_ONCE), side="right")) - 1
        last = min(max(last, first + 1), p)
        yield slice(first, last)
        first = last


def merge(levels: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge several levels' pairs into one ascending list: pairs, sizes of their sets, concatenated members."""
    runs = [(pairs, np.full(len(sets), sets.shape[1], np.int64), sets.reshape(-1)) for pairs, sets in levels]
    return functools.reduce(_merge_two, sorted(runs, key=lambda run: len(run[0])))


def _merge_two(
    few: tuple[np.ndarray, np.ndarray, np.ndarray], many: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge two (pairs, sizes, members) lists by binary search for the places of the shorter one."""
    if not len(few[0]):
        return many
    keys = [run[0][:, 0].astype(np.int64) << 32 | run[0][:, 1] for run in (few, many)]
    from_few = np.zeros(len(keys[0]) + len(keys[1]), bool)
    from_few[np.searchsorted(keys[1], keys[0]) + np.arange(len(keys[0]))] = True
    whole, sizes = (np.empty(len(from_few), np.int64) for _ in range(2))  # moving a pair as one int64 is much faster
    whole[from_few], whole[~from_few] = (np.ascontiguousarray(run[0]).view(np.int64)[:, 0] for run in (few, many))
    sizes[from_few], sizes[~from_few] = few[1], many[1]
    members, member_from_few = np.empty(len(few[2]) + len(many[2]), np.int32), np.repeat(from_few, sizes)
    members[member_from_few], members[~member_from_few] = few[2], many[2]
    return whole.view(np.int32).reshape(-1, 2), sizes, members
