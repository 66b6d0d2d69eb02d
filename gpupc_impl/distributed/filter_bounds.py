"""Upper bounds on the rounding errors of the fast products that decide levels 0 and 1 (kernels/filter.cu)."""

from __future__ import annotations

import math

from gpupc_impl.gaussian.fixed_order import product_bound

SINGLE_ROUNDOFF = 2.0**-24
SCALE, DIGITS = 4032, 11  # of the parts of samples (kernels/parts.cu)
MOST_LENGTH = 2.0**12  # of a first part, whose products then have sums of at most 2^24


def part_bound(m: int, first: float, second: float) -> float:
    """Return an upper bound on the difference of the canonical correlation and the product of samples in parts.

    Write S for `SCALE`, D for 2^`DIGITS`, and x for a standardised variable, a vector of length one. Its first part a
    is S x rounded to an integer of at most 2048, or to an even one beyond, which up to three entries are. Its second
    part b is D f rounded likewise, where f = S x - a; then g = D f - b is left. `first` and `second` bound the lengths
    of f and g of all variables. With y = a' + f' for another variable,

        S^2 x y = a a' + (a b' + b a') / D + (a g' + g a') / D + f f'.

    - FP16 has these integers, and tensor cores multiply them exactly. They add "with at least single precision" (PTX
      ISA, mma), in an order and with a rounding that are not documented. All partial sums of a a' are integers of at
      most |a| |a'|, which is at most 2^24 while S + `first` is at most 2^12. Single precision has all these integers,
      so that the sum is exact in whatever order.
    - The partial sums of the 2 m products a b' and b a' are at most 2 |a| |b|, where |b| <= D `first` + `second`. Each
      addition is off by at most 2^-22 times as much: that is four times the error of rounding to the next number, and
      twice that of cutting digits off. The sum is divided by D, so that this is small.
    - The last two terms are at most 2 |a| `second` / D and `first`^2.
    - The sums are scaled, added and rounded by fewer than four operations in single precision."""
    if SCALE + first > MOST_LENGTH:
        return math.inf
    added = 2 * m * 4 * SINGLE_ROUNDOFF * 2 * (SCALE + first) * (2.0**DIGITS * first + second)
    lost = (added + 2 * (SCALE + first) * second) / 2.0**DIGITS + first * first
    return lost / SCALE**2 * (1 + 2.0**-20) + 4 * SINGLE_ROUNDOFF + product_bound(m)


def excess_bound(error: float, critical: float) -> float:
    """Return an upper bound on the error of `excess` (kernels/filter.cu) where the excess is near zero, for a critical
    r^2 and correlations that are off by at most `error`.

    Write x and y for the correlations of either end with the third variable, h for the residual covariance, e for
    `error`, and u = 2^-24 for the unit roundoff of single precision.

    - Errors of correlations change h by at most e (1 + |x| + |y| + e), and h^2 by 2 |h| times as much and the square.
      Where the excess is zero, |h| is the square root of c (1 - x^2) (1 - y^2), where c is the critical value. If z is
      the mean of |x| and |y|, this root is at most c^(1/2) (1 - z^2). The change of h^2 is therefore at most
      2 c^(1/2) e ((1 - z^2) (1 + 2 z) + e), in which the first product is below 1.52, and the square of e (3 + e) + u.
    - Errors of correlations change (1 - x^2) (1 - y^2) by at most 2 e (|x| (1 - y^2) + |y| (1 - x^2)) + 7 e^2. With x =
      sin a and y = sin b the term in brackets is at most sin(a + b), and hence at most one.
    - Rounding h changes h^2 by at most 2 u c. In c (1 - x^2) (1 - y^2), rounding changes both variances by u / 2, and c
      and two products by u times their values."""
    e, u = error, SINGLE_ROUNDOFF
    bound = 2 * math.sqrt(critical) * e * (1.52 + e) + (e * (3 + e) + u) ** 2 + critical * (2 * e + 7 * e * e + 6 * u)
    return bound * (1 + 2.0**-10) + 2.0**-50  # covers terms of higher order and rounding in the canonical test


NEEDED_SLACK = 2.0**-15  # slack of `needed_product` for correlations with an error of up to 2^-24
MOST_CRITICAL = 0.25  # the critical r^2 from which on there is no `needed_product`, since rounding would add more to it


def needed_product(critical: float, error: float) -> tuple[float, float]:
    """Return numbers s and o for which |r_ik r_jk| >= s |r_ij| - o if k separates i and j, for a critical r^2.

    Write a = |r_ik|, b = |r_jk|, and c for the critical value. A set {k} separates if |r_ij - r_ik r_jk| is at most
    (c (1 - a^2) (1 - b^2))^(1/2). This root is at most c^(1/2) (1 - a b), since (1 - a^2) (1 - b^2) = (1 - a b)^2 -
    (a - b)^2, and the left side is at least |r_ij| - a b. Hence a b (1 - c^(1/2)) >= |r_ij| - c^(1/2).

    The larger of a and b is then at least the root of s |r_ij| - o. The slack in o is so large that this holds for
    correlations in single precision, too, each of which is off by at most `error`, e: s |r_ij| grows by at most s e,
    and where the root is below one, the square of the root plus e is larger by at most 2 e + e^2. `NEEDED_SLACK` covers
    what rounding s |r_ij| - o and the square of the root adds, less than 2^-20."""
    if critical >= MOST_CRITICAL:
        return 0.0, 1.0
    scale = 1 / (1 - math.sqrt(critical))
    return scale, scale * math.sqrt(critical) + error * (scale + 2 + error) + NEEDED_SLACK
