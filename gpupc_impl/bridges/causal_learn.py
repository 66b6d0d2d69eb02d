"""Registers our tests in causal-learn, for its PC, FCI and others: ``gpupc_fisherz``, ``gpupc_chisq``, ``gpupc_cmiknn``
and ``gpupc_kernel``.

Importing this module registers them. causal-learn requests one p-value at a time, but in a predictable order: for each
variable x it goes through the neighbours of x and their conditioning sets. A request for (x, y, S) therefore computes
the p-values of x and several other variables given S in one batch, which shares the work that depends on x and S alone.
These p-values are kept until causal-learn continues with another variable.
"""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

try:
    from causallearn.utils.cit import CIT_Base, register_ci_test
except ImportError as error:
    raise ImportError(
        "gpupc_impl.bridges.causal_learn needs causal-learn 0.1.4 or later; pip install causal-learn"
    ) from error

from gpupc_impl.backends import open_backend
from gpupc_impl.core.problem import Problem
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.kernel.kernel_batched import open_tests
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS

KEPT_VALUES = 1 << 24  # upper bound on the p-values that are kept for one variable; further p-values are computed again
DENSE_CELLS = 1 << 20  # upper bound on the cells of a batch of contingency tables that are counted in one array


class BatchedTest(CIT_Base, abc.ABC):
    """A causal-learn test that computes the p-values of several variables in one batch.

    Args:
        data: the samples, (samples, variables).
        cache_path: causal-learn's file of p-values, which these tests do not support.
        options: parameters of the problem's `from_data`.

    Attributes:
        problem_class: the class of its problems.
        problem: the data and the test.
        method: the name of the test in causal-learn.

    Raises:
        ValueError: `cache_path` is not None.
        gpupc_impl.InvalidProblem: the data or an option cannot be used.
    """

    name: str
    problem_class: type[Problem]

    def __init__(self, data: np.ndarray, cache_path: str | None = None, **options: Any):
        if cache_path is not None:
            raise ValueError(f"{self.name} keeps its p-values in memory; leave cache_path out")
        super().__init__(data)
        self.method = self.name
        self.problem: Any = self.problem_class.from_data(data, **options)
        self._current: tuple[int, int] | None = None  # the variable x and the level of the latest request
        self._p_values: dict[tuple[int, ...], dict[int, float]] = {}  # p-values of x, by set and other variable
        self._candidates: set[int] = set()  # the variables that are expected to be tested with x
        # for each variable, the variables that were tested with it at level 1 or above
        self._neighbours: dict[int, set[int]] = {}
        self._kept = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the test itself, whose answers never change; causal-learn copies graphs together with their test."""
        return self

    def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
        """Return the p-value of X and Y given the set; 0, which never separates, if no test is possible.

        Raises:
            ValueError: the variables are not distinct.
        """
        members = tuple(sorted({int(v) for v in condition_set})) if condition_set is not None else ()
        x, y = int(X), int(Y)
        if not members and x > y:
            x, y = y, x
        if self._current != (x, len(members)) or self._kept > KEPT_VALUES:
            self._begin(x, len(members))
        row = self._p_values.setdefault(members, {})
        if y not in row:
            if x == y or x in members or y in members:
                raise ValueError(f"X={X}, Y={Y} and condition_set={members} must be different variables")
            # In a search the members of a conditioning set are adjacent to x, so they will be tested with x as well.
            self._candidates.update(members, (y,))
            others = sorted(self._candidates.difference(row, members, (x,)))
            p_values = np.zeros(len(others))
            if self.problem.obstacle(len(members)) is None:
                p_values = self._batch(x, members, others)
            row.update(zip(others, p_values.tolist(), strict=True))
            self._kept += len(others)
        return row[y]

    def _begin(self, x: int, level: int) -> None:
        """Drop the p-values of other variables, and expect the neighbours that x had at the previous level."""
        self._current, self._kept = (x, level), 0
        self._p_values.clear()
        if level == 0:
            self._candidates = set(range(x + 1, self.num_features))
        elif level == 1:
            self._candidates = self._neighbours[x] = set()
        else:
            self._candidates = self._neighbours.setdefault(x, set())

    @abc.abstractmethod
    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        """Return the p-values of x and each of the k other variables given the members: (k,)."""


class FisherZ(BatchedTest):
    """Fisher's z as in causal-learn's ``fisherz``; if M2 is near singular, its pseudo-inverse is used
    (docs/ci-tests.md)."""

    name, problem_class = "gpupc_fisherz", GaussianProblem

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        problem, level = self.problem, len(members)
        correlation = problem.correlation
        # This is Cholesky's factorisation of M2, row by row, with the columns of the others and of x appended. Sums
        # have a fixed order, so that (x, y) gives the same bits as (y, x).
        columns = correlation[np.ix_(members, [*members, *others, x])]
        for k in range(level):
            pivot = columns[k, k]
            if pivot <= problem.pivot_tolerance and level > 1:
                pairs = np.stack([np.full(len(others), x), np.array(others)], axis=1)
                squares, *_ = Retest(problem).statistics(pairs, np.tile(members, (len(others), 1)))
                return self._from_squares(squares.astype(np.float64), level)
            columns[k] /= np.sqrt(pivot)
            columns[k + 1 :] -= columns[k, k + 1 : level, None] * columns[k]
        projected = columns[:, level:]
        covariance, variance = correlation[x, list(others)], np.ones(len(others) + 1)
        for k in range(level):
            covariance -= projected[k, -1] * projected[k, :-1]
            variance -= projected[k] ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = covariance**2 / (variance[:-1] * variance[-1])
        defined = np.minimum(variance[:-1], variance[-1]) > problem.residual_tolerance
        return self._from_squares(np.where(defined, squares, np.inf), level)

    def _from_squares(self, squares: np.ndarray, level: int) -> np.ndarray:
        return np.where(np.isfinite(squares), self.problem.p_value(np.minimum(squares, 1.0), level), 0.0)


class ChiSquare(BatchedTest):
    """Pearson's chi-square as in causal-learn's ``chisq``: degrees of freedom count the categories that occur.

    This rule corresponds to ``df_rule="adjusted"``.
    """

    name, problem_class = "gpupc_chisq", DiscreteProblem

    def __init__(self, data: np.ndarray, cache_path: str | None = None, *, df_rule: str = "adjusted", **options: Any):
        super().__init__(data, cache_path, df_rule=df_rule, **options)

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        problem = self.problem
        strata = int(np.prod(problem.categories[list(members)], dtype=np.float64))
        widest = int(problem.categories[list(others)].max())
        cells = strata * int(problem.categories[x]) * widest
        if cells * len(others) > DENSE_CELLS or problem.test != "chi-square":
            tests = [statistic(problem, x, y, np.array(members, np.int64)) for y in others]
            statistics, df = np.array(tests, np.float64).T
            return problem.p_value(statistics, df)
        row = np.zeros(problem.n_samples, np.int64)
        for v in (*members, x):
            row = row * int(problem.categories[v]) + problem.codes[v]
        # The contingency tables of the others follow one another in one array of counts.
        cell = row * widest + problem.codes[list(others)]
        cell += cells * np.arange(len(others))[:, None]
        counts = np.bincount(cell.reshape(-1), minlength=cells * len(others))
        counts = counts.reshape(len(others), strata, int(problem.categories[x]), widest).astype(np.float64)
        row_sums, column_sums = counts.sum(axis=3), counts.sum(axis=2)
        totals = row_sums.sum(axis=2)[:, :, None, None]
        expected = row_sums[..., :, None] * column_sums[..., None, :] / np.maximum(totals, 1)
        # A cell with an expected count of zero is empty and contributes nothing.
        statistics = ((counts - expected) ** 2 / np.where(expected > 0, expected, 1.0)).sum(axis=(1, 2, 3))
        if problem.df_rule == "full":
            return problem.p_value(statistics, np.array([problem.degrees_of_freedom(x, y, members) for y in others]))
        rows, columns = ((sums > 0).sum(axis=2) - 1 for sums in (row_sums, column_sums))
        return problem.p_value(statistics, np.where(rows >= 0, rows * columns, 0).sum(axis=1))


class CMIknn(BatchedTest):
    """CMIknn with a local permutation (docs/cmiknn.md) of x, from whose neighbours the conditioning set is drawn.

    Args:
        backend: where kernels run: ``"auto"``, ``"cuda"`` or ``"host"``.
    """

    name, problem_class = "gpupc_cmiknn", NonlinearProblem

    def __init__(self, data: np.ndarray, cache_path: str | None = None, *, backend: str = "auto", **options: Any):
        super().__init__(data, cache_path, **options)
        self._estimator = CmiEstimator(self.problem, open_backend(backend), DEFAULTS)

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        self._estimator.fitting(len(members), 1, len(others))
        tests = np.array([(0, y) for y in others])
        partials = self._estimator.partials(len(members), np.array([[x, *members]]), tests)
        return self.problem.p_value(counts_of(partials))


class KernelTest(BatchedTest):
    """RCIT, RCoT or KCI (docs/kernel.md), selected by the option ``test``.

    Args:
        backend: where the tests are computed: ``"auto"``, ``"cuda"`` or ``"host"``.
    """

    name, problem_class = "gpupc_kernel", KernelProblem

    def __init__(self, data: np.ndarray, cache_path: str | None = None, *, backend: str = "auto", **options: Any):
        super().__init__(data, cache_path, **options)
        self._tests = open_tests(self.problem, open_backend(backend))

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        tests = np.array([(0, min(x, y), max(x, y)) for y in others])
        return self._tests.p_values(np.array([members], np.int64).reshape(1, -1), tests)[0]


for _test in (FisherZ, ChiSquare, CMIknn, KernelTest):
    register_ci_test(_test.name, _test)
