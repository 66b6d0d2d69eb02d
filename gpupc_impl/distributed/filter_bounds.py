"""Upper bounds on the rounding errors of the fast products that decide levels 0 and 1 (kernels/filter.cu)."""

from __future__ import annotations

import math

UNIT_ROUNDOFF = 2.0**-53

SINGLE_ROUNDOFF = 2.0**-24


def product_bound(m: int) -> float:
    """Return an upper bound on the difference of two correlations of m samples that are summed in different orders.

    A sum of m products, in any order and with or without fused operations, differs from the exact sum by at most
    gamma_m |x| |y| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), where gamma_m = m u / (1 - m
    u) and u = 2^-53. The length of a standardised column is one up to rounding, which the bound covers by m + 8 in the
    place of m. Clamping two numbers to [-1, 1] does not increase their difference.
    """
    steps = (m + 8) * UNIT_ROUNDOFF
    return 2 * steps / (1 - steps)


def excess_bound(m: int, critical: float) -> float:
    """Return an upper bound on the error of `excess` (kernels/filter.cu) where the excess is near zero, for a critical
    r^2.

    Write x and y for the correlations of either end with the third variable, h for the residual covariance, and u =
    2^-24 for the unit roundoff of single precision. Rounding a number of magnitude at most one to single precision
    changes the number by at most u / 2. A stored correlation therefore differs from the canonical one by at most e = u
    / 2 + `product_bound`.

    - Errors of correlations change h by at most e (1 + |x| + |y|), and h^2 by 2 |h| times as much. Where the excess is
      zero, |h| is the square root of c (1 - x^2) (1 - y^2), where c is the critical value. If z is the mean of |x| and
      |y|, this root is at most c^(1/2) (1 - z^2). The change of h^2 is therefore at most
      2 c^(1/2) e (1 - z^2) (1 + 2 z), which is below 2 c^(1/2) e 1.52.
    - Errors of correlations change (1 - x^2) (1 - y^2) by at most 2 e (|x| (1 - y^2) + |y| (1 - x^2)). With x = sin a
      and y = sin b the term in brackets is at most sin(a + b), and hence at most one.
    - Rounding h changes h^2 by at most 2 u c. In c (1 - x^2) (1 - y^2), rounding changes both variances by u / 2, and c
      and two products by u times their values.
    """
    u = SINGLE_ROUNDOFF
    entry = product_bound(m) + u / 2
    bound = 2 * 1.52 * math.sqrt(critical) * entry + critical * (2 * entry + 6 * u) + (3 * entry + u) ** 2
    return bound * (1 + 2.0**-10) + 2.0**-50  # covers terms of higher order and rounding in the canonical test


NEEDED_SLACK = 2.0**-15  # slack of `needed_product`, which is larger than what rounding adds to it
MOST_CRITICAL = 0.25  # the critical r^2 from which on there is no `needed_product`, since rounding would add more to it


def needed_product(critical: float) -> tuple[float, float]:
    """Return numbers s and o for which |r_ik r_jk| >= s |r_ij| - o if k separates i and j, for a critical r^2.

    Write a = |r_ik|, b = |r_jk|, and c for the critical value. A set {k} separates if |r_ij - r_ik r_jk| is at most
    (c (1 - a^2) (1 - b^2))^(1/2). This root is at most c^(1/2) (1 - a b), since (1 - a^2) (1 - b^2) = (1 - a b)^2 -
    (a - b)^2, and the left side is at least |r_ij| - a b. Hence a b (1 - c^(1/2)) >= |r_ij| - c^(1/2).

    The larger of a and b is then at least the root of s |r_ij| - o. The slack in o is so large that this holds for
    correlations in single precision, too, each of which is off by less than 2^-24: it raises the root by at least
    2^-17 while the root is at most one, and rounding s |r_ij| - o adds less than 2^-22 to it.
    """
    if critical >= MOST_CRITICAL:
        return 0.0, 1.0
    scale = 1 / (1 - math.sqrt(critical))
    return scale, scale * math.sqrt(critical) + NEEDED_SLACK
