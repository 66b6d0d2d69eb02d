"""The CMIknn test of mixed data, compiled with numba, which `mixed-serial` and `mixed-parallel` share: the estimator of
Mesner and Shalizi (2021) with the local permutations of Runge (2018), by the rules of docs/mixed.md. Random numbers,
and the permutations drawn from lists of neighbours, are those of `_cmiknn`; the code shares nothing with the kernels.
Sets, their order and every random number are those of the GPU method, and so are all p-values. Each variable is a row
of an array of one float dtype; a categorical variable consists of codes, and different codes have the distance 1."""

from collections.abc import Callable

import numpy as np

from baselines._cmiknn import CmiknnTest, count_within, insert
from baselines._compile import compiled, inlined
from gpupc_impl.mixed.problem import MixedProblem


@inlined
def distance(a, b, categorical, different):
    """Return the distance of two values of a variable; `different` is the distance of different categories."""
    if categorical:
        return different if a != b else different - different
    return abs(a - b)


@compiled
def distances_from(s, categorical, a, different, row):
    """Write the distances of all samples from sample a in s, (l, n); (l,) flags mark categorical variables."""
    row[:] = 0
    for m in range(len(s)):
        for b in range(len(row)):
            row[b] = max(row[b], distance(s[m, b], s[m, a], categorical[m], different))


@compiled
def nearest_neighbours(s, categorical, k, first, last, neighbours):
    """Fill rows [first, last) of an (n, k) int32 array with the k nearest other samples of the same categories. Samples
    are ordered by distance, and then by index, cyclically from the sample on. If there are fewer than k such samples
    they are repeated; if there is none, the sample itself is repeated."""
    n = s.shape[1]
    row, distances = np.empty(n, s.dtype), np.empty(k, s.dtype)
    never = s.dtype.type(np.inf)
    for a in range(first, last):
        distances_from(s, categorical, a, never, row)
        inserted, nearest = 0, neighbours[a]
        for step in range(1, n):
            b = (a + step) % n
            if row[b] != never:
                inserted = insert(row[b], b, inserted, distances, nearest)
        if inserted == 0:
            neighbours[a, 0] = a
            inserted = 1
        for r in range(inserted, k):
            neighbours[a, r] = neighbours[a, r - inserted]


@compiled
def partial_sums(permuted, x_categorical, ys, y_categorical, s, s_categorical, k, psi, first, last):
    """Return the (w, width) int64 sums of psi(n_xz) + psi(n_yz) - psi(n_z) - psi(k~) over samples [first, last). Other
    samples are visited in the order of their distances in (Y, S), up to the distance of the k-th neighbour in the joint
    space. Arguments: (width, n) permutations of x, (w, n) ys, (l, n) s, (n + 1,) digammas in units of 2^-40."""
    width, n = permuted.shape
    one = permuted.dtype.type(1)
    sums = np.zeros((len(ys), width), np.int64)
    row_s, row, row_y = np.empty(n, permuted.dtype), np.empty(n, permuted.dtype), np.empty(n, permuted.dtype)
    nearest = np.empty(k, permuted.dtype)
    sorted_x = np.sort(permuted[0])  # The sorted values serve level 0, at which every row has the same counts.
    by_s = np.arange(n)
    for a in range(first, last):
        distances_from(s, s_categorical, a, one, row_s)
        if len(s):
            by_s = np.argsort(row_s)
        for t in range(len(ys)):
            distances_from(ys[t : t + 1], y_categorical[t : t + 1], a, one, row_y)
            for b in range(n):
                row[b] = max(row_s[b], row_y[b])
            by_y = np.argsort(row)
            for c in range(width):
                x = permuted[c]
                radius = k_th_distance(x, x_categorical, a, row, by_y, k, nearest)
                joint = n_y = n_x = n_z = -1  # The sample itself does not count.
                for b in by_y:
                    if row[b] > radius:
                        break
                    n_y += 1
                    joint += distance(x[b], x[a], x_categorical, one) <= radius
                if len(s) == 0:
                    n_z += n
                    if x_categorical:
                        n_x += n if radius >= one else count_within(sorted_x, x[a], radius - radius)
                    else:
                        n_x += count_within(sorted_x, x[a], radius)
                else:
                    for b in by_s:
                        if row_s[b] > radius:
                            break
                        n_z += 1
                        n_x += distance(x[b], x[a], x_categorical, one) <= radius
                sums[t, c] += psi[n_x] + psi[n_y] - psi[n_z] - psi[joint]
    return sums


@compiled
def k_th_distance(x, x_categorical, a, row, order, k, nearest):
    """Return the distance from sample a to its k-th nearest other sample in the joint space. (n,) distances in (Y, S)
    ascend in the order of `order`; `nearest` is scratch: a heap of the smallest, largest first."""
    one = x.dtype.type(1)
    length = 0
    for b in order:
        if b == a:
            continue
        if length == k and row[b] >= nearest[0]:
            break
        d = max(distance(x[b], x[a], x_categorical, one), row[b])
        if length < k:
            at = length
            length += 1
            while at > 0 and nearest[(at - 1) // 2] < d:
                nearest[at] = nearest[(at - 1) // 2]
                at = (at - 1) // 2
            nearest[at] = d
        elif d < nearest[0]:
            at = 0
            while True:
                child = 2 * at + 1
                if child + 1 < k and nearest[child + 1] > nearest[child]:
                    child += 1
                if child >= k or nearest[child] <= d:
                    break
                nearest[at] = nearest[child]
                at = child
            nearest[at] = d
    return nearest[0]


class MixedTest(CmiknnTest):
    """The test of `CmiknnTest` for mixed data."""

    COLUMN_MULTIPLE = 1
    _problem: MixedProblem

    def _adder(self, columns: np.ndarray, permuted: int, others: list[int], members: list[int]) -> Callable:
        """Return a function from a range of samples to their sums, (w, width)."""
        problem, rows = self._problem, np.ascontiguousarray(columns.T)
        values, categorical = problem.values, problem.categories > 0
        ys, s = (values[others], categorical[others]), (values[members], categorical[members])
        fixed = rows, categorical[permuted], *ys, *s, problem.k_cmi, problem.psi
        return lambda samples: partial_sums(*fixed, *samples)

    def _fill_neighbours(self, members: list[int], first: int, last: int, neighbours: np.ndarray) -> None:
        s, categorical = self._problem.values[members], self._problem.categories[members] > 0
        nearest_neighbours(s, categorical, self._problem.k_perm, first, last, neighbours)
