"""Tails of weighted sums of chi-square variables from the power sums of the weights: no eigenvalue is needed.

A test's statistic is asymptotically sum(w_k X_k), with X_k chi-square with one degree of freedom and w_k the
eigenvalues of a matrix C. The cumulants of the statistic are 2^(r-1) (r-1)! tr(C^r), so traces of powers suffice here:

- Satterthwaite-Welch: a gamma distribution with the same mean and variance;
- Hall-Buckley-Eagleson: a shifted gamma distribution with the same mean, variance and skewness;
- Lindsay, Pilla and Basak (2000): a mixture of four gamma distributions of one shape with the same eight moments.

Bodenham and Adams (2016) compare them. All functions work on many tests at once, in host memory, so that equal traces
give equal p-values on every backend."""

import math

import numpy as np
import scipy

from gpupc_impl.core.mapped_arrays import pieces

COMPONENTS = 4  # Gamma distributions in the mixture of Lindsay, Pilla and Basak, which matches twice as many moments
STEPS, STEP = 24, 1e-10  # of the search for the mixture: how many at most, and the relative size of the last
MULTIPLES = np.array([[0.0], *([float(k)] for k in range(2 * COMPONENTS))])  # k of the factors 1 + k s, from d_0 on
USUAL = (0.755, 0.866, 0.91)  # shares of the upper bounds near which the roots of most tests lie
AT_ONCE = 1 << 11  # Tests that are computed at a time, so that their moments stay in a core's cache


def upper_tail(null: str, statistics: np.ndarray, power_sums: np.ndarray) -> np.ndarray:
    """(t,) p-values of (t,) statistics, given (t, 8) sums of the first eight powers of the weights. Where all weights
    are zero, a variable is constant or determined by the set, and the p-value is 1."""
    p_values = np.ones(len(statistics))
    for part in pieces(len(statistics), AT_ONCE):
        defined = part.start + np.flatnonzero(power_sums[part, 0] > 0)
        scale = power_sums[defined, 0]
        sums = power_sums[defined].T / scale ** np.arange(1, power_sums.shape[1] + 1)[:, None]  # weights sum to 1
        p_values[defined] = _TAILS[null](statistics[defined] / scale, sums)
    return np.clip(p_values, 0.0, 1.0)


def _satterthwaite_welch(statistics: np.ndarray, sums: np.ndarray) -> np.ndarray:
    scale = 2 * sums[1]
    return scipy.special.gammaincc(1 / scale, np.maximum(statistics, 0) / scale)


def _hall_buckley_eagleson(statistics: np.ndarray, sums: np.ndarray) -> np.ndarray:
    variance, third = 2 * sums[1], 8 * sums[2]
    freedom = 8 * variance**3 / third**2
    shifted = np.sqrt(2 * freedom / variance) * (statistics - 1) + freedom
    return scipy.special.gammaincc(freedom / 2, np.maximum(shifted, 0) / 2)


def _lindsay_pilla_basak(statistics: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The method ``lpb4`` of R's and Python's momentchi2; Hall-Buckley-Eagleson's where no such mixture exists. Let m_r
    be the moments, 1 / s the shape, and d_r = m_r / ((1 + s) (1 + 2 s) ... (1 + (r - 1) s)). For the right s the Hankel
    matrix of the d_r is singular, and the d_r are the moments of a distribution on four points. These points are the
    means of the gamma distributions; points and weights are as for a Gauss quadrature (Golub and Welsch 1969)."""
    p_values = _hall_buckley_eagleson(statistics, sums)
    with np.errstate(all="ignore"):
        moments = _moments(sums)
        spread = moments[2] - 1  # s of one gamma distribution with the same mean and variance
        for size, usual in enumerate(USUAL, 3):
            spread = _root(moments, spread, size, usual)
        means, weights = _quadrature(_divided(moments, spread))
        scaled = statistics / (means * spread)
        mixture = (weights * scipy.special.gammaincc(1 / spread, np.maximum(scaled, 0))).sum(axis=0)
    valid = np.isfinite(mixture) & (means > 0).all(axis=0)
    return np.where(valid, mixture, p_values)


_TAILS = {
    "lindsay-pilla-basak": _lindsay_pilla_basak,
    "satterthwaite-welch": _satterthwaite_welch,
    "hall-buckley-eagleson": _hall_buckley_eagleson,
    "gamma": _satterthwaite_welch,
}


def _moments(sums: np.ndarray) -> np.ndarray:
    """(9, t) moments from 0 to 8 of the weighted sums of chi-square variables."""
    order = 2 * COMPONENTS
    cumulants = [2.0 ** (r - 1) * math.factorial(r - 1) * sums[r - 1] for r in range(1, order + 1)]
    moments = np.ones((order + 1, sums.shape[1]))
    for r in range(1, order + 1):
        moments[r] = sum(math.comb(r - 1, k - 1) * cumulants[k - 1] * moments[r - k] for k in range(1, r + 1))
    return moments


def _divided(moments: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """(9, t) the d_r of (t,) values of s."""
    return moments / np.cumprod(1 + MULTIPLES[: len(moments)] * spread, axis=0)


def _factor(divided: np.ndarray, size: int, columns: int) -> np.ndarray:
    """(size, size, t) Hankel matrices H = L D L^T of the d_r, with the first columns eliminated; all but one column
    leave the upper triangular U = D L^T."""
    rows: np.ndarray = divided[np.add.outer(range(size), range(size))]
    for k in range(columns):
        rows[k + 1 :, k + 1 :] -= (rows[k, k + 1 :] * (1 / rows[k, k]))[:, None] * rows[k, k + 1 :]
    return rows


def _root(moments: np.ndarray, high: np.ndarray, size: int, usual: float) -> np.ndarray:
    """(t,) the s in (0, high) for which the Hankel matrix of that size is singular. The determinant is positive at 0
    and negative at `high`, which is the s of a mixture with one component less; between them all pivots but the last
    are positive. Its sign is that of the Schur complement of all columns but two, whose determinant over its diagonal
    changes far less with s. Secant steps are those of Anderson and Bjoerck (1973), which scale the value at a kept end
    of the interval. A root is left as it is once its step is small, so that it does not depend on the other tests."""

    def complement(spread: np.ndarray) -> np.ndarray:
        divided = _divided(moments[: 2 * size - 1], spread)
        rows = _factor(divided, size, size - 2)
        return (rows[-2, -2] * rows[-1, -1] - rows[-2, -1] ** 2) / (divided[-1] * divided[-3])

    low, kept = np.zeros_like(high), np.zeros(high.shape, np.int8)
    at_low, at_high = complement(low), complement(high)
    moves = at_high < 0  # Otherwise fewer components suffice, up to rounding errors.
    root = np.where(moves, usual * high, high)
    for _ in range(STEPS):
        at_root = complement(root)
        above = at_root > 0
        share = 1 - at_root / np.where(above, at_low, at_high)
        share = np.where(share > 0, share, 0.5)
        at_high = np.where(above, np.where(kept == 1, at_high * share, at_high), at_root)
        at_low = np.where(above, at_root, np.where(kept == -1, at_low * share, at_low))
        low, high, kept = np.where(above, root, low), np.where(above, high, root), np.where(above, 1, -1)
        following = (low * at_high - high * at_low) / (at_high - at_low)
        following = np.where(moves, np.clip(following, low, high), root)
        moves &= np.abs(following - root) > STEP * root
        root = following
        if not moves.any():
            break
    return root


def _quadrature(divided: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(4, t) points and weights of the distribution with these moments, by the eigenvalues of its Jacobi matrix."""
    places = range(COMPONENTS)
    factor = _factor(divided, COMPONENTS + 1, COMPONENTS)
    pivots, slopes = factor[places, places], factor[places, range(1, COMPONENTS + 1)] / factor[places, places]
    jacobi = np.zeros((divided.shape[1], COMPONENTS, COMPONENTS))
    jacobi[:, places, places] = np.diff(slopes, axis=0, prepend=0).T
    jacobi[:, range(1, COMPONENTS), range(COMPONENTS - 1)] = np.sqrt(pivots[1:] / pivots[:-1]).T
    broken = ~np.isfinite(jacobi).all(axis=(1, 2))
    jacobi[broken] = np.eye(COMPONENTS)
    points, vectors = np.linalg.eigh(jacobi)
    points[broken] = np.nan
    return points.T, vectors[:, 0, :].T ** 2
