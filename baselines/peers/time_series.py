"""Other packages' PCMCI and PCMCI+: tigramite, whose graphs and p-values are the standard, and andrey-core."""

from __future__ import annotations

from typing import Any

import numpy as np

from baselines.peers._answer import peer, timed_call
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.time_series.problem import TimeSeriesProblem, series_answer


@peer(
    "tigramite-pcmci",
    source="tigramite, PCMCI.run_pcmci and run_pcmciplus with ParCorr",
    summary="PCMCI and PCMCI+ of the package tigramite (Python, slow)",
    unavailable=needs_package("tigramite", "tigramite"),
    family="time_series",
)
@peer(
    "tigramite-pcmci-cmiknn",
    source="tigramite, PCMCI.run_pcmci and run_pcmciplus with CMIknn",
    summary="PCMCI and PCMCI+ of the package tigramite with CMIknn (k-d trees, slow)",
    unavailable=needs_package("tigramite", "tigramite"),
    family="time_series",
    random=True,
)
def tigramite(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    from tigramite.data_processing import DataFrame
    from tigramite.pcmci import PCMCI

    _check_test(problem, run, "cmiknn" if run.facts["method"].endswith("cmiknn") else "parcorr")
    if problem.test == "parcorr":
        from tigramite.independence_tests.parcorr import ParCorr

        test = ParCorr()
    else:
        from tigramite.independence_tests.cmiknn import CMIknn

        test = CMIknn(sig_samples=problem.permutations, sig_blocklength=1)

    def search(series: np.ndarray) -> Any:
        program = PCMCI(DataFrame(series), test)
        if problem.algorithm == "pcmci":
            options = {"tau_min": problem.tau_min, "pc_alpha": 0.2, "alpha_level": problem.alpha}
            return program.run_pcmci(tau_max=problem.tau_max, **options)
        return program.run_pcmciplus(tau_max=problem.tau_max, pc_alpha=problem.alpha)

    answer = lambda found: series_answer(problem, run, found["graph"], found["p_matrix"])  # noqa: E731
    return timed_call(problem, run, search, answer, data=series_of)


def series_of(problem: TimeSeriesProblem) -> np.ndarray:
    return problem.series


@peer(
    "andrey-pcmci",
    source="andrey-core, pcmci and pcmciplus",
    summary="PCMCI and PCMCI+ of the package andrey-core",
    unavailable=needs_package("andrey", "andrey-core"),
    family="time_series",
)
def andrey_core(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    import andrey

    _check_test(problem, run, "parcorr")

    def search(series: np.ndarray) -> Any:
        if problem.algorithm == "pcmci":
            return andrey.pcmci(series, tau_max=problem.tau_max, pc_alpha=0.2, alpha_level=problem.alpha)
        return andrey.pcmciplus(series, tau_max=problem.tau_max, pc_alpha=problem.alpha)

    def answer(found: Any) -> Skeleton:
        p = problem.n_variables
        graph = np.full((p, p, problem.tau_max + 1), "", dtype="<U3")
        p_values = np.ones(graph.shape)
        for lag, values in zip(found.structure.lags, found.metadata["p_values"], strict=True):
            marks = found.structure.lag(lag).to_numpy()  # [i, j] is the mark at i: 1 a tail, 2 an arrow.
            p_values[:, :, lag] = values
            arrow = marks.T == 2
            graph[:, :, lag] = np.where(arrow, "-->", "")
            if lag == 0:
                graph[:, :, 0] = np.select([arrow, arrow.T, marks == 1], ["-->", "<--", "o-o"], "")
        for i, j, *_ in found.metadata.get("conflicts", ()):
            graph[i, j, 0] = graph[j, i, 0] = "x-x"
        return series_answer(problem, run, graph, p_values)

    return timed_call(problem, run, search, answer, data=series_of)


def _check_test(problem: TimeSeriesProblem, run: Run, test: str) -> None:
    if problem.test != test:
        raise InvalidProblem(
            f"method {run.facts['method']!r} is for test={test!r}, and this problem has {problem.test!r}"
        )
