"""The discrete CI test from scratch, for verification, which uses NumPy and SciPy and no code of the methods."""

import math

import numpy as np

from gpupc_impl.discrete.problem import DiscreteProblem

NEAR = 1e-9
"""Relative tolerance around the critical value within which rounding may decide a test."""

ROWS_AFFORDED = 2 * 10**9
"""Upper bound on the samples that the tests of one answer's removed edges count together, in about half a minute."""

_DENSE_CELLS = 1 << 16
"""Upper bound on the numbers that are counted in an array; larger numbers are sorted."""


class Retest:
    """Chi-square or G-square from scratch (gpuPC, section 2.3)."""

    def __init__(self, problem: DiscreteProblem):
        self._problem = problem
        self.affordable = max(ROWS_AFFORDED // problem.n_samples, 1000)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (k,) statistics of (k, 2) pairs given (k, l) sets, divided by the critical value, and (k,) relative
        tolerances.

        The ratio of a test without degrees of freedom is 0.
        """
        from scipy import stats  # imported here, since it takes seconds and every process lists the families

        tested = [self.test(i, j, np.sort(S)) for (i, j), S in zip(pairs, sets, strict=True)]
        statistics, df = np.array(tested, np.float64).reshape(-1, 2).T
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = statistics / stats.chi2.isf(self._problem.alpha, df)
        ratios[(df == 0) | (statistics == 0)] = 0.0
        return ratios, np.full(len(pairs), NEAR)

    def test(self, i: int, j: int, S: np.ndarray) -> tuple[float, int]:
        """Return the statistic of Vi and Vj given S, and its degrees of freedom."""
        stratum, strata = self._strata(S)
        codes, (a, b) = self._problem.codes, map(int, self._problem.categories[[i, j]])
        rows, row_counts = _occurring(stratum * a + codes[i], strata * a)
        columns, column_counts = _occurring(stratum * b + codes[j], strata * b)
        cells, counts = _occurring((stratum * a + codes[i]) * b + codes[j], strata * a * b)
        of_cell, stratum_counts = cells // (a * b), np.bincount(stratum)
        of_row, of_column = np.searchsorted(rows, cells // b), np.searchsorted(columns, of_cell * b + cells % b)
        expected = row_counts[of_row].astype(np.float64) * column_counts[of_column] / stratum_counts[of_cell]
        if self._problem.test == "chi-square":
            # sum((N - E)^2 / E) = sum(N^2 / E) - n, since the E of a stratum add up to the number of its samples.
            statistic = max(math.fsum(counts.astype(np.float64) ** 2 / expected) - self._problem.n_samples, 0.0)
        else:
            statistic = 2 * math.fsum(counts * np.log(counts / expected))
        if self._problem.df_rule == "adjusted":
            rows_of_stratum = np.bincount(rows // a, minlength=strata)
            columns_of_stratum = np.bincount(columns // b, minlength=strata)
            occurs = rows_of_stratum > 0
            return statistic, int(((rows_of_stratum - 1) * (columns_of_stratum - 1))[occurs].sum())
        return statistic, self._problem.degrees_of_freedom(i, j, S)

    def _strata(self, S: np.ndarray) -> tuple[np.ndarray, int]:
        """Return each sample's stratum and the number of strata; if there are many possible strata, only those that
        occur are numbered."""
        stratum, strata = np.zeros(self._problem.n_samples, np.int64), 1
        for v in S:
            stratum = stratum * int(self._problem.categories[v]) + self._problem.codes[v]
            strata *= int(self._problem.categories[v])
            if strata > _DENSE_CELLS:
                stratum = np.unique(stratum, return_inverse=True)[1]
                strata = int(stratum.max()) + 1
        return stratum, strata


def _occurring(numbers: np.ndarray, beyond: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers below `beyond` that occur, ascending, with multiplicities; by sorting if `beyond` is large."""
    if beyond > max(_DENSE_CELLS, len(numbers)):
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    occurring = np.flatnonzero(counts)
    return occurring, counts[occurring]
