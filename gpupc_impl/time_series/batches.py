"""Batches of conditional independence tests of lagged variables, and what makes them."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.time_series.parameters import NO_LIMIT
from gpupc_impl.time_series.series import Series


@dataclasses.dataclass(frozen=True, eq=False)
class Parents:
    """Lagged parents of every variable, strongest first."""

    starts: np.ndarray  # (N + 1,) int64; variable j has the entries of `columns` from starts[j] to starts[j + 1]
    columns: np.ndarray  # (parents,) int32, the columns of the parents
    # `most_of_target`, `most_of_source`, `most_of_lagged_source`: how many of the parents of Y, of X at lag 0 and of X
    # at other lags are conditions (`max_conds_py`, `max_conds_px`, `max_conds_px_lagged` of tigramite).
    most_of_target: int = NO_LIMIT
    most_of_source: int = NO_LIMIT
    most_of_lagged_source: int = NO_LIMIT
    others: bool = False  # whether Y's parents are counted without X; then no parents of X and no sets are conditions

    @classmethod
    def from_lists(cls, lists: Sequence[list[int]]) -> Parents:
        """Return the parents of each variable, without limits."""
        starts = np.concatenate(([0], np.cumsum([len(each) for each in lists])))
        return cls(starts, np.array(list(itertools.chain.from_iterable(lists)), np.int32))

    def of(self, variable: int) -> list[int]:
        return self.columns[self.starts[variable] : self.starts[variable + 1]].tolist()

    def nodes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return the parents of each variable as (variable, -lag)."""
        n = len(self.starts) - 1
        return tuple(tuple((column % n, -(column // n)) for column in self.of(j)) for j in range(n))


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Tests of columns X and variables Y, whose explicit conditions have one size."""

    sources: np.ndarray  # (k,) int32: X
    targets: np.ndarray  # (k,) int32: Y
    sets: np.ndarray  # (k, size) int32: the explicit conditions, as columns

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, part: slice | np.ndarray) -> Batch:
        return Batch(self.sources[part], self.targets[part], self.sets[part])

    def tests(self, n_variables: int, parents: Parents | None) -> Iterator[tuple[int, int, list[int]]]:
        """Yield each test as columns X, Y and its conditions: the explicit ones and, with parents, those of MCI tests
        (Runge et al. 2019, equation 4; Runge 2020, equation 3): the parents of Y, and those of X moved by its lag."""
        for x, y, conditions in zip(*map(np.ndarray.tolist, (self.sources, self.targets, self.sets)), strict=True):
            if parents is not None:
                source = x % n_variables
                most = parents.most_of_source if x == source else parents.most_of_lagged_source
                own = [column for column in parents.of(y) if not (parents.others and column == x)]
                conditions += own[: parents.most_of_target]
                conditions += [column + x - source for column in parents.of(source)[:most]]
            yield x, y, [column for column in dict.fromkeys(conditions) if column not in (x, y)]


Outcomes = tuple[np.ndarray, np.ndarray]  # the values of the statistic and the p-values of a batch, (k,) float64 each


class LaggedTest(abc.ABC):
    """A conditional independence test of lagged variables, made one by one unless a subclass has a faster way."""

    is_speculative: ClassVar[bool] = False  # whether tests are so fast that a batch may hold some that are not needed

    def __init__(self, series: Series):
        self.series = series
        self.facts: dict[str, int] = {}  # what a result says about the test

    def run(self, batch: Batch, parents: Parents | None = None, alpha: float | None = None) -> Outcomes:
        """Make the tests of a batch, with the conditions of `Batch.tests`; raises InvalidProblem if there are too few
        samples. With `alpha`, a p-value may be 0 if it is up to alpha, and 1 if not."""
        outcomes = [self.test(*test) for test in batch.tests(self.series.n_variables, parents)]
        values, p_values = np.array(outcomes, np.float64).reshape(-1, 2).T
        return values, p_values

    def test(self, x: int, y: int, conditions: list[int]) -> tuple[float, float]:
        """Return the value of a test and its p-value; a constant X or Y is independent of all."""
        array = self.series.sample(x, y, conditions)
        if (array[:2].min(axis=1) == array[:2].max(axis=1)).any():
            return 0.0, 1.0
        try:
            return self.of_samples(array)
        except InvalidProblem as error:
            raise InvalidProblem(f"{self.series.described(x, y, conditions)}: {error}") from error

    @abc.abstractmethod
    def of_samples(self, array: np.ndarray) -> tuple[float, float]:
        """Return value and p-value of varying rows X, Y, conditions; InvalidProblem says why they cannot be tested."""
