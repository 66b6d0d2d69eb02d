"""tigramite's CMIknn and CMIknnMixed inside PC-stable: the CPU version with which the GPU-CMIknn paper compares, and
independent oracles. tigramite draws its own random numbers, so its skeleton may differ from ours if a p-value is near
alpha. docs/cmiknn.md and docs/mixed.md list the other differences of its tests."""

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np

from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem

PROGRAM: dict[str, Any] = {
    "backends": ("cpu",),
    "reference": True,
    "random": True,
    "open_test": lambda problem, backend, params: open_test(problem),
    "unavailable": needs_package("tigramite", "tigramite"),
}


@method(
    "tigramite",
    family="nonlinear",
    source="tigramite, CMIknn (Runge 2018) in PC-stable; GPU-CMIknn, sections 5.1 and 5.3: CPU-8 with 8 workers",
    summary="PC-stable with CMIknn of the package tigramite (k-d trees, slow)",
    params={"workers": Parameter(1, "processes that share the edges of a level", minimum=1, maximum=1024)},
    **PROGRAM,
)
@method(
    "tigramite-mixed",
    family="mixed",
    source="tigramite, CMIknnMixed (Popescu et al. 2023), estimator MS (Mesner and Shalizi 2021), in PC-stable",
    summary="PC-stable with CMIknnMixed of the package tigramite (k-d trees, slow)",
    **PROGRAM,
)
def tigramite(problem: NonlinearProblem, run: Run) -> Skeleton:
    """With several workers, which are spawned, a script must keep its own code under ``if __name__ == "__main__"``."""
    workers = run.params.get("workers", 1)
    with contextlib.ExitStack() as stack:
        if workers == 1:
            map_edges = functools.partial(map, _test_of(problem).first_separating_set)
        else:
            context = multiprocessing.get_context("spawn")  # A fork would copy locks that threads hold, and break CUDA.
            pool = concurrent.futures.ProcessPoolExecutor(workers, context, _start_worker, (problem,))
            map_edges = functools.partial(stack.enter_context(pool).map, _first_separating_set)
        search = _EdgeSearch(problem, run.pmax, map_edges)
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


def open_test(problem: NonlinearProblem) -> Callable[..., float]:
    test = _test_of(problem)
    return lambda i, j, members: problem.p_value(test.count(i, j, members))


def _test_of(problem: NonlinearProblem) -> "TigramiteTest":
    return (TigramiteMixedTest if isinstance(problem, MixedProblem) else TigramiteTest)(problem)


class TigramiteTest:
    """tigramite's CMIknn with a problem's parameters, on one thread; each test has a random seed of its own."""

    def __init__(self, problem: NonlinearProblem):
        self._problem = problem
        self._test = self._tigramite_test(
            knn=problem.k_cmi,
            shuffle_neighbors=problem.k_perm,
            sig_samples=problem.permutations,
            sig_blocklength=1,  # Samples are independent, so level 0 permutes single samples.
            workers=1,
        )
        names = {name: k for k, name in enumerate(problem.names)}
        self._constant = {names[name] for name in problem.constant}

    def _tigramite_test(self, **parameters: Any) -> Any:
        from tigramite.independence_tests.cmiknn import CMIknn

        transform = self._problem.transform
        return CMIknn(transform=False if transform == "none" else transform, permute="X", **parameters)

    def dependence(self, i: int, j: int, members: tuple[int, ...]) -> float:
        """Return CMI in nats."""
        array, roles, options = self._samples(i, j, members)
        return self._test.get_dependence_measure(array, roles, **options)

    def count(self, permuted: int, other: int, members: tuple[int, ...]) -> int:
        """Return the number of permutations whose CMI is at least that of the data. tigramite's p-value is (count + 1)
        / (permutations + 1), and the paper's is count / permutations. A constant variable is independent of all others;
        tigramite would rank its values by the order of the samples."""
        permutations = self._problem.permutations
        if self._constant & {permuted, other}:
            return permutations
        seed = np.random.SeedSequence([self._problem.seed, permuted, other, *members])
        self._test.random_state = np.random.default_rng(seed)
        array, roles, options = self._samples(permuted, other, members)
        value = self._test.get_dependence_measure(array, roles, **options)
        p_value = self._test.get_shuffle_significance(array, roles, value, **options)
        return round(p_value * (permutations + 1)) - 1

    def first_separating_set(self, edge) -> tuple[int, int, tuple[int, ...] | None]:
        """Test an edge until a set separates it; returns the number of tests, the largest count, and the set or None.
        ``edge`` is (level, sides); a side is (permuted variable, other variable, candidates for the set)."""
        level, sides = edge
        tests, largest = 0, -1
        for permuted, other, candidates in sides:
            for members in itertools.combinations(candidates, level):
                count = self.count(permuted, other, members)
                tests, largest = tests + 1, max(largest, count)
                if count >= self._problem.critical_count:
                    return tests, largest, members
        return tests, largest, None

    def _samples(self, i: int, j: int, members: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return the (2 + l, n) samples, the role of each row (0 for X, 1 for Y, 2 for Z), and further arguments."""
        array = self._problem.values[[i, j, *members]].astype(np.float64)
        return array, np.array([0, 1, *(2 for _ in members)]), {}


class _EdgeSearch(GraphSearch):
    """PC-stable, edge by edge; ``map_edges`` maps `TigramiteTest.first_separating_set` over the edges of a level."""

    def __init__(self, problem: NonlinearProblem, pmax: bool, map_edges):
        super().__init__(problem, pmax)
        self._map_edges = map_edges

    def run_level(self, level: int) -> LevelOutcome:
        rows = [np.flatnonzero(row).tolist() for row in self.adjacent]
        pairs = self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).tolist()
        edges = []
        for i, j in pairs:
            sides = [(i, j, [k for k in rows[i] if k != j]), (j, i, [k for k in rows[j] if k != i])]
            edges.append((level, sides if level else sides[:1]))  # at level 0 a pair is tested once
        tests, removed = 0, {}
        possible = progress_watcher.possible_tests(self.adjacent, level)
        for (i, j), (edge_tests, largest, members) in zip(pairs, self._map_edges(edges), strict=True):
            tests += edge_tests
            progress_watcher.advance(tests, possible, "possible tests")
            if edge_tests:
                self.note_p_values(i, j, self.problem.p_value(largest))
            if members is not None:
                removed[i, j] = members
        return self.remove(level, tests, removed)


_worker: TigramiteTest | None = None


def _start_worker(problem: NonlinearProblem) -> None:
    global _worker
    _worker = _test_of(problem)


def _first_separating_set(edge):
    return _worker.first_separating_set(edge)


class TigramiteMixedTest(TigramiteTest):
    """CMIknnMixed with a problem's values and parameters."""

    _problem: MixedProblem

    def _tigramite_test(self, **parameters: Any) -> Any:
        from tigramite.independence_tests.cmiknn_mixed import CMIknnMixed

        # The problem's values are transformed already.
        return CMIknnMixed(estimator="MS", transform="none", **parameters)

    def _samples(self, i: int, j: int, members: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        array, roles, _ = super()._samples(i, j, members)
        categorical = self._problem.categories[[i, j, *members]] > 0
        kinds = np.broadcast_to(categorical[:, None], array.shape).astype(int)  # 1 for a category, 0 for a number
        return array, roles, {"data_type": kinds}
