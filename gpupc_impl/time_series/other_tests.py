"""CMIknn and the discrete G-square test of lagged variables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special

from gpupc_impl.backends import Backend
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS
from gpupc_impl.time_series.batches import Batch, LaggedTest, Outcomes, Parents
from gpupc_impl.time_series.series import Series

CMIKNN_OPTIONS: Mapping[str, Any] = {**NonlinearProblem.PARAMETERS, "permutations": 500, "k_cmi": 0.2, "k_perm": 5}
"""The parameters of the test (see `NonlinearProblem.from_data`) with tigramite's defaults."""


class CMIknn(LaggedTest):
    """CMIknn (Runge 2018) by the kernels of the nonlinear family (docs/cmiknn.md), in batches for `Series.is_whole`. X
    is permuted, and of a contemporaneous pair in a batch the smaller variable. A p-value is (count + 1) / (permutations
    + 1), as tigramite's."""

    def __init__(self, series: Series, backend: Backend, options: Mapping[str, Any]):
        super().__init__(series)
        self._backend, self._options = backend, {**CMIKNN_OPTIONS, **options}
        if series.is_whole:
            self._problem = NonlinearProblem.from_data(series.columns, **self._options)
            self._constant = series.columns.min(axis=0) == series.columns.max(axis=0)
            self._estimator = CmiEstimator(self._problem, backend, DEFAULTS)

    def run(self, batch: Batch, parents: Parents | None = None, alpha: float | None = None) -> Outcomes:
        if not self.series.is_whole:
            return super().run(batch, parents)
        values, p_values = np.zeros(len(batch)), np.ones(len(batch))
        by_level: dict[int, list[tuple[int, int, list[int]]]] = {}
        for t, (x, y, conditions) in enumerate(batch.tests(self.series.n_variables, parents)):
            if not self._constant[[x, y]].any():
                if x < self.series.n_variables:
                    x, y = min(x, y), max(x, y)
                members = sorted(column for column in conditions if not self._constant[column])
                by_level.setdefault(len(members), []).append((t, y, [x, *members]))
        for tests in by_level.values():
            numbers, others, sets = map(np.array, zip(*tests, strict=True))
            partials = self._estimator.all_partials(sets, others)
            values[numbers] = self._problem.cmi(partials[:, 0])
            p_values[numbers] = (counts_of(partials) + 1) / (self._problem.permutations + 1)
        return values, p_values

    def of_samples(self, array: np.ndarray) -> tuple[float, float]:
        problem = NonlinearProblem.from_data(array.T, **self._options)
        count, value, _ = ci_test(problem, 0, 1, range(2, len(array)), self._backend)
        return value, (count + 1) / (problem.permutations + 1)


class GSquare(LaggedTest):
    """The G-square test of codes, whose degrees of freedom count the rows and columns that occur in each stratum, at
    least 1 in all (tigramite's ``Gsquared``)."""

    def __init__(self, series: Series):
        super().__init__(series)
        self._all = _discrete_problem(series.columns) if series.is_whole else None

    def test(self, x: int, y: int, conditions: list[int]) -> tuple[float, float]:
        if self._all is None:
            return super().test(x, y, conditions)
        if self._all.categories[[x, y]].min() == 1:
            return 0.0, 1.0
        return _g_square(self._all, x, y, conditions)

    def of_samples(self, array: np.ndarray) -> tuple[float, float]:
        return _g_square(_discrete_problem(array.T), 0, 1, range(2, len(array)))


def _discrete_problem(samples: np.ndarray) -> DiscreteProblem:
    with warnings.catch_warnings(action="ignore"):  # of constant columns, which the tests consider
        return DiscreteProblem.from_data(samples.astype(np.int64), test="g-square", df_rule="adjusted")


def _g_square(problem: DiscreteProblem, x: int, y: int, conditions: Sequence[int]) -> tuple[float, float]:
    value, freedom = statistic(problem, x, y, np.asarray(conditions, np.int64))
    return value, float(scipy.special.chdtrc(max(freedom, 1), value))
