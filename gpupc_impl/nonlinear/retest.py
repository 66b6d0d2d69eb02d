"""The CMIknn test from scratch in NumPy by docs/cmiknn.md, for verification without the code of the kernels.
Permutations follow the sequential scheme of GPU-CMIknn's Algorithm 1, sample by sample. CMI values come from all
distances between samples, computed some rows of their matrix at a time."""

import numpy as np

from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.nonlinear.problem import NonlinearProblem

_MASK = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_FOLD, _DRAW = 0, 1
_INDEX_BITS = 24
DISTANCES_AFFORDED = 2 * 10**9  # in the joint space, for all retests of an answer: about half a minute
_AT_ONCE = 1 << 18  # the upper bound on the numbers in a temporary array of distances or of neighbours


class Retest:
    """Implements `core.family.Retest` for CMIknn, where the first variable of a pair is permuted. The ratio is the
    critical count over the test's, so that a ratio up to 1 separates. Counts are integers, so tolerances are 0."""

    def __init__(self, problem: NonlinearProblem):
        self._problem = problem
        self.affordable = max(DISTANCES_AFFORDED // ((problem.permutations + 1) * problem.n_samples**2), 1)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return critical counts over those of (k, 2) pairs given (k, l) sets, and tolerances of 0, (k,) each."""
        counts = np.array(
            [self.count(i, j, members) for (i, j), members in zip(pairs.tolist(), sets.tolist(), strict=True)], float
        )
        with np.errstate(divide="ignore"):
            return self._problem.critical_count / counts, np.zeros(len(pairs))

    def count(self, i: int, j: int, members: list[int]) -> int:
        """Return the number of permutations of variable i whose CMI with j given the members is at least the data's."""
        partials = self.partials(i, j, members)
        return int(np.count_nonzero(partials[1:] <= partials[0]))

    def partials(self, i: int, j: int, members: list[int]) -> np.ndarray:
        """Return (1 + perm,) sums of psi(n_xz) + psi(n_yz) - psi(n_z), of the data and each permutation of i."""
        problem = self._problem
        n = problem.n_samples
        own_space, other_space, set_space = (self._space(variables) for variables in ([i], [j], members))
        orders = np.concatenate([np.arange(n)[None], permutations(problem, i, members, self._nearest(members))])
        sums = np.zeros(len(orders), np.int64)
        for rows in pieces(n, max(_AT_ONCE // n, 1)):
            in_set = distances(set_space, rows)
            in_both = np.maximum(in_set, distances(other_space, rows))
            for number, order in enumerate(orders):
                own = distances(own_space[:, order], rows)
                joint = np.maximum(own, in_both)
                set_own(joint, rows)
                radius = np.partition(joint, problem.k_cmi - 1, axis=1)[:, problem.k_cmi - 1 : problem.k_cmi]
                sums[number] += self._terms(radius, joint, np.maximum(own, in_set), in_both, in_set).sum()
        return sums

    # --- methods that mixed/retest.py overrides -------------------------------------------------------------------
    def _space(self, variables: list[int]) -> np.ndarray:
        """Return (l, n) coordinates whose Chebyshev distance is the distance in the variables."""
        return self._problem.values[variables]

    def _nearest(self, members: list[int]) -> np.ndarray | None:
        """Return each sample's neighbours in the space of the members, (n, k_perm) int32; None without members."""
        return _nearest(self._space(members), self._problem.k_perm) if members else None

    def _terms(self, radius, joint, in_x, in_y, in_set) -> np.ndarray:
        """Return the (r,) terms of r samples, from (r, 1) radii and (r, n) distances in four spaces."""
        psi = self._problem.psi
        near_x, near_y, near_set = (_near(space, radius) for space in (in_x, in_y, in_set))
        return psi[near_x] + psi[near_y] - psi[near_set]  # Without members, all distances are 0, and near_set is n.


def permutations(problem: NonlinearProblem, i: int, members: list[int], nearest: np.ndarray | None) -> np.ndarray:
    """Return (perm, n) int32, the index of the sample whose value of variable i each sample gets in each permutation,
    given the members of S and (n, k_perm) neighbours in the space of S, None if S is empty."""
    n, k = problem.n_samples, problem.k_perm
    key = _key(problem.seed, i, members)
    result = np.empty((problem.permutations, n), np.int32)
    for some in pieces(problem.permutations, max(_AT_ONCE // n, 1)):
        permutation = np.arange(some.start, some.stop)[:, None]
        turns = _turns(key, permutation, n)
        if nearest is None:
            result[some] = turns
            continue
        used = np.zeros((len(turns), n), bool)
        each = np.arange(len(turns))
        for at in pieces(n, max(_AT_ONCE // (len(turns) * k), 1)):
            lists = _shuffled(nearest, key, turns[:, at], permutation)
            # In each permutation the sample a, whose turn it is, takes the first free neighbour of its shuffled list.
            for neighbours, a in zip(lists.swapaxes(0, 1), turns[:, at].T, strict=True):
                free = ~used[each[:, None], neighbours]
                free[:, -1] = True  # The last neighbour is taken even if it is not free.
                taken = neighbours[each, free.argmax(axis=1)]
                used[each, taken] = True
                result[some.start + each, a] = taken
    return result


def _turns(key: tuple[int, int], permutation: np.ndarray, n: int) -> np.ndarray:
    """Return the samples in ascending order of their priorities in (w, 1) permutations, (w, n)."""
    sample = np.arange(n, dtype=np.uint64)[None, :]
    high, low, _, _ = _words(key, sample, permutation, 0)
    index = np.uint64((1 << _INDEX_BITS) - 1)
    return np.argsort((high << np.uint64(32)) | (low & ~index) | sample, axis=1)


def _nearest(in_set: np.ndarray, k: int) -> np.ndarray:
    """Return each sample's k nearest others by (l, n) values, in order of distance, then of index: (n, k) int32."""
    n = in_set.shape[1]
    result = np.empty((n, k), np.int32)
    for rows in pieces(n, max(_AT_ONCE // n, 1)):
        apart = distances(in_set, rows)
        set_own(apart, rows)
        result[rows] = np.argsort(apart, axis=1, kind="stable")[:, :k]
    return result


def _shuffled(nearest: np.ndarray, key: tuple[int, int], sample: np.ndarray, permutation: np.ndarray) -> np.ndarray:
    """Return the neighbours of (w, t) samples in their random orders in (w, 1) permutations, (w, t, k)."""
    k = nearest.shape[1]
    lists = nearest[sample]
    for y in range(k):
        if y == 0 or (2 + y) % 4 == 0:
            words = _words(key, sample, permutation, (2 + y) // 4)
        other = y + ((words[(2 + y) % 4] * np.uint64(k - y)) >> np.uint64(32)).astype(np.int64)
        chosen = np.take_along_axis(lists, other[:, :, None], axis=2)[:, :, 0]
        np.put_along_axis(lists, other[:, :, None], lists[:, :, y, None], axis=2)
        lists[:, :, y] = chosen
    return lists


def distances(values: np.ndarray, rows: slice) -> np.ndarray:
    """Return the (r, n) Chebyshev distances of r samples to all samples by (l, n) values; zeros if l is 0."""
    n = values.shape[1]
    result = np.zeros((rows.stop - rows.start, n), values.dtype)
    for coordinate in values:
        np.maximum(result, np.abs(coordinate[rows, None] - coordinate[None, :]), out=result)
    return result


def set_own(apart: np.ndarray, rows: slice) -> None:
    """Set the distance of each sample to itself to infinity in (r, n) distances of r samples."""
    apart[np.arange(len(apart)), np.arange(rows.start, rows.stop)] = np.inf


def _near(apart: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Return (r,) numbers of samples nearer than (r, 1) radii, or at distance 0 if the radius is 0."""
    return np.count_nonzero((apart < radius) | ((radius == 0) & (apart == 0)), axis=1)


# --- random numbers --------------------------------------------------------------------------------------------------
def philox(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> np.ndarray:
    """Return Philox4x32-10 (Salmon et al.), (4, ...) uint64 below 2^32, of four words of counter and two of key."""
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
