"""The CMIknn test from scratch, for verification: NumPy alone, by docs/cmiknn.md, sharing nothing with the kernels.

Permutations follow the sequential scheme of GPU-CMIknn's Algorithm 1, sample by sample; CMI values come from whole
distance matrices.
"""

from __future__ import annotations

import numpy as np

from gpupc_impl.cmiknn.problem import NonlinearProblem

_MASK = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_FOLD, _DRAW = 0, 1
_INDEX_BITS = 24


class Retest:
    """CMIknn from scratch; see `core.verify.Retest`.

    A pair's first variable is the one that is permuted. The ratio is the critical count over the test's, so that one up
    to 1 separates. Both are whole numbers: no test is near its threshold.
    """

    affordable = 200

    def __init__(self, problem: NonlinearProblem):
        self._problem = problem

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Critical counts over counts of (k, 2) pairs given (k, l) sets, and tolerances of 0, (k,) each."""
        counts = np.array(
            [self.count(i, j, members) for (i, j), members in zip(pairs.tolist(), sets.tolist(), strict=True)], float
        )
        with np.errstate(divide="ignore"):
            return self._problem.critical_count / counts, np.zeros(len(pairs))

    def count(self, i: int, j: int, members: list[int]) -> int:
        """How many permutations of variable i have a CMI with j given the members that reaches the data's."""
        partials = self.partials(i, j, members)
        return int(np.count_nonzero(partials[1:] <= partials[0]))

    def partials(self, i: int, j: int, members: list[int]) -> np.ndarray:
        """(1 + perm,) sums of psi(n_xz) + psi(n_yz) - psi(n_z), of the data and of each permutation of variable i."""
        problem = self._problem
        values, n, psi = problem.values, problem.n_samples, problem.psi
        in_set = np.zeros((n, n), values.dtype)
        for s in members:
            np.maximum(in_set, _distances(values[s]), out=in_set)
        in_both = np.maximum(in_set, _distances(values[j]))
        orders = permutations(problem, i, members, in_set)
        partials = []
        for order in np.concatenate([np.arange(n)[None], orders]):
            own = _distances(values[i, order])
            joint = np.maximum(own, in_both)
            np.fill_diagonal(joint, np.inf)
            radius = np.partition(joint, problem.k_cmi - 1, axis=1)[:, problem.k_cmi - 1 : problem.k_cmi]
            near_x = _near(np.maximum(own, in_set), radius)
            near_y = _near(in_both, radius)
            near_set = _near(in_set, radius) if members else np.full(n, n)
            partials.append((psi[near_x] + psi[near_y] - psi[near_set]).sum())
        return np.array(partials)


def permutations(problem: NonlinearProblem, i: int, members: list[int], in_set: np.ndarray) -> np.ndarray:
    """(perm, n) int64: the sample whose value of variable i each sample gets, given (n, n) distances in S."""
    n, perm, k = problem.n_samples, problem.permutations, problem.k_perm
    key = _key(problem.seed, i, members)
    sample, permutation = np.arange(n)[None, :], np.arange(perm)[:, None]
    words = [_words(key, sample, permutation, q) for q in range(-(-(k + 2) // 4))]
    words = np.concatenate(words, axis=0)  # (words, perm, n)
    index = np.uint64((1 << _INDEX_BITS) - 1)
    priority = (words[0] << np.uint64(32)) | (words[1] & ~index) | sample.astype(np.uint64)
    turns = np.argsort(priority, axis=1)
    if not members:
        return turns
    others = in_set.astype(np.float64)
    np.fill_diagonal(others, np.inf)
    nearest = np.argsort(others, axis=1, kind="stable")[:, :k]
    lists = np.broadcast_to(nearest, (perm, n, k)).copy()
    for y in range(k):
        other = y + ((words[2 + y] * np.uint64(k - y)) >> np.uint64(32)).astype(np.int64)
        chosen = np.take_along_axis(lists, other[:, :, None], axis=2)[:, :, 0]
        np.put_along_axis(lists, other[:, :, None], lists[:, :, y, None], axis=2)
        lists[:, :, y] = chosen
    used = np.zeros((perm, n), bool)
    result = np.empty((perm, n), np.int64)
    each = np.arange(perm)
    for a in turns.T:  # the samples whose turn it is, one in each permutation
        asked = lists[each, a]
        free = ~used[each[:, None], asked]
        free[:, -1] = True  # the last is used all the same
        taken = asked[each, free.argmax(axis=1)]
        used[each, taken] = True
        result[each, a] = taken
    return result


def _distances(column: np.ndarray) -> np.ndarray:
    return np.abs(column[:, None] - column[None, :])


def _near(distances: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """(n,) how many samples are nearer than (n, 1) radii; where a radius is zero, how many are at distance zero."""
    return np.count_nonzero((distances < radius) | ((radius == 0) & (distances == 0)), axis=1)


# --- random numbers --------------------------------------------------------------------------------------------------


def philox(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10: (4, ...) uint64, each below 2^32, of a counter of four words and a key of two (Salmon et al.)."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter))
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            second & _MASK,
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            first & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def _key(seed: int, variable: int, members: list[int]) -> tuple[int, int]:
    key = (0, 0)
    for word in (seed & 0xFFFFFFFF, seed >> 32, variable, len(members), *members):
        key = tuple(map(int, philox((word, 0, 0, _FOLD), key)[:2]))
    return key


def _words(key: tuple[int, int], sample: np.ndarray, permutation: np.ndarray, q: int) -> np.ndarray:
    return philox((sample, permutation, q, _DRAW), key)
