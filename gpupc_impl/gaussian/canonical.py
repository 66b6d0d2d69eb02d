"""The canonical evaluation of Fisher's z test (docs/ci-tests.md) for many tests at once, in NumPy.

The kernels (kernels/fisher_z.cuh) and the references (baselines/_fisher_z.py) have implementations of their own that
compute the same bits. Single tests and verification use this third one where rounding errors could decide a test.

Arrays hold one test in each place of their last axis, so that every operation processes all tests.
"""

import math
from typing import NamedTuple

import numpy as np

from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, GaussianProblem


class Residuals(NamedTuple):
    """H of cuPC, section 4.3: the residual variances of Vi and Vj and their residual covariance given S, (k,) each; and
    (k,) bool that tells whether M2 is near singular, so that its Moore-Penrose inverse was used."""

    ii: np.ndarray
    jj: np.ndarray
    ij: np.ndarray
    near_singular: np.ndarray


def separates(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return which of the (k, l) sets separate the (k, 2) pairs, (k,) bool, by the bits that decide in every method."""
    return decided(problem, residuals(problem.correlation, pairs, sets, problem.pivot_tolerance), sets.shape[1])


def decided(problem: GaussianProblem, h: Residuals, level: int) -> np.ndarray:
    """Return in which tests, given sets of `level` members, the set separates, (k,) bool."""
    tolerance, critical = problem.residual_tolerance, problem.critical_r_squared(level)
    explained, possible = h.ij * h.ij, h.ii * h.jj
    if tolerance > 0:
        return (np.minimum(h.ii, h.jj) > tolerance) & (explained <= critical * possible)
    # Without a tolerance, rounding errors decide: |r| may exceed one, and then counts as its inverse.
    size = np.abs(possible)
    return (h.ii != 0) & (h.jj != 0) & ((explained <= critical * size) | (size <= critical * explained))


def residuals(correlation: np.ndarray, pairs: np.ndarray, sets: np.ndarray, pivot_tolerance: float) -> Residuals:
    """Return H of the tests of (k, 2) pairs given (k, l) sets; (i, j) and (j, i) have the same H."""
    variables = in_order(pairs, sets)
    return residuals_of(correlation[variables[:, None], variables[None]], pivot_tolerance)


def in_order(pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return the (l + 2, k) variables of tests in the order of the evaluation: sets, then pairs, ascending each."""
    return np.concatenate([np.sort(sets, axis=1), np.sort(pairs, axis=1)], axis=1).T


def residuals_of(c: np.ndarray, pivot_tolerance: float) -> Residuals:
    """Return H for (l + 2, l + 2, k) correlations among the variables of each test (`in_order`)."""
    size, k = len(c) - 2, c.shape[2]
    rows, scale = np.zeros((size + 2, size, k)), np.empty((size, k))
    near_singular = np.zeros(k, bool)
    left = np.ones((size + 2, k))  # the residual variance of each variable given the members before it
    for a in range(size + 2):
        for b in range(min(a, size)):
            covariance = c[a, b]
            for t in range(b):
                covariance = fma(-rows[a, t], rows[b, t], covariance)
            rows[a, b] = covariance * scale[b]
            left[a] = fma(-rows[a, b], rows[a, b], left[a])
        if a < size:
            near_singular |= (left[a] <= pivot_tolerance) & (a > 0)
            scale[a] = np.where(near_singular, 0.0, 1.0 / np.sqrt(np.where(near_singular, 1.0, left[a])))
    ii, jj, ij = left[size], left[size + 1], c[size, size + 1].copy()
    for t in range(size):
        ij = fma(-rows[size, t], rows[size + 1, t], ij)
    if near_singular.any():
        ii[near_singular], jj[near_singular], ij[near_singular] = _by_pseudo_inverse(c[:, :, near_singular])
    return Residuals(ii, jj, ij, near_singular)


def _by_pseudo_inverse(c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the three entries of H by the Moore-Penrose inverse of M2 (cuPC, Algorithm 7) for (l + 2, l + 2, k)
    correlations, of which the pair's are last.

    With M2^T M2 = F F^T and F of full rank, the inverse is made of two least-squares solutions for each end. A column
    that F lacks is a column of zeros here: it changes no bit of the others.
    """
    size = len(c) - 2
    m2 = c[:size, :size]
    gram = _products(m2, m2)
    smallest = np.diagonal(gram).min(axis=-1)
    factor = np.zeros_like(m2)  # [a, k] is entry a of column k
    for k in range(size):
        column = gram[k:, k]
        for before in range(k):
            column = fma(-factor[k:, before], factor[k, before], column)
        kept = column[0] > PSEUDO_INVERSE_TOLERANCE * smallest
        factor[k:, k] = np.where(kept, column / np.sqrt(np.where(kept, column[0], 1.0)), 0.0)
    triangle = np.zeros_like(m2)  # Modified Gram-Schmidt decomposes F = Q triangle, and Q overwrites F.
    for k in range(size):
        triangle[k, k] = np.sqrt(_dot(factor[:, k], factor[:, k]))
        factor[:, k] /= np.where(triangle[k, k] > 0, triangle[k, k], 1.0)
        for b in range(k + 1, size):
            triangle[k, b] = _dot(factor[:, k], factor[:, b])
            factor[:, b] = fma(-triangle[k, b], factor[:, k], factor[:, b])

    def solve(target: np.ndarray) -> np.ndarray:
        """Return the (l, k) least-squares solutions for (l, k) targets."""
        x = np.empty_like(target)
        for k in range(size):
            x[k] = _dot(factor[:, k], target)
            target = fma(-x[k], factor[:, k], target)
        for k in reversed(range(size)):
            for b in range(k + 1, size):
                x[k] = fma(-triangle[k, b], x[b], x[k])
            x[k] /= np.where(triangle[k, k] > 0, triangle[k, k], 1.0)
        return x

    of_ends = c[:size, size:]
    products = _products(m2, of_ends)
    left, right = ([solve(targets[:, end]) for end in (0, 1)] for targets in (of_ends, products))
    ii, jj, ij = np.ones(c.shape[2]), np.ones(c.shape[2]), c[size, size + 1]
    for k in range(size):
        ii = fma(-left[0][k], right[0][k], ii)
        jj = fma(-left[1][k], right[1][k], jj)
        ij = fma(-left[0][k], right[1][k], ij)
    return ii, jj, ij


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the products a^T b of (l, m, k) and (l, n, k) matrices."""
    total = np.zeros((a.shape[1], *b.shape[1:]))
    for left, right in zip(a, b, strict=True):
        total = fma(left[:, None], right[None], total)
    return total


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros(a.shape[1:])
    for factor, other in zip(a, b, strict=True):
        total = fma(factor, other, total)
    return total


SPLITTER = 2.0**27 + 1  # Veltkamp's constant, which splits the significand of a float64 into two halves
SAFE = 2.0**-900, 2.0**900
"""Magnitudes of products and sums for which no part of an exact product underflows or overflows."""


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a b + c for float64 arrays that broadcast, rounded once.

    NumPy has no fused multiply-add. The product and the sums are made exact by error-free transformations, and the last
    but one addition rounds to odd (Boldo and Melquiond 2008, Emulation of FMA and correctly rounded sums).
    """
    product = a * b
    high_a, high_b = (x * SPLITTER - (x * SPLITTER - x) for x in (a, b))
    low_a, low_b = a - high_a, b - high_b
    product_error = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
    low, low_error = _two_sum(c, product_error)
    high, high_error = _two_sum(product, low)
    odd, error = _two_sum(low_error, high_error)
    bits = odd.view(np.int64)
    to_odd = (error != 0) & (bits & 1 == 0)
    bits[to_odd] += np.where((error > 0) == (odd > 0), 1, -1)[to_odd]
    result = np.asarray(high + odd)
    size = np.abs(product)
    unsafe = ((size < SAFE[0]) & (a != 0) & (b != 0)) | ~(size + np.abs(c) < SAFE[1])
    for place in np.argwhere(unsafe).tolist():
        result[*place] = _exact_fma(*(float(np.broadcast_to(x, result.shape)[*place]) for x in (a, b, c)))
    return result


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounded sum and its rounding error, which add up to a + b exactly."""
    total = np.asarray(a + b)
    of_b = total - a
    return total, np.asarray((a - (total - of_b)) + (b - of_b))


def _exact_fma(a: float, b: float, c: float) -> float:
    """Return a b + c, rounded once: Python's division of integers is correctly rounded."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    return (an * bn * cd + cn * ad * bd) / (ad * bd * cd)
