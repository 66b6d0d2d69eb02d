"""Our tests as causal-learn's: ``gpupc_fisherz``, ``gpupc_chisq`` and ``gpupc_cmiknn``, for its PC, FCI and others.

Importing this module registers them. causal-learn asks for one p-value at a time, but in an order that tells what
comes: it takes a variable, and goes through its neighbours and their sets. So a question about (x, y, S) is answered
for other variables than y as well, with what depends on x and S alone made once, and kept until the next turn.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

try:
    from causallearn.utils.cit import CIT_Base, register_ci_test
except ImportError as error:
    raise ImportError(
        "gpupc_impl.bridges.causal_learn needs causal-learn 0.1.4 or later; pip install 'gpupc[bridges]'"
    ) from error

from gpupc_impl.backends import open_backend
from gpupc_impl.core.problem import Problem
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.nonlinear.device import CmiEstimator, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS

KEPT_VALUES = 1 << 24
"""p-values kept for one variable, at most; beyond, they are made anew."""

DENSE_CELLS = 1 << 20
"""Cells of a batch of contingency tables that are counted in one array."""


class BatchedTest(CIT_Base, abc.ABC):
    """A causal-learn test that answers for several variables at a time.

    Args:
        data: (samples, variables).
        cache_path: causal-learn's file of p-values, which these tests do not have.
        options: what the problem's `from_data` takes.

    Attributes:
        problem: the data and the test.
        method: the name that causal-learn knows the test by.
    """

    name: str

    def __init__(self, data: np.ndarray, cache_path: str | None = None, **options: Any):
        if cache_path is not None:
            raise ValueError(f"{self.name} keeps its p-values in memory; leave cache_path out")
        super().__init__(data)
        self.method = self.name
        self.problem = self._problem(data, **options)
        self._turn: tuple[int, int] | None = None
        self._rows: dict[tuple[int, ...], dict[int, float]] = {}
        self._near: set[int] = set()
        self._met: dict[int, set[int]] = {}
        self._kept = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> BatchedTest:
        """Itself, since causal-learn copies a graph with its test and nothing about this one changes."""
        return self

    def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
        """The p-value of X and Y given the set; zero, which never separates, where no test can be made."""
        members = tuple(sorted({int(v) for v in condition_set})) if condition_set is not None else ()
        x, y = int(X), int(Y)
        if not members and x > y:
            x, y = y, x
        if self._turn != (x, len(members)) or self._kept > KEPT_VALUES:
            self._begin(x, len(members))
        row = self._rows.setdefault(members, {})
        if y not in row:
            if x == y or x in members or y in members:
                raise ValueError(f"X={X}, Y={Y} and condition_set={members} must be different variables")
            # In a search, what x is tested given is adjacent to x, so it will be tested with x as well.
            self._near.update(members, (y,))
            others = sorted(self._near.difference(row, members, (x,)))
            found = np.zeros(len(others))
            if self.problem.obstacle(len(members)) is None:
                found = self._p_values(x, members, others)
            row.update(zip(others, found.tolist(), strict=True))
            self._kept += len(others)
        return row[y]

    def _begin(self, x: int, level: int) -> None:
        """It is x's turn: forget the others' p-values, and expect the neighbours that x had at the level before."""
        self._turn, self._kept = (x, level), 0
        self._rows.clear()
        if level == 0:
            self._near = set(range(x + 1, self.num_features))
        elif level == 1:
            self._near = self._met[x] = set()
        else:
            self._near = self._met.setdefault(x, set())

    @abc.abstractmethod
    def _problem(self, data: np.ndarray, **options: Any) -> Problem:
        """The data as our problem."""

    @abc.abstractmethod
    def _p_values(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        """(k,) p-values of x and each of the k others given the members."""


class FisherZ(BatchedTest):
    """Fisher's z, as causal-learn's ``fisherz``; a near singular set takes the pseudo-inverse (docs/ci-tests.md)."""

    name = "gpupc_fisherz"

    def _problem(self, data: np.ndarray, **options: Any) -> GaussianProblem:
        return GaussianProblem.from_data(data, **options)

    def _p_values(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        problem, level = self.problem, len(members)
        correlation = problem.correlation
        taken = np.array([*others, x])
        # Cholesky's factorisation of M2, a row at a time, with all variables that are asked for beside it. Sums have
        # one order, so that x and y give the same bits as y and x.
        columns = correlation[np.ix_(members, [*members, *taken])]
        for k in range(level):
            pivot = columns[k, k]
            if pivot <= problem.pivot_tolerance and level > 1:
                pairs = np.stack([np.full(len(others), x), np.array(others)], axis=1)
                squares, _ = Retest(problem).statistics(pairs, np.tile(members, (len(others), 1)))
                return self._from_squares(squares.astype(np.float64), level)
            columns[k] /= np.sqrt(pivot)
            columns[k + 1 :] -= columns[k, k + 1 : level, None] * columns[k]
        projected = columns[:, level:]
        of_x = projected[:, -1]
        covariance, variance = correlation[x, taken[:-1]].copy(), np.ones(len(others) + 1)
        for k in range(level):
            covariance -= of_x[k] * projected[k, :-1]
            variance -= projected[k] ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = covariance**2 / (variance[:-1] * variance[-1])
        defined = np.minimum(variance[:-1], variance[-1]) > problem.residual_tolerance
        return self._from_squares(np.where(defined, squares, np.inf), level)

    def _from_squares(self, squares: np.ndarray, level: int) -> np.ndarray:
        return np.where(np.isfinite(squares), self.problem.p_value(np.minimum(squares, 1.0), level), 0.0)


class ChiSquare(BatchedTest):
    """Pearson's chi-square, as causal-learn's ``chisq``: degrees of freedom by what occurs (``df_rule="adjusted"``)."""

    name = "gpupc_chisq"

    def _problem(self, data: np.ndarray, **options: Any) -> DiscreteProblem:
        return DiscreteProblem.from_data(data, **{"df_rule": "adjusted", **options})

    def _p_values(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
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
        places = row * widest + problem.codes[list(others)]  # of the others, a table after the other
        places += cells * np.arange(len(others))[:, None]
        counts = np.bincount(places.reshape(-1), minlength=cells * len(others))
        counts = counts.reshape(len(others), strata, int(problem.categories[x]), widest).astype(np.float64)
        of_rows, of_columns = counts.sum(axis=3), counts.sum(axis=2)
        totals = of_rows.sum(axis=2)[:, :, None, None]
        expected = of_rows[..., :, None] * of_columns[..., None, :] / np.maximum(totals, 1)
        # A cell that nothing is expected in is empty.
        statistics = ((counts - expected) ** 2 / np.where(expected > 0, expected, 1.0)).sum(axis=(1, 2, 3))
        if problem.df_rule == "full":
            return problem.p_value(statistics, np.array([problem.degrees_of_freedom(x, y, members) for y in others]))
        rows, columns = ((sums > 0).sum(axis=2) - 1 for sums in (of_rows, of_columns))
        return problem.p_value(statistics, np.where(rows >= 0, rows * columns, 0).sum(axis=1))


class CMIknn(BatchedTest):
    """CMIknn with a local permutation (docs/cmiknn.md); x, whose neighbours the set is drawn from, is permuted.

    Args:
        backend: ``"auto"``, ``"cuda"`` or ``"host"``.
    """

    name = "gpupc_cmiknn"

    def __init__(self, data: np.ndarray, cache_path: str | None = None, *, backend: str = "auto", **options: Any):
        super().__init__(data, cache_path, **options)
        self._estimator = CmiEstimator(self.problem, open_backend(backend), DEFAULTS)

    def _problem(self, data: np.ndarray, **options: Any) -> NonlinearProblem:
        return NonlinearProblem.from_data(data, **options)

    def _p_values(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        self._estimator.fitting(len(members), 1, len(others))
        tests = np.array([(0, y) for y in others])
        partials = self._estimator.partials(len(members), np.array([[x, *members]]), tests)
        return self.problem.p_value(counts_of(partials))


for _test in (FisherZ, ChiSquare, CMIknn):
    register_ci_test(_test.name, _test)
