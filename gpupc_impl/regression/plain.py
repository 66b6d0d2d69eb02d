"""The regression tests one by one, as docs/mixed.md defines them: the reference, which verification uses as well. It
fits linear models by least squares and logistic models by SciPy's optimizer; it shares the problem's terms and
constants with the batches, and no other code."""

from collections.abc import Sequence

import numpy as np
import scipy  # SciPy loads its modules at their first use, and every worker imports this file

from gpupc_impl.regression.problem import EXPLAINED, NOTHING, RIDGE, RegressionProblem


class PlainTest:
    def __init__(self, problem: RegressionProblem):
        self.problem = problem
        self._constant = problem.is_constant()

    def __call__(self, i: int, j: int, members: Sequence[int]) -> tuple[float, float]:
        """Return the p-value and the statistic of variables i and j given the members, in any order."""
        i, j = sorted((int(i), int(j)))
        if self._constant[[i, j]].any():
            return 1.0, 0.0
        categories = self.problem.categories
        response, other = (j, i) if categories[j] < categories[i] else (i, j)
        given = [self.problem.terms(int(k)) for k in members if not self._constant[k]]
        smaller = np.concatenate([np.ones((1, self.problem.n_samples)), *given]).T
        added = self.problem.terms(other).T
        p_value, statistic = (self._logistic if categories[response] else self._linear)(response, smaller, added)
        return (p_value, statistic) if statistic > NOTHING else (1.0, 0.0)

    def _linear(self, response: int, smaller: np.ndarray, added: np.ndarray) -> tuple[float, float]:
        y = self.problem.values[response]
        rest = len(y) - smaller.shape[1] - added.shape[1]
        if rest < 1:
            return 0.0, np.inf
        before, after = (
            float(np.sum((y - x @ np.linalg.lstsq(x, y)[0]) ** 2)) for x in (smaller, np.hstack([smaller, added]))
        )
        if before <= EXPLAINED * len(y):
            return 1.0, 0.0
        with np.errstate(over="ignore"):  # The statistic of a perfect fit is infinite.
            statistic = (before - after) / added.shape[1] / max(after / rest, np.finfo(float).tiny)
        return float(scipy.stats.f.sf(statistic, added.shape[1], rest)), statistic

    def _logistic(self, response: int, smaller: np.ndarray, added: np.ndarray) -> tuple[float, float]:
        classes = self.problem.values[response].astype(np.int64)
        before, after = (self._deviance(classes, x) for x in (smaller, np.hstack([smaller, added])))
        statistic = before - after
        return float(scipy.stats.chi2.sf(statistic, classes.max() * added.shape[1])), statistic

    @staticmethod
    def _deviance(classes: np.ndarray, x: np.ndarray) -> float:
        """Return minus twice the largest penalized log-likelihood of classes given (n, d) terms."""
        n, d, others = len(classes), x.shape[1], int(classes.max())
        chosen = (classes[:, None] == np.arange(1, others + 1)) * 1.0
        penalty = np.full((d, 1), RIDGE)
        penalty[0] = 0.0

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            b = flat.reshape(d, others)
            scores = np.hstack([np.zeros((n, 1)), x @ b])
            total = scipy.special.logsumexp(scores, axis=1)
            probability = np.exp(scores[:, 1:] - total[:, None])
            value = total.sum() - np.sum(chosen * scores[:, 1:]) + np.sum(penalty * b**2)
            return float(value), (x.T @ (probability - chosen) + 2 * penalty * b).ravel()

        options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-8}
        best = scipy.optimize.minimize(loss, np.zeros(d * others), jac=True, method="L-BFGS-B", options=options)
        return 2 * float(best.fun)
