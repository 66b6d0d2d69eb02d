"""PC-stable with CMIknn, compiled with numba, which the references of the nonlinear and the mixed family share. This is
Algorithm 1 of GPU-CMIknn, the test of Runge (2018), with the fixed rules of docs/cmiknn.md: random numbers come from
Philox, sums are whole multiples of 2^-40, and the smaller index wins a tie. The code shares nothing with the kernels,
and draws permutations by the sequential scheme of the paper, one sample after the other in the order of their
priorities. Sets, their order and every random number are those of the GPU methods, and so are all p-values. Each
variable is a row of an array: x (n,) is the permuted variable, ys (w, n) are the variables tested against x, and s (l,
n) is the conditioning set; all have one float dtype."""

import concurrent.futures
import itertools
import weakref
from collections.abc import Callable

import numpy as np

from baselines._compile import compiled, inlined
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.registry import Run
from gpupc_impl.core.tiers import allowed_partners
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.problem import NonlinearProblem

LOW = np.uint64(0xFFFFFFFF)
INDEX_BITS = np.uint64(0xFFFFFF)  # The low bits of a priority hold the index of the sample, so that priorities differ.
FOLD, DRAW = np.uint64(0), np.uint64(1)  # The last word of a counter separates the uses of the generator.
COLUMNS = 128  # number of permutations that are evaluated at once, which bounds the memory
SMALLEST_TASK = 32  # lower bound on the samples of a thread's task
BISECTIONS = 8  # number of bisections of an interval before only the distances in it are considered


# --- random numbers --------------------------------------------------------------------------------------------------
@compiled
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 (Salmon et al. 2011): four random 32-bit words, each in 64 bits, from a counter and a key."""
    for _ in range(10):
        first = np.uint64(0xD2511F53) * c0
        second = np.uint64(0xCD9E8D57) * c2
        c0 = (second >> np.uint64(32)) ^ c1 ^ k0
        c1 = second & LOW
        c2 = (first >> np.uint64(32)) ^ c3 ^ k1
        c3 = first & LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & LOW
    return c0, c1, c2, c3


def permutation_key(seed: int, variable: int, members: tuple[int, ...]) -> tuple[np.uint64, np.uint64]:
    """Return the key of all random numbers for the permutations of a variable given a set (ascending members)."""
    k0 = k1 = zero = np.uint64(0)
    for word in (seed % 2**32, seed // 2**32, variable, len(members), *members):
        k0, k1, _, _ = philox(np.uint64(word), zero, zero, FOLD, k0, k1)
        k0, k1 = np.uint64(k0), np.uint64(k1)
    return k0, k1


@inlined
def words(sample, permutation, block, key):
    """Return random words 4 block to 4 block + 3 of a sample in a permutation."""
    return philox(np.uint64(sample), np.uint64(permutation), np.uint64(block), DRAW, key[0], key[1])


# --- permutations ----------------------------------------------------------------------------------------------------
@inlined
def insert(d, b, inserted, distances, nearest):
    """Insert sample b at distance d among the nearest so far, in ascending order; returns how many there are now."""
    k = len(distances)
    if inserted == k and d >= distances[k - 1]:
        return inserted
    r = min(inserted, k - 1)
    while r > 0 and distances[r - 1] > d:
        distances[r], nearest[r] = distances[r - 1], nearest[r - 1]
        r -= 1
    distances[r], nearest[r] = d, b
    return min(inserted + 1, k)


@compiled
def nearest_neighbours(s, k, first, last, neighbours):
    """Fill rows [first, last) of an (n, k) int32 array with the nearest other samples in S, by distance, then index."""
    n = s.shape[1]
    row = np.empty(n, s.dtype)
    distances = np.empty(k, s.dtype)
    for a in range(first, last):
        distances_from(s, a, row)
        inserted, nearest = 0, neighbours[a]
        for b in range(n):
            if b != a:
                inserted = insert(row[b], b, inserted, distances, nearest)


@compiled
def distances_from(s, a, row):
    """Write the Chebyshev distances of all samples from sample a; zeros when s has no rows."""
    row[:] = 0
    for member in s:
        centre = member[a]
        for b in range(len(row)):
            row[b] = max(row[b], abs(member[b] - centre))


@compiled
def free_permutation(n, permutation, key, scratch):
    """Return the permutation of level 0, (n,): the indexes of the samples in the order of their priorities."""
    priorities, order = scratch
    for a in range(n):
        w0, w1, _, _ = words(a, permutation, 0, key)
        priorities[a] = w0 << np.uint64(32) | (w1 & ~INDEX_BITS & LOW) | np.uint64(a)
    sort_by_priority(priorities, order)
    return order


@compiled
def sort_by_priority(priorities, order):
    """Write the indexes in ascending order of priorities, which are uniform over 64 bits, by a bucket sort."""
    n = len(priorities)
    starts = np.zeros(n + 1, np.int64)
    for a in range(n):
        starts[priority_bucket(priorities[a], n) + 1] += 1
    for b in range(n):
        starts[b + 1] += starts[b]
    for a in range(n):
        bucket = priority_bucket(priorities[a], n)
        order[starts[bucket]] = a
        starts[bucket] += 1
    for at in range(1, n):  # The insertion sort suffices, since buckets hold one priority on average.
        a = order[at]
        r = at
        while r > 0 and priorities[order[r - 1]] > priorities[a]:
            order[r] = order[r - 1]
            r -= 1
        order[r] = a


@inlined
def priority_bucket(priority, n):
    """Return the bucket of a priority among n: floor(n priority / 2^64)."""
    return np.int64(((priority >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled
def permute(x, neighbours, key, permutations, columns):
    """Write the permutations with these numbers into (n, width) columns; a negative number means x itself. Algorithm 1,
    lines 5 to 20: in a random order of the samples, each sample takes the first of its shuffled neighbours that no
    other sample has taken, or the last neighbour if all are taken. The shuffle (Fisher-Yates from the front) stops at
    the neighbour taken. Without neighbours (k = 0, level 0) the permutation is unrestricted."""
    n, k = neighbours.shape
    scratch = (np.empty(n, np.uint64), np.empty(n, np.int32))
    used = np.full(n, -1, np.int64)
    shuffled = np.empty(k, np.int32)
    for column in range(len(permutations)):
        permutation = permutations[column]
        if permutation < 0:
            columns[:, column] = x
            continue
        order = free_permutation(n, permutation, key, scratch)
        if k == 0:
            for a in range(n):
                columns[a, column] = x[order[a]]
            continue
        for place in range(n):
            a = order[place]
            for r in range(k):
                shuffled[r] = neighbours[a, r]
            w0, w1, w2, w3 = words(a, permutation, 0, key)
            taken = shuffled[0]
            for y in range(k):
                at = 2 + y
                if at % 4 == 0:
                    w0, w1, w2, w3 = words(a, permutation, at // 4, key)
                word = w0 if at % 4 == 0 else w1 if at % 4 == 1 else w2 if at % 4 == 2 else w3
                other = y + np.int64((word * np.uint64(k - y)) >> np.uint64(32))
                taken = shuffled[other]
                shuffled[other] = shuffled[y]
                if used[taken] != column:
                    break
            used[taken] = column
            columns[a, column] = x[taken]


# --- conditional mutual information ----------------------------------------------------------------------------------
@compiled
def partial_sums(columns, ys, s, k, psi, first, last):
    """Return the (w, width) int64 sums of psi(n_xz) + psi(n_yz) - psi(n_z) over samples [first, last). Loops over all
    (n, width) columns of permutations are innermost, to vectorize. The radius of a sample is the distance to its k-th
    nearest other sample in the joint space, which bisection finds among samples near in (Y, S): as near as the radius
    of the previous sample, or farther if that is too small. ``psi`` are (n + 1,) int64 digammas in units of 2^-40."""
    n, width = columns.shape
    dtype = columns.dtype.type
    sums = np.zeros((len(ys), width), np.int64)
    row_s, row = np.empty(n, columns.dtype), np.empty(n, columns.dtype)
    near = np.empty(n, np.int32)
    joint = np.empty((n, width), columns.dtype)
    radius, n_x = np.empty(width, columns.dtype), np.empty(width, columns.dtype)
    n_y, n_z = np.empty(width, columns.dtype), np.empty(width, columns.dtype)
    sorted_x = np.sort(columns[:, 0])  # The sorted values serve level 0, at which every column has the same counts.
    sorted_y = np.empty((len(ys) if len(s) == 0 else 0, n), columns.dtype)
    for t in range(len(sorted_y)):
        sorted_y[t] = np.sort(ys[t])
    reach = np.zeros(len(ys), columns.dtype)
    for a in range(first, last):
        distances_from(s, a, row_s)
        centre = columns[a]
        for t in range(len(ys)):
            y = ys[t]
            for b in range(n):
                row[b] = max(row_s[b], abs(y[b] - y[a]))
            k_th_distances(columns, a, row, k, reach[t], near, joint, radius)
            widest = radius[0]
            for c in range(width):
                # Samples at a distance below the radius are counted; if the radius is zero, samples at distance zero.
                radius[c] = np.nextafter(radius[c], dtype(0))
                widest = max(widest, radius[c])
            reach[t] = widest * dtype(1.1)
            if len(s) == 0:
                for c in range(width):
                    n_x[c] = count_within(sorted_x, centre[c], radius[c])
                    n_y[c] = count_within(sorted_y[t], y[a], radius[c])
                    n_z[c] = n
            else:
                count_near(columns, centre, row_s, row, radius, widest, n_x, n_y, n_z)
            for c in range(width):
                sums[t, c] += psi[np.int64(n_x[c])] + psi[np.int64(n_y[c])] - psi[np.int64(n_z[c])]
    return sums


@compiled
def k_th_distances(columns, a, row, k, reach, near, joint, radius):
    """Write, for each column, the distance from sample a to its k-th nearest other sample in the joint space. ``row``
    holds the distances in (Y, S); ``reach`` is a guess of the largest result; ``near`` and ``joint`` are scratch."""
    n, width = columns.shape
    dtype = columns.dtype.type
    zero, one, none, half = dtype(0), dtype(1), dtype(-1), dtype(0.5)
    enough = dtype(k + 1)  # Sample a itself is among the counted samples.
    centre = columns[a]
    low, middle, counted = (
        np.empty(width, columns.dtype),
        np.empty(width, columns.dtype),
        np.empty(width, columns.dtype),
    )
    below, above = np.empty(width, columns.dtype), np.empty(width, columns.dtype)
    farthest = row.max()

    while True:
        listed = 0
        for b in range(n):
            near[listed] = b
            listed += row[b] <= reach
        counted[:] = zero
        if listed > k:
            for b in range(listed):
                distance, samples, to = row[near[b]], columns[near[b]], joint[b]
                for c in range(width):
                    d = max(abs(samples[c] - centre[c]), distance)
                    to[c] = d
                    counted[c] += one if d <= reach else zero
            if counted.min() >= enough:
                break
            if listed == n:  # Only distances in the permuted variable can be larger than the reach.
                reach = joint.max()
                counted[:] = n
                break
        larger = max(reach * dtype(1.25), farthest * dtype(1 / 64))
        reach = larger if larger > reach else farthest  # A product of subnormal numbers may round to the old reach.

    # The invariant: at most k distances are <= low, and `counted` > k of them are <= radius.
    low[:] = none
    radius[:] = reach
    active = True
    while active:
        for _ in range(BISECTIONS):
            for c in range(width):
                middle[c] = (max(low[c], zero) + radius[c]) * half
                below[c] = zero  # a count during these passes
            for b in range(listed):
                distances = joint[b]
                for c in range(width):
                    below[c] += one if distances[c] <= middle[c] else zero
            for c in range(width):
                if below[c] >= enough:
                    radius[c], counted[c] = middle[c], below[c]
                else:
                    low[c] = middle[c]
            if counted.max() == enough:
                break
        below[:] = none
        above[:] = reach
        for b in range(listed):
            distances = joint[b]
            for c in range(width):
                d = distances[c]
                below[c] = max(below[c], d if d <= radius[c] else none)
                above[c] = min(above[c], d if d > low[c] else reach)
        active = False
        for c in range(width):
            radius[c] = below[c]
            active |= counted[c] > enough and below[c] > above[c]


@compiled
def count_near(columns, centre, row_s, row, radius, widest, n_x, n_y, n_z):
    """Write, for each column, the numbers of samples within the radius of a in (X, S), in (Y, S) and in S."""
    width = len(radius)
    dtype = columns.dtype.type
    zero, one = dtype(0), dtype(1)
    n_x[:] = zero
    n_y[:] = zero
    n_z[:] = zero
    for b in range(len(row)):
        in_s, in_y = row_s[b], row[b]
        if in_s > widest:
            continue
        samples = columns[b]
        for c in range(width):
            n_x[c] += one if max(abs(samples[c] - centre[c]), in_s) <= radius[c] else zero
            n_z[c] += one if in_s <= radius[c] else zero
        if in_y <= widest:
            for c in range(width):
                n_y[c] += one if in_y <= radius[c] else zero


@compiled
def count_within(ascending, centre, radius):
    """Return the number of ascending values within a radius of one of them. Differences are compared, as for all other
    distances; adding the radius to the centre would round differently."""
    n = len(ascending)
    low, high = 0, n  # This bisection finds the first value that is not too far below.
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < centre and abs(ascending[middle] - centre) > radius:
            low = middle + 1
        else:
            high = middle
    first = low
    high = n  # This bisection finds the first value that is too far above.
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] > centre and abs(ascending[middle] - centre) > radius:
            high = middle
        else:
            low = middle + 1
    return low - first


# --- the test and the search ------------------------------------------------------------------------------------------
class CmiknnTest:
    """The test of Algorithm 1 for one permuted variable and set, and any number of other variables at once. Threads, to
    which `map_tasks` gives tasks, share the samples; sums are of integers and every random number has its own counter,
    so the result does not depend on them."""

    COLUMN_MULTIPLE = 16  # the width of blocks, so that vectorized loops over columns have no scalar remainder

    def __init__(self, problem: NonlinearProblem, threads: int = 1, map_tasks=map):
        self._problem, self._map_tasks = problem, map_tasks
        size = max(ceil_div(problem.n_samples, 4 * threads), SMALLEST_TASK) if threads > 1 else problem.n_samples
        firsts = range(0, problem.n_samples, size)
        self._samples = [(first, min(first + size, problem.n_samples)) for first in firsts]
        self._shares = threads

    @classmethod
    def single(cls, problem: NonlinearProblem, threads: int) -> Callable[..., float]:
        """`p_value` of a test whose threads end when it is garbage collected."""
        if threads == 1:
            return cls(problem).p_value
        pool = concurrent.futures.ThreadPoolExecutor(threads)
        test = cls(problem, threads, pool.map)
        weakref.finalize(test, pool.shutdown)
        return test.p_value

    def partial_sums(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """Return the sums that determine CMI, (w, permutations + 1) int64; the sum of the data comes first."""
        numbers, x = np.arange(-1, self._problem.permutations), self._problem.values[permuted]
        key = permutation_key(self._problem.seed, permuted, members)
        neighbours = self._neighbours(list(members))
        sums = []
        for start in range(0, len(numbers), COLUMNS):
            block = numbers[start : start + COLUMNS]
            padding = np.full(-len(block) % self.COLUMN_MULTIPLE, -1)
            columns = self._permutations(x, neighbours, key, np.append(block, padding))
            add_up = self._adder(columns, permuted, list(others), list(members))
            sums.append(sum(self._map_tasks(add_up, self._samples))[:, : len(block)])
        return np.concatenate(sums, axis=1)

    def _adder(self, columns: np.ndarray, permuted: int, others: list[int], members: list[int]) -> Callable:
        """Return a function from a range of samples to their sums of psi(n_xz) + psi(n_yz) - psi(n_z), (w, width)."""
        values, k, psi = self._problem.values, self._problem.k_cmi, self._problem.psi
        ys, s = values[others], values[members]
        return lambda samples: partial_sums(columns, ys, s, k, psi, *samples)

    def counts(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """Return numbers of permutations, (w,), whose CMI is at least the data's: whose sum is at most its."""
        sums = self.partial_sums(permuted, others, members)
        return (sums[:, 1:] <= sums[:, :1]).sum(axis=1)

    def p_value(self, permuted: int, other: int, members: tuple[int, ...]) -> float:
        return float(self._problem.p_value(self.counts(permuted, [other], members)[0]))

    def _neighbours(self, members: list[int]) -> np.ndarray:
        """The nearest samples in S, nearest first, as (n, k_perm) int32; (n, 0) if S is empty."""
        neighbours = np.empty((self._problem.n_samples, self._problem.k_perm if members else 0), np.int32)
        if members:
            list(self._map_tasks(lambda samples: self._fill_neighbours(members, *samples, neighbours), self._samples))
        return neighbours

    def _fill_neighbours(self, members: list[int], first: int, last: int, neighbours: np.ndarray) -> None:
        s = self._problem.values[members]
        nearest_neighbours(s, self._problem.k_perm, first, last, neighbours)

    def _permutations(self, x: np.ndarray, neighbours: np.ndarray, key, numbers: np.ndarray) -> np.ndarray:
        """Return a permutation of x in each column: (n, width)."""
        columns = np.empty((len(x), len(numbers)), x.dtype)
        shares = np.array_split(np.arange(len(numbers)), self._shares)

        def fill(share):
            part = slice(share[0], share[-1] + 1)
            permute(x, neighbours, key, numbers[part], columns[:, part])

        list(self._map_tasks(fill, [share for share in shares if len(share)]))
        return columns


def cmiknn_skeleton(problem: NonlinearProblem, run: Run, threads: int, test_class: type[CmiknnTest] = CmiknnTest):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        test = test_class(problem, threads, map if threads == 1 else pool.map)
        search = _CmiknnSearch(problem, run.pmax, test)
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


class _CmiknnSearch(GraphSearch):
    """PC-stable on one problem, variable by variable, with sets in lexicographic order. The permutations of a variable
    given a set serve all its neighbours that are not separated yet. A pair is visited first from its smaller end, so
    the tests are those of a serial PC-stable that visits edge after edge."""

    def __init__(self, problem: NonlinearProblem, pmax: bool, test: CmiknnTest):
        super().__init__(problem, pmax)
        self._test = test

    def run_level(self, level: int) -> LevelOutcome:
        neighbours = [np.flatnonzero(row).tolist() for row in self.adjacent]
        to_test = set(map(tuple, self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).tolist()))
        removed: dict[tuple[int, int], tuple[int, ...]] = {}
        tests, possible = 0, progress_watcher.possible_tests(self.adjacent, level)
        for permuted, row in enumerate(neighbours):
            others = [k for k in row if level or k > permuted]  # At level 0 a pair is tested only from its smaller end.
            others = [k for k in others if (min(k, permuted), max(k, permuted)) in to_test - removed.keys()]
            if len(row) <= level:
                continue
            for members in itertools.combinations(row, level):
                if not others:
                    break
                tested = allowed_partners(self.problem.tiers, permuted, others, members)
                if not tested:
                    continue
                tests += len(tested)
                counts = self._test.counts(permuted, tested, members)
                progress_watcher.advance(tests, possible, "possible tests")
                self.note_p_values(permuted, tested, self.problem.p_value(counts))
                for k in np.array(tested)[counts >= self.problem.critical_count].tolist():
                    removed[min(k, permuted), max(k, permuted)] = members
                    others.remove(k)
        return self.remove(level, tests, removed)
