"""The CMIknn test, compiled with numba, which `cmiknn-serial` and `cmiknn-parallel` share.

This is Algorithm 1 of GPU-CMIknn, the test of Runge (2018), with the fixed rules of docs/cmiknn.md: random numbers come
from Philox, sums are whole multiples of 2^-40, and the smaller index wins a tie. The code shares nothing with the
kernels, and draws permutations by the sequential scheme of the paper, one sample after the other in the order of their
priorities. Sets, their order and every random number are those of the GPU methods, and so are all p-values.

Each variable is a row of an array: x (n,) is the permuted variable, ys (w, n) are the variables tested against x, and s
(l, n) is the conditioning set; all have one float dtype.
"""

import numpy as np

from baselines._compile import compiled, inlined

LOW = np.uint64(0xFFFFFFFF)
INDEX_BITS = np.uint64(0xFFFFFF)  # The low bits of a priority hold the index of the sample, so that priorities differ.
FOLD, DRAW = np.uint64(0), np.uint64(1)  # The last word of a counter separates the uses of the generator.

BISECTIONS = 8
"""The number of bisections of an interval before only the distances in it are considered."""


# --- random numbers --------------------------------------------------------------------------------------------------


@compiled
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 (Salmon et al. 2011): computes four random 32-bit words, each stored in 64 bits, from a counter and
    a key."""
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
    """Fill rows [first, last) of an (n, k) int32 array with the k nearest other samples in S, by distance and then by
    index."""
    n = s.shape[1]
    row = np.empty(n, s.dtype)
    distances = np.empty(k, s.dtype)
    for a in range(first, last):
        distances_from(s, a, row)
        if k > 64:  # This branch sorts, since inserting a sample would take up to k steps.
            row[a] = np.inf
            order = np.argsort(row, kind="mergesort")  # The sort is stable, so that ties keep the order of indexes.
            for r in range(k):
                neighbours[a, r] = order[r]
            continue
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
    """Write the indexes in ascending order of priorities, which differ and are uniform over 64 bits, by a bucket
    sort."""
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
    """Write the permutations with these numbers into (n, width) columns; a negative number means x without a
    permutation.

    Algorithm 1, lines 5 to 20: in a random order of the samples, each sample takes the first of its shuffled neighbours
    that no other sample has taken, or the last neighbour if all are taken. The shuffle (Fisher-Yates from the front)
    stops at the neighbour taken. Without neighbours (k = 0, level 0) the permutation is unrestricted.
    """
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
    """Return the sums of psi(n_xz) + psi(n_yz) - psi(n_z) over samples [first, last), for each y and each column.

    Loops over all columns are innermost, so that they vectorize. The radius of a sample is the distance to its k-th
    nearest other sample in the joint space. Bisection finds the radius among the samples that are near in (Y, S) only.
    The radius of the previous sample is the guess of how near, which is enlarged if it turns out too small.

    Args:
        columns: (n, width) permutations of the permuted variable, one per column.
        psi: (n + 1,) int64: digammas of integers in units of 2^-40.

    Returns:
        (w, width) int64.
    """
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
    """Write, for each column, the distance from sample a to its k-th nearest other sample in the joint space.

    ``row`` holds the distances in (Y, S), and ``reach`` is a guess of the largest result; ``near`` and ``joint`` are
    working memory.
    """
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
    """Write, for each column, the numbers of samples within the radius of sample a in (X, S), in (Y, S) and in S."""
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
    """Return the number of ascending values within a radius of a centre, which is one of the values.

    Differences are compared with the radius, as for all other distances; adding the radius to the centre would round
    differently.
    """
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
