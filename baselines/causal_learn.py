"""causal-learn's skeleton search with its own tests: another group's implementation of PC-stable, as an independent
oracle. Its RCIT draws new random numbers for each test, so its skeleton may differ from ours if a p-value is near
alpha. docs/kernel.md lists the other differences of its kernel tests."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from baselines.peers._answer import deepest_level, refuse_workload
from gpupc_impl.core.pc_stable import Progress, stop_reason
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Parameter, Run, method, needs_package
from gpupc_impl.core.result import SeparatingSets, Skeleton

ORIENTATION = {
    "orientation": Parameter("none", "own: also orient, by its default rules; not timed", choices=("none", "own"))
}
"""A parameter that does not affect the skeleton. With ``own``, ``facts["arrows"]`` contains the arrows of the graph
that causal-learn's ``pc`` returns, as pairs [i, j] for i -> j."""

WATCHED: dict[str, Any] = {
    "backends": ("cpu",),
    "params": ORIENTATION,
    "reference": True,
    "unavailable": needs_package("causallearn", "causal-learn"),
}


def watched(test_class: type) -> type:
    """A causal-learn test class that records its tests and their results; `watch` must be called first."""

    class Watched(test_class):
        def watch(self, problem: Problem) -> None:
            """Record the tests of a problem's search, and answer for its fixed pairs without a test."""
            p, fixed = problem.n_variables, problem.fixed
            self.alpha = problem.alpha
            self.fixed: dict[tuple[int, int], float] = {}
            if fixed is not None:
                self.fixed |= dict.fromkeys(map(tuple, fixed.required.tolist()), 0.0)
                self.fixed |= dict.fromkeys(map(tuple, fixed.forbidden.tolist()), 1.0)
            self.performed: list[int] = []
            self.level_starts: list[float] = []
            self.separated: dict[tuple[int, int], tuple[int, ...]] = {}
            self.pmax = np.full((p, p), np.nan)

        def __call__(self, x, y, condition_set=None):
            level = len(condition_set)
            pair = (int(min(x, y)), int(max(x, y)))
            known_p_value = self.fixed.get(pair)
            if level == len(self.performed) and (level == 0 or known_p_value is None):
                self.performed.append(0)
                self.level_starts.append(time.perf_counter())
            if known_p_value is not None:  # A fixed pair is dependent in every test, or independent at level 0.
                return known_p_value
            cached = len(self.pvalue_cache)
            p_value = super().__call__(x, y, condition_set)
            self.performed[level] += len(self.pvalue_cache) - cached
            if pair not in self.separated:
                self.pmax[x, y] = self.pmax[y, x] = np.fmax(self.pmax[x, y], p_value)
                if p_value > self.alpha:
                    self.separated[pair] = tuple(map(int, condition_set))
            return p_value

    return Watched


def watched_search(problem: Problem, run: Run, test, facts: dict) -> Skeleton:
    """Run causal-learn's own search with a `watched` test. causal-learn does not stop at the first separating set, and
    stores the union of all separating sets. The set kept here is the first set given which its test found the pair
    independent. This set is the canonical one unless its test decides differently from ours. ``tests_per_level`` counts
    the tests that causal-learn computed, without those that it found in its cache."""
    from causallearn.utils.PCUtils.SkeletonDiscovery import skeleton_discovery

    p = problem.n_variables
    test.watch(problem)
    start = time.perf_counter()
    most = deepest_level(problem, p)  # causal-learn fails at a level without possible tests
    graph = skeleton_discovery(test.data, problem.alpha, test, stable=True, show_progress=False, max_k=most)
    ends = [*test.level_starts[1:], time.perf_counter()]
    seconds = np.diff([start, *ends]) if test.level_starts else np.empty(0)
    adjacency = graph.G.graph != 0
    if run.params["orientation"] == "own":
        begin = time.perf_counter()
        facts = {**facts, "arrows": _arrows(graph), "translation_s": time.perf_counter() - begin}

    levels_run = len(test.level_starts)
    removed = [[] for _ in range(levels_run)]
    for pair, members in test.separated.items():
        removed[len(members)].append((pair, members))
    forbidden = 0 if problem.fixed is None else len(problem.fixed.forbidden)
    edges_per_level = p * (p - 1) // 2 - forbidden - np.cumsum([len(pairs) for pairs in removed])
    if run.progress is not None:
        for level in range(levels_run):
            run.progress(Progress(level, int(edges_per_level[level]), test.performed[level], float(seconds[level])))
    return Skeleton(
        adjacency=adjacency,
        sepsets=SeparatingSets.from_levels(
            adjacency, [tuple(map(np.array, zip(*pairs, strict=True))) for pairs in removed[1:] if pairs]
        ),
        names=problem.names,
        tests_per_level=tuple(test.performed),
        edges_per_level=tuple(map(int, edges_per_level)),
        seconds_per_level=tuple(map(float, seconds)),
        levels_run=levels_run,
        stopped_because=stop_reason(problem, levels_run, problem.most_tested_degree(adjacency.sum(axis=1))),
        pmax=test.pmax if run.pmax else None,
        facts=facts,
    )


def _arrows(graph) -> list[list[int]]:
    """Return the arrows of causal-learn's graph, by the default rules of its ``pc``. ``uc_rule=0`` and
    ``uc_priority=2`` orient v-structures by the union of separating sets, and of contradicting v-structures the first
    one; Meek's rules follow. Edges with two arrowheads count as undirected."""
    from causallearn.utils.PCUtils import Meek, UCSepset

    marks = Meek.meek(UCSepset.uc_sepset(graph, priority=2)).G.graph  # Entries [j, i] = 1 and [i, j] = -1 mean i -> j.
    return np.argwhere((marks == -1) & (marks.T == 1)).tolist()


@method(
    "causal-learn",
    family="gaussian",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with FisherZ",
    summary="skeleton search of the package causal-learn (Python, slow)",
    canonical=False,
    **WATCHED,
)
def causal_learn(problem: Any, run: Run) -> Skeleton:
    """Run causal-learn's own search and test (see `watched_search`).

    - Its test inverts the correlation matrix of (i, j, S). If that is exactly singular, the test raises an error; if it
      is nearly singular, as with duplicated columns, the answer depends on rounding. The test has neither undefined
      results nor a pseudo-inverse, and ignores `residual_tolerance`.
    - ``df_convention="cupc"`` has one degree of freedom less, so its test receives one sample less."""
    from causallearn.utils.cit import FisherZ

    p = problem.n_variables
    # causal-learn reads only the width of the data, so the values are placeholders.
    test = watched(FisherZ)(np.arange(2.0 * p).reshape(2, p))
    test.correlation_matrix = problem.correlation
    test.sample_size = problem.degrees_of_freedom(0) + 3
    return watched_search(problem, run, test, run.facts)


DISCRETE_TESTS = {"chi-square": "chisq", "g-square": "gsq"}


@method(
    "causal-learn-discrete",
    family="discrete",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with chisq or gsq",
    summary="skeleton search of the package causal-learn (Python, slow)",
    canonical=False,
    **WATCHED,
)
def causal_learn_discrete(problem: Any, run: Run) -> Skeleton:
    """Run causal-learn's own search and test (see `watched_search`), which has the adjusted rule for degrees of
    freedom, also for a problem with the full rule, as the result's facts then state."""
    from causallearn.utils.cit import Chisq_or_Gsq

    refuse_workload(problem, run)
    solved = dataclasses.replace(problem, df_rule="adjusted")
    test = watched(Chisq_or_Gsq)(problem.codes.T, DISCRETE_TESTS[problem.test])
    return watched_search(solved, run, test, {**run.facts, "problem": solved.facts()})


FAST = {"fast_kci": Parameter(False, "a KCI problem by FastKCI, which tests on parts of the samples")}
APPROXIMATIONS = {"lindsay-pilla-basak": "lpd4", "satterthwaite-welch": "gamma", "hall-buckley-eagleson": "hbe"}
"""causal-learn's names for the null distributions."""


@method(
    "causal-learn-kernel",
    family="kernel",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with RCIT, KCI or FastKCI",
    summary="skeleton search of the package causal-learn with its kernel tests (Python, slow)",
    random=True,
    open_test=lambda problem, backend, params: open_kernel_test(problem, params),
    **{**WATCHED, "params": {**ORIENTATION, **FAST}},
)
def causal_learn_kernel(problem: Any, run: Run) -> Skeleton:
    return watched_search(problem, run, _kernel_test(problem, run.params), run.facts)


def open_kernel_test(problem: Any, params: Mapping[str, Any]) -> Callable[..., float]:
    test = _kernel_test(problem, params)
    test.watch(problem)
    return lambda i, j, members: float(test(i, j, tuple(members)))


def _kernel_test(problem: Any, params: Mapping[str, Any]):
    """Return causal-learn's test; the p-value of a constant variable, which it cannot test, is 1."""
    from causallearn.utils import cit

    program: type = cit.RCIT
    options: dict[str, Any] = {}
    if problem.test == "kci":
        program = cit.FastKCI if params["fast_kci"] else cit.KCI
        options = {} if params["fast_kci"] else {"approx": problem.null == "gamma"}
    else:
        options = {"approx": APPROXIMATIONS[problem.null], "num_f2": problem.features, "rcit": problem.test == "rcit"}
        options["num_f"] = problem.n_set_features

    class KernelTest(program):
        def __call__(self, x, y, condition_set=None):
            if constant[[x, y]].any():
                return self.pvalue_cache.setdefault((min(x, y), max(x, y), tuple(condition_set)), 1.0)
            state = np.random.get_state()  # noqa: NPY002, since causal-learn draws from NumPy's global state
            seed = np.random.SeedSequence([problem.seed, *sorted((int(x), int(y))), *map(int, condition_set)])
            np.random.seed(seed.generate_state(1))  # noqa: NPY002
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return super().__call__(x, y, tuple(k for k in condition_set if not constant[k]))
            finally:
                np.random.set_state(state)  # noqa: NPY002

    constant = problem.is_constant()
    return watched(KernelTest)(np.ascontiguousarray(problem.values.T), **options)
