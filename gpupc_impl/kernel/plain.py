"""RCIT, RCoT and KCI test by test in plain NumPy, by docs/kernel.md: the reference, also for verification. It shares
the problem's random numbers and constants with the batches, and no other code. It solves linear systems where the
batches multiply by inverses, and computes null distributions from eigenvalues, by momentchi2's steps."""

import math
from collections.abc import Sequence

import numpy as np
import scipy  # SciPy loads its modules at their first use, and every worker imports this file

from gpupc_impl.kernel.problem import (
    BESIDE_SECOND,
    EIGENVALUE_CUTOFF,
    IN_SET,
    KCI_RIDGE,
    NYSTROM_JITTER,
    OWN,
    RIDGE,
    SECOND,
    KernelProblem,
)


class PlainTest:
    def __init__(self, problem: KernelProblem):
        self.problem = problem
        counts = {OWN: problem.features, SECOND: problem.features, BESIDE_SECOND: problem.features}
        counts[IN_SET] = problem.n_set_features
        self._frequencies = {role: problem.frequencies(role, count) for role, count in counts.items()}
        self._test = self._kci if problem.test == "kci" else self._fourier

    def __call__(self, i: int, j: int, members: Sequence[int]) -> tuple[float, float]:
        """The p-value and the statistic of variables i and j given the members, in any order."""
        x, y = sorted((int(i), int(j)))
        if not self.problem.values[x].any() or not self.problem.values[y].any():
            return 1.0, 0.0
        return self._test(x, y, sorted(map(int, members)))

    # --- RCIT and RCoT -----------------------------------------------------------------------------------------------
    def _fourier(self, x: int, y: int, members: list[int]) -> tuple[float, float]:
        n = self.problem.n_samples
        f, g = self._features([(x, OWN)]), self._features([(y, OWN)])
        if members and self.problem.test == "rcit":
            g = self._features([(y, SECOND), *((k, BESIDE_SECOND) for k in members)])
        residual_f, residual_g, scale = f, g, 1.0
        if members:
            h = self._features([(k, IN_SET) for k in members])
            factor = scipy.linalg.cho_factor(h.T @ h / (n - 1) + RIDGE * np.eye(h.shape[1]))
            residual_f, residual_g = (
                each - h @ scipy.linalg.cho_solve(factor, h.T @ each / (n - 1)) for each in (f, g)
            )
            scale = self.problem.weight_scale(
                len(h.T) - RIDGE * np.trace(scipy.linalg.cho_solve(factor, np.eye(len(h.T))))
            )
        statistic = n * float(np.sum((f.T @ residual_g / (n - 1)) ** 2))
        products = np.einsum("ka,kb->kab", residual_f, residual_g).reshape(n, -1)
        weights = scale * np.linalg.eigvalsh(products.T @ products / n)
        weights = weights[weights > 0]
        return (tail(self.problem.null, statistic, weights) if len(weights) else 1.0), statistic

    def _features(self, parts: list[tuple[int, int]]) -> np.ndarray:
        """(n, c) standardized random features of variables in their roles."""
        values, (first, second) = self.problem.values, self.problem.width_pairs.T
        rows = values[[v for v, _ in parts]]
        apart = np.linalg.norm(rows[:, first] - rows[:, second], axis=0)
        width = np.median(apart[apart > 0]) if apart.any() else 1.0
        frequencies, phases = (np.stack([self._frequencies[role][k][v] for v, role in parts]) for k in (0, 1))
        features = np.cos(rows.T @ frequencies / width + phases.sum(axis=0))
        features -= features.mean(axis=0)
        deviation = features.std(axis=0, ddof=1)
        return features / np.where(deviation > 1e-12, deviation, np.inf)

    # --- KCI ---------------------------------------------------------------------------------------------------------
    def _kci(self, x: int, y: int, members: list[int]) -> tuple[float, float]:
        n, level, values = self.problem.n_samples, len(members), self.problem.values
        k_x = self._kernel(np.stack([values[x], *(0.5 * values[k] for k in members)]), level)
        k_y = self._kernel(values[[y]], level)
        if members:
            ridge = self._kernel(values[members], level) + KCI_RIDGE * np.eye(n)
            k_x, k_y = (KCI_RIDGE**2 * np.linalg.solve(ridge, np.linalg.solve(ridge, k).T) for k in (k_x, k_y))
        statistic = float(np.sum(k_x * k_y))
        if members:
            total, squares = np.sum(np.diagonal(k_x) * np.diagonal(k_y)), np.sum((k_x * k_y) ** 2)
        else:
            total, squares = np.trace(k_x) * np.trace(k_y) / n, np.sum(k_x**2) * np.sum(k_y**2) / n**2
        if self.problem.null == "gamma":
            return float(
                scipy.stats.gamma.sf(statistic, total**2 / (2 * squares), scale=2 * squares / total)
            ), statistic
        weights = np.linalg.eigvalsh(k_x * k_y) if members else np.outer(*map(np.linalg.eigvalsh, (k_x, k_y))) / n
        weights = np.sort(weights, axis=None)[::-1]
        draws = self.problem.null_draws(bool(members))
        weights = weights[: len(draws)][weights[: len(draws)] > EIGENVALUE_CUTOFF[bool(members)] * weights[0]]
        return float(np.mean(weights @ draws[: len(weights)] > statistic)), statistic

    def _kernel(self, rows: np.ndarray, level: int) -> np.ndarray:
        """(n, n) the centered Gaussian kernel matrix of (l, n) values, or its Nystrom approximation."""
        width, n = self.problem.width(level), self.problem.n_samples
        if self.problem.is_exact:
            matrix = np.exp(-0.5 * scipy.spatial.distance.cdist(rows.T, rows.T, "sqeuclidean") / width**2)
        else:
            marks = rows[:, self.problem.landmark_samples]
            near, among = (
                np.exp(-0.5 * scipy.spatial.distance.cdist(a.T, marks.T, "sqeuclidean") / width**2)
                for a in (rows, marks)
            )
            matrix = near @ np.linalg.solve(among + NYSTROM_JITTER * np.eye(len(among)), near.T)
        center = np.eye(n) - 1 / n
        return center @ matrix @ center


def tail(null: str, statistic: float, weights: np.ndarray) -> float:
    """The probability that a sum of chi-square variables with positive weights exceeds the statistic."""
    sums = [float(np.sum(weights**r)) for r in range(1, 9)]
    if null == "satterthwaite-welch":
        return float(scipy.stats.gamma.sf(statistic, sums[0] ** 2 / (2 * sums[1]), scale=2 * sums[1] / sums[0]))
    if null == "lindsay-pilla-basak":
        with np.errstate(all="ignore"):
            try:
                p_value = _lindsay_pilla_basak(statistic / sums[0], weights / sums[0])
            except (ValueError, np.linalg.LinAlgError):
                p_value = math.nan
        if math.isfinite(p_value):
            return min(max(p_value, 0.0), 1.0)
    variance, third = 2 * sums[1], 8 * sums[2]
    freedom = 8 * variance**3 / third**2
    return float(scipy.stats.chi2.sf(math.sqrt(2 * freedom / variance) * (statistic - sums[0]) + freedom, freedom))


def _lindsay_pilla_basak(statistic: float, weights: np.ndarray) -> float:
    """The steps of Lindsay, Pilla and Basak (2000) with four components, for weights that sum to one."""
    cumulants = [2 ** (r - 1) * math.factorial(r - 1) * float(np.sum(weights**r)) for r in range(1, 9)]
    moments = [1.0]
    for r in range(1, 9):
        moments.append(sum(math.comb(r - 1, k - 1) * cumulants[k - 1] * moments[r - k] for k in range(1, r + 1)))

    def matrix(spread: float, size: int) -> np.ndarray:
        divided = np.array(moments) / np.cumprod([1, *(1 + r * spread for r in range(8))])
        return scipy.linalg.hankel(divided[:size], divided[size - 1 : 2 * size - 1])

    spread = moments[2] - 1
    for size in (3, 4, 5):
        spread = scipy.optimize.brentq(lambda s, size=size: np.linalg.det(matrix(s, size)), 0, spread, xtol=1e-15)
    hankel = matrix(spread, 5)
    polynomial = [(-1) ** r * np.linalg.det(np.delete(hankel[:4], r, axis=1)) for r in range(5)]
    means = np.roots(polynomial[::-1])
    if np.abs(means.imag).max() > 1e-6 * np.abs(means).max() or means.real.min() <= 0:
        raise ValueError
    shares = np.linalg.solve(np.vander(means.real, increasing=True).T, hankel[0, :4])
    return float(np.sum(shares * scipy.stats.gamma.sf(statistic, 1 / spread, scale=means.real * spread)))
