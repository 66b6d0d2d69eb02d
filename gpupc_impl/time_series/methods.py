"""`pcmci` and its reference as methods, so that experiments measure them and verify their graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.whole_graphs import whole_graph
from gpupc_impl.time_series.problem import TimeSeriesProblem
from gpupc_impl.time_series.search import pcmci as call

ABOUT = {"family": "time_series", "source": "PCMCI (Runge et al. 2019) and PCMCI+ (Runge 2020)"}


@method("pcmci", **ABOUT, summary="PCMCI and PCMCI+ with batches of tests on a device")
@method("pcmci-serial", **ABOUT, backends=("cpu",), reference=True, summary="PCMCI and PCMCI+, test by test in NumPy")
def pcmci(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    """Find the graph of a series, from host memory to host memory."""
    options: dict[str, Any] = {"permutations": problem.permutations} if problem.test == "cmiknn" else {}
    found = call(
        problem.series,
        tau_min=problem.tau_min,
        tau_max=problem.tau_max,
        alpha=problem.alpha,
        contemporaneous=problem.algorithm == "pcmciplus",
        test=problem.test,
        names=problem.names,
        backend="auto" if run.backend is None else run.backend.name,
        method="reference" if run.backend is None else "batched",
        **options,
    )
    return series_graph(problem, run, found.graph, found.p_values, found.facts["tests"])


def series_graph(
    problem: TimeSeriesProblem, run: Run, graph: np.ndarray, p_values: np.ndarray, tests: int = 0, **facts: Any
) -> Skeleton:
    """Return a graph and p-values, as `TimeSeriesGraph` has them, as a method's answer: variables are adjacent if a
    link at any lag joins them, and each link is a mark."""
    linked = (graph != "").any(axis=2)
    links = np.argwhere(graph != "").tolist()
    marks = [(i, j, f"{graph[i, j, lag]} lag {lag}", float(p_values[i, j, lag])) for i, j, lag in links]
    return whole_graph(problem, run, linked | linked.T, marks, int(tests), **facts)
