"""Fisher's z test (docs/ci-tests.md) for many tests at once, in NumPy or CuPy: the canonical evaluation, whose bits
decide in every method, and the same without fused multiply-adds. Arrays hold one test in each place of their last axis.
The kernels (kernels/fisher_z.cuh) and the references (baselines/_fisher_z.py) have implementations of their own that
compute the bits of the canonical evaluation. Single tests and verification use this third one where rounding errors
could decide a test. It is a hundred times slower than `quick_residuals`, which are off by rounding errors."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, GaussianProblem

MultiplyAdd = Callable[[Any, Any, Any], Any]

ENTRIES_AT_ONCE = {True: 1 << 14, False: 1 << 17}
"""Upper bound on the correlations of the tests that are evaluated at once, so that intermediate results stay in a
core's cache; by whether multiply-adds are fused, which takes more of these."""


class Residuals(NamedTuple):
    """H of cuPC, section 4.3: the residual variances of Vi and Vj and their residual covariance given S, (k,) each;
    (k,) bool that tells whether M2 is near singular, so that its Moore-Penrose inverse was used; and the (l, k) pivots
    of M2, of which those after one that is not positive mean nothing."""

    ii: Any
    jj: Any
    ij: Any
    near_singular: Any
    pivots: Any

    def defined(self, residual_tolerance: float) -> Any:
        """Return in which tests both ends have variance left, (k,) bool."""
        return (self.ii > residual_tolerance) & (self.jj > residual_tolerance)


def separates(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return which of the (k, l) sets separate the (k, 2) pairs, (k,) bool, by the bits that decide in every method."""
    return decided(problem, residuals(problem.correlation, pairs, sets, problem.pivot_tolerance), sets.shape[1])


def decided(problem: GaussianProblem, h: Residuals, level: int) -> np.ndarray:
    """Return in which tests, given sets of `level` members, the set separates, (k,) bool."""
    tolerance, critical = problem.residual_tolerance, problem.critical_r_squared(level)
    explained, possible = h.ij * h.ij, h.ii * h.jj
    if tolerance > 0:
        return h.defined(tolerance) & (explained <= critical * possible)
    # Without a tolerance, rounding errors decide: |r| may exceed one, and then counts as its inverse.
    size = np.abs(possible)
    return (h.ii != 0) & (h.jj != 0) & ((explained <= critical * size) | (size <= critical * explained))


def residuals(correlation: np.ndarray, pairs: np.ndarray, sets: np.ndarray, pivot_tolerance: float) -> Residuals:
    """Return H of the tests of (k, 2) pairs given (k, l) sets; (i, j) and (j, i) have the same H."""
    return evaluate(in_order(pairs, sets), functools.partial(among, correlation), pivot_tolerance)


def in_order(pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return the (l + 2, k) variables of tests in the order of the evaluation: sets, then pairs, ascending each."""
    return np.concatenate([np.sort(sets, axis=1), np.sort(pairs, axis=1)], axis=1).T


def among(correlation: Any, variables: Any) -> Any:
    """Return the (v, v, k) correlations among the (v, k) variables of each test."""
    return correlation[variables[:, None], variables[None]]


def quick_residuals(
    problem: GaussianProblem, correlation: Any, pairs: Any, sets: Any, xp: Any = np, dtype: Any = np.float64
) -> Residuals:
    """Return H of (k, 2) pairs given (k, l) sets without fused multiply-adds, by a library, NumPy or CuPy, whose array
    `correlation` is; of `problem` only the tolerance of pivots is read."""

    def correlations(variables: Any) -> Any:
        return among(correlation, variables).astype(dtype, copy=False)

    return evaluate(xp.concatenate([sets, pairs], axis=1).T, correlations, problem.pivot_tolerance, False, xp)


def evaluate(
    variables: Any, correlations: Callable[[Any], Any], pivot_tolerance: float, fused: bool = True, xp: Any = np
) -> Residuals:
    """Return H of tests of (l + 2, k) variables, by NumPy in pieces; ``correlations(variables)`` is as `among`."""
    size, k = variables.shape
    at_once = max(1, ENTRIES_AT_ONCE[fused] // size**2 if xp is np else k)
    some = (correlations(variables[:, part]) for part in mapped_arrays.pieces(k, at_once))
    parts = [residuals_of(c, pivot_tolerance, fused, xp) for c in (some if k else [xp.empty((size, size, 0))])]
    return Residuals(*(xp.concatenate(entries, axis=-1) for entries in zip(*parts, strict=True)))


def residuals_of(c: Any, pivot_tolerance: float, fused: bool = True, xp: Any = np) -> Residuals:
    """Return H for (l + 2, l + 2, k) correlations among the variables of each test (`in_order`)."""
    multiply_add = fma if fused else _rounded_twice
    size, left = len(c) - 2, c
    pivots = xp.empty((size, c.shape[2]), c.dtype)
    for k in range(size):  # Of the Cholesky factor, each step makes one column, and subtracts its products.
        pivots[k] = pivot = left[0, 0]
        column = left[0, 1:] * xp.where(pivot > 0, 1.0 / xp.sqrt(xp.where(pivot > 0, pivot, 1.0)), 0.0)
        left = multiply_add(-column[:, None], column[None], left[1:, 1:])
    ii, jj, ij = left[0, 0], left[1, 1], left[0, 1]
    near_singular = (pivots[1:] <= pivot_tolerance).any(axis=0)
    places = xp.flatnonzero(near_singular)
    if len(places):
        careful = _by_pseudo_inverse(to_host(c[:, :, places]), multiply_add)
        ii[places], jj[places], ij[places] = map(xp.asarray, careful)
    return Residuals(ii, jj, ij, near_singular, pivots)


def to_host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _by_pseudo_inverse(c: np.ndarray, multiply_add: MultiplyAdd) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the three entries of H by the Moore-Penrose inverse of M2 (cuPC, Algorithm 7) for (l + 2, l + 2, k)
    correlations, of which the pair's are last. With M2^T M2 = F F^T and F of full rank, the inverse is made of two
    least-squares solutions for each end. A column that F lacks is zero here: it changes no bit of the others."""
    size = len(c) - 2
    m2 = c[:size, :size]

    def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the products a^T b of (l, ..., k) arrays."""
        total = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), c.dtype)
        for left, right in zip(a, b, strict=True):
            total = multiply_add(left, right, total)
        return total

    gram = products(m2[:, :, None], m2[:, None])
    smallest = np.diagonal(gram).min(axis=-1)
    factor = np.zeros_like(m2)  # [a, k] is entry a of column k
    for k in range(size):
        column = gram[k:, k]
        for before in range(k):
            column = multiply_add(-factor[k:, before], factor[k, before], column)
        kept = column[0] > PSEUDO_INVERSE_TOLERANCE * smallest
        factor[k:, k] = np.where(kept, column / np.sqrt(np.where(kept, column[0], 1.0)), 0.0)
    triangle = np.zeros_like(m2)  # Modified Gram-Schmidt decomposes F = Q triangle, and Q overwrites F.
    for k in range(size):
        triangle[k, k] = np.sqrt(products(factor[:, k], factor[:, k]))
        factor[:, k] /= np.where(triangle[k, k] > 0, triangle[k, k], 1.0)
        for b in range(k + 1, size):
            triangle[k, b] = products(factor[:, k], factor[:, b])
            factor[:, b] = multiply_add(-triangle[k, b], factor[:, k], factor[:, b])

    def solve(target: np.ndarray) -> np.ndarray:
        """Return the (l, k) least-squares solutions for (l, k) targets."""
        x = np.empty_like(target)
        for k in range(size):
            x[k] = products(factor[:, k], target)
            target = multiply_add(-x[k], factor[:, k], target)
        for k in reversed(range(size)):
            for b in range(k + 1, size):
                x[k] = multiply_add(-triangle[k, b], x[b], x[k])
            x[k] /= np.where(triangle[k, k] > 0, triangle[k, k], 1.0)
        return x

    of_ends = c[:size, size:]
    targets = of_ends, products(m2[:, :, None], of_ends[:, None])
    left, right = ([solve(target[:, end]) for end in (0, 1)] for target in targets)
    ii, jj, ij = c[size, size], c[size + 1, size + 1], c[size, size + 1]
    for k in range(size):
        ii = multiply_add(-left[0][k], right[0][k], ii)
        jj = multiply_add(-left[1][k], right[1][k], jj)
        ij = multiply_add(-left[0][k], right[1][k], ij)
    return ii, jj, ij


SPLITTER = 2.0**27 + 1  # Veltkamp's constant, which splits the significand of a float64 into two halves
SAFE = 2.0**-900, 2.0**900  # magnitudes for which no part of an exact product underflows or overflows


def _rounded_twice(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a b + c for float64 arrays that broadcast, rounded once, since NumPy has no fused multiply-add. The
    product and the sums are made exact by error-free transformations, and the last but one addition rounds to odd
    (Boldo and Melquiond 2008, Emulation of FMA and correctly rounded sums)."""
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
