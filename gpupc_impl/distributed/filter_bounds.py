"""Upper bounds on the rounding errors of the fast products that decide levels 0 and 1 (kernels/filter.cu)."""

from __future__ import annotations

import math

UNIT_ROUNDOFF = 2.0**-53

SINGLE_ROUNDOFF = 2.0**-24

EXACT_SUM = 2.0**24  # single precision has all integers up to this one
SCALE = 4032  # of the first parts of samples (kernels/parts.cu)
MOST_LARGE = 3  # the most entries of a vector of length one that are beyond 2048 / SCALE
MOST_DIGITS = 10  # up to which FP16 has the second parts, which are at most 1.5 times 2^digits



def product_bound(m: int) -> float:
    """Return an upper bound on the difference of two correlations of m samples that are summed in different orders.

    A sum of m products, in any order and with or without fused operations, differs from the exact sum by at most
    gamma_m |x| |y| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), where gamma_m = m u / (1 - m
    u) and u = 2^-53. The length of a standardised column is one up to rounding, which the bound covers by m + 8 in the
    place of m. Clamping two numbers to [-1, 1] does not increase their difference.
    """
    steps = (m + 8) * UNIT_ROUNDOFF
    return 2 * steps / (1 - steps)


def rounding_bound(m: int) -> float:
    """Return an upper bound on the difference of a correlation and another one that is rounded to single precision."""
    return product_bound(m) + SINGLE_ROUNDOFF / 2


def part_digits(m: int) -> int:
    """Return the largest number of binary digits for which products of parts are exact (`part_bound`)."""
    first = math.sqrt(m / 4 + MOST_LARGE * (1.5**2 - 0.25))
    digits = math.floor(math.log2(max(1.0, (EXACT_SUM / (2 * (SCALE + first)) - math.sqrt(m) / 2) / first)))
    return min(MOST_DIGITS, digits)


def part_bound(m: int, first: float, second: float) -> float:
    """Return an upper bound on the difference of the canonical correlation and the product of samples in parts.

    Write S for `SCALE`, d for `part_digits`, and x for a standardised variable, a vector of length one. Its first part a
    is S x rounded to integers that FP16 has: to the next one, or beyond 2048 to the next even one, which up to three
    entries are that large. Its second part b is 2^d (S x - a) rounded to integers. With f = S x - a and g = 2^d f - b,
    and with y = a' + f' for another variable, S^2 x y = a a' + (a b' + b a') 2^-d + (a g' + g a') 2^-d + f f'.

    - The products of FP16 are exact. All partial sums of a a' are integers of at most |a| |a'|, and those of a b' + b a'
      of at most |a| |b'| + |b| |a'|. Since |a| <= S + |f|, |f|^2 <= m / 4 + 6 and |b| <= 2^d |f| + m^(1/2) / 2, both are
      at most 2^24 by the choice of S and d. Hence every addition is exact if it is made "with at least single precision"
      (PTX ISA, mma), whatever its order and its rounding.
    - The other terms are at most 2^(1-d) (S + `first`) `second` + `first`^2, where `first` and `second` bound the
      lengths of f and g. They are measured for all variables.
    - The sums are scaled, added and rounded by fewer than four operations in single precision.
    """
    lost = 2.0 ** (1 - part_digits(m)) * (SCALE + first) * second + first * first
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
      and two products by u times their values.
    """
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
    what rounding s |r_ij| - o and the square of the root adds, less than 2^-20.
    """
    if critical >= MOST_CRITICAL:
        return 0.0, 1.0
    scale = 1 / (1 - math.sqrt(critical))
    return scale, scale * math.sqrt(critical) + error * (scale + 2 + error) + NEEDED_SLACK
