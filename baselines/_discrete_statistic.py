"""Chi-square and G-square (gpuPC, section 2.3), computed from a table or from samples sorted by stratum, compiled with
numba.

The order of additions is that of the GPU methods, so that statistics have the same bits: the terms of a stratum by rows
and then columns, the strata in chunks of 64, and then the chunks.
"""

import numpy as np

from baselines._compile import compiled, inlined

CHUNK = 64
"""The number of strata whose terms are added up before their sum is added to the total."""


@compiled
def statistic_of_table(space, r_i, r_j, strata, logs):
    """Return the statistic of the counts in ``space.table``, and the adjusted degrees of freedom."""
    total = in_chunk = 0.0
    df = 0
    for stratum in range(strata):
        if stratum % CHUNK == 0:
            total += in_chunk
            in_chunk = 0.0
        part, degrees = statistic_of_counts(space, stratum * r_i * r_j, r_i, r_j, logs)
        in_chunk += part
        df += degrees
    total += in_chunk
    return (2.0 * total if len(logs) else total), df


@compiled
def statistic_of_counts(space, at, r_i, r_j, logs):
    """Return the terms and degrees of freedom of one stratum, from its counts in ``space.table[at : at + r_i *
    r_j]``."""
    table, rows, cols = space.table, space.rows, space.cols
    n = n_rows = n_cols = 0
    for a in range(r_i):
        in_row = 0
        for b in range(r_j):
            count = table[at + a * r_j + b]
            in_row += count
            cols[b] += count
        rows[a] = in_row
        n_rows += in_row > 0
        n += in_row
    for b in range(r_j):
        n_cols += cols[b] > 0
    part = 0.0
    if n_rows > 1 and n_cols > 1:  # Otherwise every count equals its expectation.
        for a in range(r_i):
            if rows[a]:
                for b in range(r_j):
                    if cols[b]:
                        part += term(table[at + a * r_j + b], rows[a], cols[b], n, logs)
    for b in range(r_j):
        cols[b] = 0
    return part, max(n_rows - 1, 0) * max(n_cols - 1, 0)


@compiled
def term(count, in_row, in_col, n, logs):
    """Return a cell's term: (N - E)^2 / E of chi-square, or N log(N / E) of half of G-square. Row and column are not
    empty."""
    if len(logs):
        # All methods add the same tabulated logarithms instead of the logarithm of a quotient.
        return count * ((logs[count] + logs[n]) - (logs[in_row] + logs[in_col])) if count else 0.0
    expected = (float(in_row) * float(in_col)) / float(n)
    difference = float(count) - expected
    return difference * difference / expected


@compiled
def statistic_of_sorted(data, space, r_i, r_j, members):
    """Return the statistic and the adjusted degrees of freedom, from samples sorted by stratum."""
    order, other, base = space.order, space.other_order, space.base[0]
    for k in range(len(order)):
        order[k] = k
    for s in members:  # The sort is stable, so the last member is the most significant.
        sort_by_code(data.codes[s], order, data.totals[data.places[s] : data.places[s + 1]], other)
        order, other = other, order
    total = in_chunk = 0.0
    chunk = df = start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and same_stratum(data.codes, members, order[start], order[stop]):
            stop += 1
        if stop - start > 1:  # The count of a single sample equals its expectation.
            stratum, stride = 0, 1
            for s in members:
                stratum += stride * data.codes[s, order[start]]
                stride *= data.categories[s]
            if stratum // CHUNK != chunk:
                total += in_chunk
                in_chunk, chunk = 0.0, stratum // CHUNK
            cells = space.sorted[: stop - start]
            for at in range(start, stop):
                cells[at - start] = base[order[at]]
            if r_i * r_j <= min(4 * len(cells), len(space.table)):
                for cell in range(r_i * r_j):
                    space.table[cell] = 0
                for cell in cells:
                    space.table[cell] += 1
                part, degrees = statistic_of_counts(space, 0, r_i, r_j, data.logs)
            else:
                sort(cells)
                part, degrees = statistic_of_cells(cells, r_j, space.cols, space.used, data.logs)
            in_chunk += part
            df += degrees
        start = stop
    total += in_chunk
    return (2.0 * total if len(data.logs) else total), df


@inlined
def same_stratum(codes, members, a, b):
    """Return whether samples a and b have the same categories of all members."""
    same = True
    for s in members:
        same &= codes[s, a] == codes[s, b]
    return same


@compiled
def sort(values):
    """Sort in place by Shell's method, which suits the few samples of most strata."""
    n = len(values)
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap:
        for at in range(gap, n):
            value, to = values[at], at
            while to >= gap and values[to - gap] > value:
                values[to] = values[to - gap]
                to -= gap
            values[to] = value
        gap //= 3


@compiled
def statistic_of_cells(cells, r_j, cols, used, logs):
    """Return the terms and degrees of freedom of one stratum, from the ascending cells of its samples.

    ``cols`` contains only zeros before and after the call.
    """
    n, n_rows, n_cols, part = len(cells), 0, 0, 0.0
    for cell in cells:
        cols[cell % r_j] += 1
    for b in range(r_j):
        if cols[b]:
            used[n_cols] = b
            n_cols += 1
    at = 0
    while at < n:
        row = cells[at] // r_j
        stop = at
        while stop < n and cells[stop] // r_j == row:
            stop += 1
        in_row = stop - at
        n_rows += 1
        for t in range(n_cols):
            count = 0
            while at < stop and cells[at] == row * r_j + used[t]:
                count += 1
                at += 1
            part += term(count, in_row, cols[used[t]], n, logs)
    for t in range(n_cols):
        cols[used[t]] = 0
    return part, (n_rows - 1) * (n_cols - 1)


@compiled
def sort_by_code(codes, order, totals, out):
    """Write the samples in ascending order of their codes, by a stable counting sort of the samples in ``order``."""
    ends = np.empty(len(totals), np.int64)
    end = 0
    for c in range(len(totals)):
        ends[c] = end
        end += totals[c]
    for k in order:
        out[ends[codes[k]]] = k
        ends[codes[k]] += 1
