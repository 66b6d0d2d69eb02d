"""Chi-square and G-square tests for pairs and sets that a caller chooses."""

import math
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import of_tables, statistics

MOST_CELLS = 1 << 16  # the upper bound on the cells of a table that is summed up to smaller ones


class DiscreteTests(IndependenceTests):
    """The tests of a `DiscreteProblem`. The effect size of chi-square is Cramér's V (1946), sqrt(X / (n (min(|Vi|,
    |Vj|) - 1))), with the statistic X summed over the strata; it lies in [0, 1], with strata as without. That of
    G-square is G / (2 n), the conditional mutual information in nats."""

    def __init__(self, problem: DiscreteProblem, backend: str):
        self._problem = problem
        self.effect = "cramers_v" if problem.test == "chi-square" else "mutual_information"

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        if self._problem.obstacle(sets.shape[1]) is not None:
            return np.zeros(len(pairs), bool)
        return self._decisions(*statistics(self._problem, pairs, np.sort(sets)))

    def _decisions(self, found: np.ndarray, df: np.ndarray) -> np.ndarray:
        return (df == 0) | (found <= self._problem.critical_values(df))

    def count_separating(
        self, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `IndependenceTests.count_separating`; the table of a subset is a sum of the table of all candidates."""
        problem = self._problem
        separating, containing = np.zeros(len(pairs), np.int64), np.zeros(len(candidates), np.int64)
        while problem.obstacle(most) is not None:
            most -= 1
        last, cell = (), np.empty(0)
        for q in np.argsort(pairs[:, 0], kind="stable").tolist():
            part, (i, j) = slice(starts[q], starts[q + 1]), pairs[q].tolist()
            shared = *candidates[part].tolist(), i
            shape = problem.categories[[*shared, j]].tolist()
            if most < 0 or math.prod(shape) > MOST_CELLS:
                alone = pairs[q : q + 1], np.array([0, len(shared) - 1]), candidates[part], most
                separating[q : q + 1], containing[part] = super().count_separating(*alone)
                continue
            if shared != last:
                last, cell = shared, np.zeros(problem.n_samples, np.int64)
                for v in shared:
                    cell = cell * int(problem.categories[v]) + problem.codes[v]
            table = np.bincount(cell * shape[-1] + problem.codes[j], minlength=math.prod(shape)).reshape(shape)
            subsets, tables = zip(*_marginals(table, most), strict=True)
            decisions = self._decisions(*of_tables(problem, tables))
            separating[q] = np.count_nonzero(decisions)
            for at in np.flatnonzero(decisions).tolist():
                containing[part][list(subsets[at])] += 1
        return separating, containing

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        problem = self._problem
        found, df = statistics(problem, pairs, np.sort(sets))
        if problem.test == "g-square":
            effects = found / (2 * problem.n_samples)
        else:
            most = problem.n_samples * (problem.categories[pairs].min(axis=1) - 1)
            effects = np.sqrt(np.minimum(found / np.maximum(most, 1), 1.0))
        return np.asarray(problem.p_value(found, df)), effects


def _marginals(
    table: np.ndarray, most: int, kept: tuple[int, ...] = (), position: int = 0
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield every subset of at most `most` of a table's axes but its last two, and the table summed over the others.
    The first axes are those that are kept, and the next one is that of `position`."""
    if table.ndim == len(kept) + 2:
        yield kept, table
        return
    yield from _marginals(table.sum(axis=len(kept)), most, kept, position + 1)
    if len(kept) < most:
        yield from _marginals(table, most, (*kept, position), position + 1)
