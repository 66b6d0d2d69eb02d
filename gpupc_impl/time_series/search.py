"""The call `pcmci`: from time series to a graph."""

from __future__ import annotations

import dataclasses
import difflib
import time
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.core.problem import InvalidProblem, check_choice
from gpupc_impl.time_series import orientation, phases, reference
from gpupc_impl.time_series.batches import LaggedTest, Parents
from gpupc_impl.time_series.other_tests import CMIKNN_OPTIONS, CMIknn, GSquare
from gpupc_impl.time_series.par_corr import ParCorr, ParCorrOfSamples, akaike
from gpupc_impl.time_series.parameters import AUTO, checked
from gpupc_impl.time_series.phases import LaggedPhase
from gpupc_impl.time_series.result import TimeSeriesGraph
from gpupc_impl.time_series.series import read_series

METHODS = {"batched": phases, "reference": reference}  # the modules of the phases that make tests
NAMES_OF_TIGRAMITE = {  # of parameters that have another name here
    "alpha_level": "alpha",
    "cond_ind_test": "test",
    "conflict_resolution": "mark_conflicts",
    "contemp_collider_rule": "collider_rule",
    "fdr_method": "correction",
}


def pcmci(
    series: Any,
    *,
    tau_max: int,
    alpha: float = 0.01,
    contemporaneous: bool = False,
    test: str = "parcorr",
    pc_alpha: float | Sequence[float] | str | None = AUTO,
    tau_min: int = 0,
    max_conds_dim: int | None = None,
    max_combinations: int | None = 1,
    max_conds_py: int | None = None,
    max_conds_px: int | None = None,
    max_conds_px_lagged: int | None = None,
    collider_rule: str = "majority",
    mark_conflicts: bool = True,
    reset_lagged_links: bool = False,
    correction: str = "none",
    names: Sequence[str] | None = None,
    mask: Any = None,
    mask_type: str | None = None,
    remove_missing_upto_maxlag: bool = False,
    backend: str = "auto",
    device_memory_limit: int | None = None,
    method: str = "batched",
    **options: Any,
) -> TimeSeriesGraph:
    """Find the causal graph of time series by PCMCI (Runge et al. 2019) or PCMCI+ (Runge 2020).

    The graph, the p-values and the strengths are those of tigramite 5.2 (docs/time-series.md).

    Args:
        series: time steps in rows and variables in columns: a (T, N) array, a DataFrame (whose column names are kept,
            and whose index of dates must have equal steps), the path of a table, or a list of several series of the
            same variables. NaN is a missing value; a test uses the samples that have all its variables.
        tau_max: the largest lag of a link, in time steps.
        alpha: significance level of the links; with PCMCI+ that of all tests.
        contemporaneous: whether to use PCMCI+, which also directs contemporaneous links; PCMCI directs lagged ones.
        test: ``"parcorr"`` (partial correlation), ``"cmiknn"`` (nearest neighbours and permutations, for any
            dependence) or ``"discrete"`` (G-square, for categories).
        pc_alpha: significance level of PCMCI's first phase, 0.2 by ``"auto"``. A sequence, or None for tigramite's
            levels, chooses one for each variable by Akaike's criterion (ParCorr alone); with PCMCI+, it chooses one
            level for all its tests, in place of `alpha`.
        tau_min: the smallest lag of a link, of PCMCI alone.
        max_conds_dim: the most conditions in the first phase and, with PCMCI+, contemporaneous ones; None: no limit.
        max_combinations: how many sets of conditions the first phase tries for each link and size; None: all.
        max_conds_py, max_conds_px, max_conds_px_lagged: how many lagged parents of the target, of the source, and of a
            lagged source in PCMCI+ (None: as `max_conds_px`) are conditions of MCI tests; None: all.
        collider_rule: of PCMCI+: ``"majority"``, ``"conservative"`` or ``"none"``.
        mark_conflicts: whether PCMCI+ marks a link that it orients both ways as ``"x-x"``; otherwise the first
            direction counts, which depends on the order of the variables.
        reset_lagged_links: whether PCMCI+ tests the lagged links again that its first phase removed.
        correction: ``"fdr_bh"`` corrects the p-values of lagged links by Benjamini and Hochberg's method.
        names: the variables' names, if the series has none.
        mask: bool, of the shape of the series, True where a value is masked.
        mask_type: the roles in which a masked value removes a sample: any of the letters of ``"xyz"``.
        remove_missing_upto_maxlag: whether a missing value also removes the 2 tau_max samples after it.
        backend: where kernels run: ``"auto"`` (a GPU if one is visible), ``"cuda"`` or ``"host"``.
        device_memory_limit: upper bound on the device memory to use, in bytes.
        method: ``"batched"``, or ``"reference"``: the algorithm written plainly, one test after another.
        options: parameters of CMIknn: ``permutations``, ``k_cmi``, ``k_perm``, ``transform``, ``seed``, ``precision``.

    Raises:
        InvalidProblem: the series, the mask or a parameter cannot be used, or a test has too few samples.
        gpupc_impl.tables.DataError, OSError: a file cannot be read.
        BackendUnavailable, DeviceMemoryError: the backend cannot be used here, or its memory does not suffice.
    """
    given = dict(locals())
    parameters = checked(given)
    phases = METHODS[check_choice("method", method, tuple(METHODS))]
    for name in options:
        if test != "cmiknn" or name not in CMIKNN_OPTIONS:
            near = [NAMES_OF_TIGRAMITE[name]] if name in NAMES_OF_TIGRAMITE else difflib.get_close_matches(name, given)
            hint = f"did you mean {near[0]!r}? " if near else ""
            has = f"; it has: {', '.join(CMIKNN_OPTIONS)}" if test == "cmiknn" else ""
            raise InvalidProblem(f"{hint}the test {test} has no option {name!r}{has}")
    data = read_series(
        series, tau_max, names, mask, mask_type, missing_reaches=remove_missing_upto_maxlag, labels=test == "discrete"
    )
    opened = open_backend(backend, device_memory_limit)
    start = time.perf_counter()
    if test == "parcorr":
        made = ParCorr(data, opened) if data.is_whole and method == "batched" else ParCorrOfSamples(data)
    else:
        made = GSquare(data) if test == "discrete" else CMIknn(data, opened, options)
    found = search(made, parameters, phases)
    seconds = time.perf_counter() - start - opened.compile_seconds
    name = "pcmci+" if contemporaneous else "pcmci"
    facts: dict[str, Any] = {"method": name, "test": test, "implementation": method, "backend": opened.name}
    facts |= {"n_variables": data.n_variables, "n_samples": len(data.columns), "n_series": len(data.values)}
    facts |= {"tau_max": data.tau_max, "alpha": alpha, "seconds": round(seconds, 6), **made.facts, **found.facts}
    return dataclasses.replace(found, facts=facts)


def search(test: LaggedTest, parameters: SimpleNamespace, phases: ModuleType) -> TimeSeriesGraph:
    """Run PCMCI or PCMCI+ with a test and a module of phases; PCMCI+ at the level with the least mean criterion."""
    levels = parameters.levels
    limits = parameters.max_conds_dim, parameters.max_combinations, parameters.contemporaneous
    first = [phases.lagged_phase(test, level, max(1, parameters.tau_min), *limits) for level in levels]
    if not parameters.contemporaneous:
        return _pcmci(test, parameters, phases, first)
    found = [_pcmci_plus(test, parameters, phases, *each) for each in zip(first, levels, strict=True)]
    if len(found) == 1:
        return found[0]
    best = int(np.argmin([orientation.mean_score(test.series, each.graph, each.strengths) for each in found]))
    tests = sum(graph.facts["tests"] for graph in found)
    return dataclasses.replace(found[best], facts={"tests": tests, "chosen_alpha": levels[best]})


def _pcmci(
    test: LaggedTest, parameters: SimpleNamespace, phases: ModuleType, first: Sequence[LaggedPhase]
) -> TimeSeriesGraph:
    facts: dict[str, Any] = {}
    parents = first[0].parents
    if len(first) > 1:  # The level of each variable is that with the least criterion, the first of equal ones.
        variables = range(test.series.n_variables)
        scores = np.array([[akaike(test.series, j, phase.parents.of(j)) for j in variables] for phase in first])
        best = scores.argmin(axis=0).tolist()
        parents = Parents.from_lists([first[k].parents.of(j) for j, k in enumerate(best)])
        facts["chosen_pc_alpha"] = [parameters.levels[k] for k in best]
    limited = Parents(parents.starts, parents.columns, *parameters.most_parents)
    p_values, strengths, tests = phases.mci(test, limited, parameters.tau_min)
    facts["tests"] = sum(phase.tests for phase in first) + tests
    p_values, strengths = _by_lag(_corrected(p_values, parameters)), _by_lag(strengths)
    graph = orientation.links(p_values <= parameters.alpha)
    orientation.symmetrize(p_values, strengths)
    return TimeSeriesGraph(graph, p_values, strengths, test.series.names, parents.nodes(), {}, (), facts)


def _pcmci_plus(
    test: LaggedTest, parameters: SimpleNamespace, phases: ModuleType, first: LaggedPhase, level: float
) -> TimeSeriesGraph:
    n, parents = test.series.n_variables, Parents(first.parents.starts, first.parents.columns, *parameters.most_parents)
    linked = np.full(first.p_values.shape, parameters.reset_lagged_links)
    linked[:, :n] = ~np.eye(n, dtype=bool)
    linked[np.repeat(np.arange(n), np.diff(parents.starts)), parents.columns] = True
    second = phases.skeleton(test, linked, parents, level, parameters.max_conds_dim)

    triples, rule = orientation.unshielded(graph := orientation.links(_by_lag(second.linked))), parameters.collider_rule
    votes, tests = ({}, 0) if rule == "none" else phases.votes(test, second.linked, parents, level, triples)
    colliders, ambiguous = orientation.judge(triples, rule, votes, second.separations)
    orientation.orient_colliders(graph, colliders, parameters.mark_conflicts)
    orientation.apply_rules(graph, ambiguous, parameters.mark_conflicts)

    linked[:, :n] = True  # A link that the first phase removed keeps the p-value of that phase.
    p_values = _by_lag(_corrected(np.where(linked, second.p_values, first.p_values), parameters))
    strengths = _by_lag(np.where(linked, second.strengths, first.strengths))
    orientation.symmetrize(p_values, strengths)
    separations = {link: separating for link, separating in second.separations.items() if separating}
    facts = {"tests": first.tests + second.tests + tests}
    nodes = first.parents.nodes()
    return TimeSeriesGraph(graph, p_values, strengths, test.series.names, nodes, separations, tuple(ambiguous), facts)


def _by_lag(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix of links (see `phases`) as an array by source, target and lag."""
    return np.ascontiguousarray(matrix.reshape(len(matrix), -1, len(matrix)).transpose(2, 0, 1))


def _corrected(p_values: np.ndarray, parameters: SimpleNamespace) -> np.ndarray:
    """Return p-values, those of lagged links corrected for their number if that is requested."""
    if parameters.correction == "none":
        return p_values
    import scipy.stats

    p_values = p_values.copy()
    lagged = p_values[:, max(1, parameters.tau_min) * len(p_values) :]
    lagged[...] = scipy.stats.false_discovery_control(lagged.ravel(), method="bh").reshape(lagged.shape)
    return p_values
