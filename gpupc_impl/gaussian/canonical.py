"""The canonical evaluation of Fisher's z test (docs/ci-tests.md) in plain Python, which is slow.

The kernels (kernels/fisher_z.cuh) and the references (baselines/_fisher_z.py) have implementations of their own that
compute the same bits. Verification uses this third implementation if rounding errors decide a test, and tests compare
the other two implementations with this one.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE


class Residuals(NamedTuple):
    """H of cuPC, section 4.3: the residual variances of Vi and Vj and their residual covariance given S."""

    ii: float
    jj: float
    ij: float
    near_singular: bool


def residuals(correlation: np.ndarray, i: int, j: int, members: Sequence[int], pivot_tolerance: float) -> Residuals:
    """Return H of the test of Vi and Vj given S, whose members are ascending; (i, j) and (j, i) have the same H."""
    i, j = min(i, j), max(i, j)
    c = correlation[np.ix_((*members, i, j), (*members, i, j))].tolist()
    size = len(members)
    rows: list[list[float]] = []  # The last two rows are the projections of Vi and Vj.
    scale: list[float] = []
    for a in range(size + 2):
        row: list[float] = []
        left = 1.0
        for b in range(min(a, size)):
            covariance = c[a][b]
            for k in range(b):
                covariance = fma(-row[k], rows[b][k], covariance)
            row.append(covariance * scale[b])
            left = fma(-row[b], row[b], left)
        rows.append(row)
        if a < size:
            if a > 0 and left <= pivot_tolerance:
                return _by_pseudo_inverse(c, size)
            scale.append(1.0 / math.sqrt(left))
        elif a == size:
            ii = left
    ij = c[size][size + 1]
    for of_i, of_j in zip(rows[size], rows[size + 1], strict=True):
        ij = fma(-of_i, of_j, ij)
    return Residuals(ii, left, ij, False)


def _by_pseudo_inverse(c: list[list[float]], size: int) -> Residuals:
    """Return H by the Moore-Penrose inverse of M2, the leading `size` x `size` block of c; Vi and Vj are the last two
    rows."""
    every = range(size)
    gram = [[_dot([c[k][a] for k in every], [c[k][b] for k in every]) for b in every] for a in every]
    smallest = min(gram[a][a] for a in every)
    columns: list[list[float]] = []  # These are the columns of F, where M2^T M2 = F F^T.
    for k in every:
        column = [0.0] * size
        for a in range(k, size):
            column[a] = gram[a][k]
            for before in columns:
                column[a] = fma(-before[a], before[k], column[a])
        if column[k] <= PSEUDO_INVERSE_TOLERANCE * smallest:
            continue
        root = math.sqrt(column[k])
        columns.append([entry / root for entry in column])
    rank = len(columns)
    # Modified Gram-Schmidt decomposes F = Q triangle, and Q overwrites F.
    triangle = [[0.0] * rank for _ in range(rank)]
    for k in range(rank):
        triangle[k][k] = math.sqrt(_dot(columns[k], columns[k]))
        columns[k] = [entry / triangle[k][k] for entry in columns[k]]
        for b in range(k + 1, rank):
            triangle[k][b] = _dot(columns[k], columns[b])
            columns[b] = _without(columns[b], triangle[k][b], columns[k])

    def solve(target: list[float]) -> list[float]:
        x = [0.0] * rank
        for k in range(rank):
            x[k] = _dot(columns[k], target)
            target = _without(target, x[k], columns[k])
        for k in reversed(range(rank)):
            for b in range(k + 1, rank):
                x[k] = fma(-triangle[k][b], x[b], x[k])
            x[k] /= triangle[k][k]
        return x

    left, right = [], []
    for end in (size, size + 1):
        target = c[end][:size]
        left.append(solve(target))
        right.append(solve([_dot(c[a][:size], target) for a in every]))
    ii, jj, ij = 1.0, 1.0, c[size][size + 1]
    for k in range(rank):
        ii = fma(-left[0][k], right[0][k], ii)
        jj = fma(-left[1][k], right[1][k], jj)
        ij = fma(-left[0][k], right[1][k], ij)
    return Residuals(ii, jj, ij, True)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    total = 0.0
    for factor, other in zip(a, b, strict=True):
        total = fma(factor, other, total)
    return total


def _without(a: list[float], factor: float, b: list[float]) -> list[float]:
    return [fma(-factor, subtracted, entry) for entry, subtracted in zip(a, b, strict=True)]


def fma(a: float, b: float, c: float) -> float:
    """Return a b + c, rounded once.

    Python has no fma before 3.13, but its division of integers is correctly rounded.
    """
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    return (an * bn * cd + cn * ad * bd) / (ad * bd * cd)
