"""Other packages' PCMCI and PCMCI+: tigramite, whose graphs and p-values are the standard, and andrey-core."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from baselines.peers._answer import refuse_pmax
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.time_series.methods import series_graph
from gpupc_impl.time_series.problem import TimeSeriesProblem

PEER: dict[str, Any] = {"family": "time_series", "backends": ("cpu",), "canonical": False, "knowledge": False}


@method(
    "tigramite-pcmci",
    source="tigramite, PCMCI.run_pcmci and run_pcmciplus with ParCorr",
    summary="PCMCI and PCMCI+ of the package tigramite (Python, slow)",
    unavailable=needs_package("tigramite", "tigramite"),
    **PEER,
)
@method(
    "tigramite-pcmci-cmiknn",
    source="tigramite, PCMCI.run_pcmci and run_pcmciplus with CMIknn",
    summary="PCMCI and PCMCI+ of the package tigramite with CMIknn (k-d trees, slow)",
    unavailable=needs_package("tigramite", "tigramite"),
    **{**PEER, "random": True},
)
def tigramite(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    from tigramite.data_processing import DataFrame
    from tigramite.pcmci import PCMCI

    refuse_pmax(run)
    _check_test(problem, run, "cmiknn" if run.facts["method"].endswith("cmiknn") else "parcorr")
    if problem.test == "parcorr":
        from tigramite.independence_tests.parcorr import ParCorr

        test = ParCorr()
    else:
        from tigramite.independence_tests.cmiknn import CMIknn

        test = CMIknn(sig_samples=problem.permutations, sig_blocklength=1)
    search = PCMCI(DataFrame(problem.series), test)
    if problem.algorithm == "pcmci":
        found = search.run_pcmci(
            tau_min=problem.tau_min, tau_max=problem.tau_max, pc_alpha=0.2, alpha_level=problem.alpha
        )
    else:
        found = search.run_pcmciplus(tau_max=problem.tau_max, pc_alpha=problem.alpha)
    start = time.perf_counter()
    answer = series_graph(problem, run, found["graph"], found["p_matrix"])
    answer.facts["translation_s"] = time.perf_counter() - start
    return answer


@method(
    "andrey-pcmci",
    source="andrey-core, pcmci and pcmciplus",
    summary="PCMCI and PCMCI+ of the package andrey-core",
    unavailable=needs_package("andrey", "andrey-core"),
    **PEER,
)
def andrey_core(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    import andrey

    refuse_pmax(run)
    _check_test(problem, run, "parcorr")
    if problem.algorithm == "pcmci":
        found = andrey.pcmci(problem.series, tau_max=problem.tau_max, pc_alpha=0.2, alpha_level=problem.alpha)
    else:
        found = andrey.pcmciplus(problem.series, tau_max=problem.tau_max, pc_alpha=problem.alpha)
    start = time.perf_counter()
    p = problem.n_variables
    graph = np.full((p, p, problem.tau_max + 1), "", dtype="<U3")
    p_values = np.ones(graph.shape)
    structure = found.structure
    for lag, values in zip(structure.lags, found.metadata["p_values"], strict=True):
        marks = structure.lag(lag).to_numpy()  # [i, j] is the mark at i: 1 a tail, 2 an arrow.
        p_values[:, :, lag] = values
        arrow = marks.T == 2
        graph[:, :, lag] = np.where(arrow, "-->", "")
        if lag == 0:
            graph[:, :, 0] = np.select([arrow, arrow.T, marks == 1], ["-->", "<--", "o-o"], "")
    for conflict in found.metadata.get("conflicts", ()):
        i, j = conflict[:2]
        graph[i, j, 0] = graph[j, i, 0] = "x-x"
    answer = series_graph(problem, run, graph, p_values)
    answer.facts["translation_s"] = time.perf_counter() - start
    return answer


def _check_test(problem: TimeSeriesProblem, run: Run, test: str) -> None:
    if problem.test != test:
        raise InvalidProblem(
            f"method {run.facts['method']!r} is for test={test!r}, and this problem has {problem.test!r}"
        )
