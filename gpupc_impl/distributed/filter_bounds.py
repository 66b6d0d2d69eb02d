"""Bounds on the errors of the fast numbers by which levels 0 and 1 are decided (kernels/filter.cu)."""

from __future__ import annotations

import math

UNIT_ROUNDOFF = 2.0**-53

SINGLE_ROUNDOFF = 2.0**-24


def product_bound(m: int) -> float:
    """The bound on the difference of two correlations from m samples that are added in different orders.

    A sum of m products, in any order and with or without fused operations, is within gamma_m |x| |y| of the exact one
    (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), where gamma_m = m u / (1 - m u) and u =
    2^-53. Standardised columns have a length of one but for rounding, for which m + 8 takes the place of m. Clamping to
    [-1, 1] brings two numbers no further apart.
    """
    steps = (m + 8) * UNIT_ROUNDOFF
    return 2 * steps / (1 - steps)


def excess_bound(m: int, critical: float) -> float:
    """The bound on the error of `excess` (kernels/filter.cu) where it is near zero, for a critical r^2.

    Write x and y for the correlations of either end with the third variable, h for the residual covariance, and u =
    2^-24 for the unit roundoff of single precision. A number up to one that is rounded to single precision is within
    u / 2, and so a stored correlation is within e = u / 2 + `product_bound` of the canonical one.

    - Errors of correlations move h by at most e (1 + |x| + |y|), and h^2 by 2 |h| times as much. Where the excess is
      zero, |h| is the root of c (1 - x^2) (1 - y^2), c being the critical value. With z the mean of |x| and |y| that
      root is at most c^(1/2) (1 - z^2), so that h^2 moves by at most 2 c^(1/2) e (1 - z^2) (1 + 2 z), which is below
      2 c^(1/2) e 1.52.
    - They move (1 - x^2) (1 - y^2) by at most 2 e (|x| (1 - y^2) + |y| (1 - x^2)). With x = sin a and y = sin b the
      term in brackets is at most sin(a + b), and so at most one.
    - Rounding h moves h^2 by at most 2 u c. Of c (1 - x^2) (1 - y^2), both variances are rounded by u / 2, and c
      and two products by u times their values.
    """
    u = SINGLE_ROUNDOFF
    entry = product_bound(m) + u / 2
    bound = 2 * 1.52 * math.sqrt(critical) * entry + critical * (2 * entry + 6 * u) + (3 * entry + u) ** 2
    return bound * (1 + 2.0**-10) + 2.0**-50  # for terms of higher order, and rounding in the canonical test
