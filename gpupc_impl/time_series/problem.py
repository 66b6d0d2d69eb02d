"""A time series with the parameters of PCMCI, as the problem that its implementations solve in experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, Problem, finite_matrix, one_of, parameter, whole
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.whole_graphs import whole_graph
from gpupc_impl.time_series.parameters import MOST_LAGS
from gpupc_impl.time_series.series import read_series


@dataclasses.dataclass(frozen=True, eq=False)
class TimeSeriesProblem(Problem):
    """One (T, N) float64 series without missing values, and what `pcmci` is asked; `permutations` are cmiknn's."""

    family: ClassVar[str] = "time_series"

    series: np.ndarray
    algorithm: str = parameter("pcmci", one_of("pcmci", "pcmciplus"))
    tau_max: int = parameter(5, whole(1, MOST_LAGS))
    test: str = parameter("parcorr", one_of("parcorr", "cmiknn"))
    permutations: int = parameter(100, whole(1, 1_000_000))

    @classmethod
    def from_data(cls, data: Any, *, names: Sequence[str] | None = None, **parameters: Any) -> Self:
        """Make a problem of time steps in rows and variables in columns; raises InvalidProblem as `pcmci` does."""
        values, names = finite_matrix(data, names)
        checked = cls.checked(len(values), **parameters)
        if checked["max_level"] is not None:
            raise InvalidProblem(f"max_level is {checked['max_level']}; PCMCI has no such limit")
        series = np.ascontiguousarray(values, np.float64)
        read_series(series, checked["tau_max"], names=names)
        return cls(names=names, series=series, **checked)

    @property
    def n_samples(self) -> int:
        return len(self.series)

    @property
    def tau_min(self) -> int:
        """The smallest lag of a link: 1 with PCMCI, which finds no directions of contemporaneous links."""
        return int(self.algorithm == "pcmci")


def series_answer(
    problem: TimeSeriesProblem, run: Run, graph: np.ndarray, p_values: np.ndarray, tests: int = 0, **facts: Any
) -> Skeleton:
    """Return a graph and p-values, as `TimeSeriesGraph` has them, as a method's answer: variables are adjacent if a
    link at any lag joins them, and each link is a mark."""
    linked = (graph != "").any(axis=2)
    links = np.argwhere(graph != "").tolist()
    marks = [(i, j, f"{graph[i, j, lag]} lag {lag}", float(p_values[i, j, lag])) for i, j, lag in links]
    return whole_graph(problem, run, linked | linked.T, marks, int(tests), **facts)
