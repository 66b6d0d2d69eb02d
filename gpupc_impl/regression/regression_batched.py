"""Likelihood ratio tests of regressions in batches, by the same code for NumPy and CuPy (`Backend.array_library`). Both
models of a linear test follow from the covariances of all terms, which are computed once: the Schur complement of the
set's terms has the covariances of the residuals given the set, and the Schur complement of the other variable's terms
in it is what the larger model leaves of the response's variance. Logistic models need the samples, and are fitted by
Newton's method, all models of a shape at a time. Several tests with a response and a set share the smaller model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # SciPy loads its modules at their first use

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.p_value_search import for_each, search_by_p_values, single_test
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.regression.problem import EXPLAINED, NOTHING, RIDGE, RegressionProblem

SPARE = 1e-9  # Added to the variances of terms, so that terms which depend on one another can be regressed on
BATCH_BYTES = {"cuda": 1 << 30, "host": 1 << 22}
MOST_STEPS, MOST_HALVINGS = 100, 30  # Newton's, and of halving one because the loss did not fall
CONVERGED = 1e-10  # decrease of the loss that Newton's next step promises, up to which a model counts as fitted


class RegressionTests:
    def __init__(self, problem: RegressionProblem, backend: Backend):
        self._problem, self._backend = problem, backend
        self._widths, self._constant = problem.widths(), problem.is_constant()
        self._starts = np.cumsum(self._widths) - self._widths
        count, n = int(self._widths.sum()), problem.n_samples
        needed = 8 * count * (n + count) + 8 * n * 3 * (count + 64)
        if needed > backend.memory_limit - backend.memory_used:
            raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
        self._bytes = min(BATCH_BYTES[backend.name], (backend.memory_limit - backend.memory_used - needed) // 2 + 1)
        terms = np.concatenate([problem.terms(v) for v in range(problem.n_variables)])
        with backend.array_library() as xp:
            self._values, self._terms = xp.asarray(problem.values), xp.asarray(terms)
            self._covariances = self._terms @ self._terms.T / n

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        categories = self._problem.categories
        numbers, i, j = tests.T
        swapped = categories[j] < categories[i]
        response, other = np.where(swapped, j, i), np.where(swapped, i, j)
        p_values, statistics = np.ones(len(tests)), np.zeros(len(tests))
        to_test = np.flatnonzero(~(self._constant[i] | self._constant[j]))
        given = {number: self._columns(sets[number]) for number in np.unique(numbers[to_test]).tolist()}
        lengths = np.array([len(given.get(number, ())) for number in range(len(sets))])[numbers]
        for logistic in (False, True):
            rows = to_test[(categories[response[to_test]] > 0) == logistic]
            test = self._logistic if logistic else self._linear
            shape = np.stack([lengths, self._widths[other], categories[response] if logistic else lengths * 0])
            for some in _groups(rows, shape):
                columns = np.array([given[number] for number in numbers[some].tolist()], np.int64)
                columns = columns.reshape(len(some), lengths[some[0]])
                added = self._starts[other[some], None] + np.arange(self._widths[other[some[0]]])
                p_values[some], statistics[some] = test(response[some], columns, added)
        nothing = statistics <= NOTHING
        p_values[nothing], statistics[nothing] = 1.0, 0.0
        return p_values, statistics

    def _columns(self, members: np.ndarray) -> list[int]:
        """Return the numbers of the terms of a conditioning set, without those of constant variables."""
        return [
            column
            for v in members.tolist()
            if not self._constant[v]
            for column in range(self._starts[v], self._starts[v] + self._widths[v])
        ]

    # --- Linear models ---------------------------------------------------------------------------------------------
    def _linear(self, response: np.ndarray, given: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (t,) p-values and F statistics for responses, (t, a) terms of the sets and (t, b) further terms."""
        n, a, b = self._problem.n_samples, given.shape[1], added.shape[1]
        rest = n - 1 - a - b
        if rest < 1:
            return np.zeros(len(response)), np.full(len(response), np.inf)
        index = np.hstack([given, added, self._starts[response, None]])
        left = np.empty((len(response), 2))
        with self._backend.array_library() as xp:

            def compare(rows: slice) -> None:
                left[rows] = self._backend.download(self._residuals(xp, xp.asarray(index[rows]), a))

            for_each(compare, self._pieces(len(response), 24 * (a + b + 1) ** 2), self._backend)
        before, after = left.T
        with np.errstate(over="ignore"):
            statistics = (before - after) / b / np.maximum(after / rest, np.finfo(float).tiny)
        statistics = np.where(before <= EXPLAINED, 0.0, np.maximum(statistics, 0.0))
        return scipy.special.fdtrc(b, rest, statistics), statistics

    def _residuals(self, xp: Any, index: Any, a: int) -> Any:
        """Return the (t, 2) residual variances of both models, given (t, a + b + 1) terms: those of the set, those of
        the other variable, and the response."""
        joint = self._covariances[index[:, :, None], index[:, None, :]]
        if a:
            joint = _complement(xp, joint, a)
        smaller = joint[:, -1, -1]
        larger = _complement(xp, joint, joint.shape[1] - 1)[:, 0, 0]
        return xp.stack([smaller, larger], axis=1)

    # --- Logistic models -------------------------------------------------------------------------------------------
    def _logistic(self, response: np.ndarray, given: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `_linear`, for responses that have the same number of categories."""
        models, of_test = np.unique(np.column_stack([response, given]), axis=0, return_inverse=True)
        before = self._deviances(models[:, 0], models[:, 1:])[of_test.reshape(-1)]
        after = self._deviances(response, np.hstack([given, added]))
        statistics = np.maximum(before - after, 0.0)
        degrees = (self._problem.categories[response[0]] - 1) * added.shape[1]
        return scipy.special.chdtrc(degrees, statistics), statistics

    def _deviances(self, response: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return minus twice the largest penalized log-likelihood of each of (t,) responses given (t, d) terms."""
        others = int(self._problem.categories[response[0]]) - 1
        d, deviances = columns.shape[1] + 1, np.empty(len(response))
        of_model = 8 * (self._problem.n_samples * 2 * (d + 2 * others) + 3 * (d * others) ** 2)
        with self._backend.array_library() as xp:

            def fit(rows: slice) -> None:
                terms = self._terms[xp.asarray(columns[rows])]
                terms = xp.concatenate([xp.ones_like(self._terms[:1])[None].repeat(len(terms), axis=0), terms], axis=1)
                classes = self._values[xp.asarray(response[rows])][:, None]
                chosen = (classes == xp.arange(1, others + 1)[:, None]) * 1.0
                deviances[rows] = self._backend.download(_deviances(xp, terms, chosen))

            for_each(fit, self._pieces(len(response), of_model), self._backend)
        return deviances

    def _pieces(self, count: int, bytes_each: int) -> list[slice]:
        return list(pieces(count, max(1, self._bytes // bytes_each)))


def _groups(rows: np.ndarray, shape: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of the rows, which index the columns of `shape`, (k, t); all columns of a group are equal."""
    if len(rows):
        order = rows[np.lexsort(shape[:, rows])]
        different = (np.diff(shape[:, order]) != 0).any(axis=0)
        yield from np.split(order, np.flatnonzero(different) + 1)


def _complement(xp: Any, joint: Any, count: int) -> Any:
    """Return the Schur complement of the first `count` rows and columns of (t, m, m) covariances."""
    own = joint[:, :count, :count] + SPARE * xp.eye(count)
    cross = joint[:, :count, count:]
    return joint[:, count:, count:] - cross.transpose(0, 2, 1) @ xp.linalg.solve(own, cross)


def _deviances(xp: Any, terms: Any, chosen: Any) -> Any:
    """Return minus twice the largest penalized log-likelihood of each of t models, by Newton's method. ``terms`` (t, d,
    n) are ones and penalized terms; ``chosen`` (t, m, n) is 1 where a sample has a later class."""
    t, d, _ = terms.shape
    m = chosen.shape[1]
    penalty = xp.full(d, 2 * RIDGE)
    penalty[0] = 0.0
    coefficients, transposed = xp.zeros((t, m, d)), terms.transpose(0, 2, 1)

    def losses(coefficients: Any) -> tuple[Any, Any]:
        """Return (t,) losses and (t, m, n) probabilities of the classes other than the first."""
        scores = coefficients @ terms
        top = xp.maximum(scores.max(axis=1, keepdims=True), 0)
        powers = xp.exp(scores - top)
        total = xp.exp(-top) + powers.sum(axis=1, keepdims=True)
        value = (top + xp.log(total)).sum(axis=(1, 2)) - (chosen * scores).sum(axis=(1, 2))
        return value + 0.5 * (penalty * coefficients**2).sum(axis=(1, 2)), powers / total

    value, probability = losses(coefficients)
    for _ in range(MOST_STEPS):
        gradient = (probability - chosen) @ transposed + penalty * coefficients
        hessian = xp.empty((t, m, d, m, d))
        for u in range(m):
            for v in range(u, m):
                weight = probability[:, u] * (float(u == v) - probability[:, v])
                block = (terms * weight[:, None]) @ transposed
                hessian[:, u, :, v] = hessian[:, v, :, u] = block
            hessian[:, u, :, u] += xp.diag(penalty + SPARE)
        flat = gradient.reshape(t, m * d, 1)
        step = -xp.linalg.solve(hessian.reshape(t, m * d, m * d), flat)
        promised = -(flat * step).sum(axis=(1, 2))
        if float(promised.max()) <= CONVERGED:
            break
        step, size = step.reshape(t, m, d), xp.ones(t)
        for _ in range(MOST_HALVINGS):
            trial = losses(coefficients + size[:, None, None] * step)
            fell = trial[0] <= value - 1e-4 * size * promised + 1e-12 * xp.abs(value)
            if bool(fell.all()):
                break
            size = xp.where(fell, size, size / 2)
        coefficients = coefficients + size[:, None, None] * step
        value, probability = trial
    return 2 * value


@method(
    "regression-batched",
    family="regression",
    tiers=True,
    open_test=lambda problem, backend, params: (
        lambda i, j, members: single_test(RegressionTests(problem, backend), i, j, members)[0]
    ),
    source="this project; likelihood ratio tests of regressions, as in micd (Witte, Foraita and Didelez 2022)",
    summary="likelihood ratio tests of linear and logistic regressions in batches",
)
def regression_batched(problem: RegressionProblem, run: Run) -> Skeleton:
    assert run.backend is not None
    return search_by_p_values(problem, run, RegressionTests(problem, run.backend))
