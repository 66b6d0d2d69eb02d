"""tigramite's CMIknn inside PC-stable: the CPU version that the GPU-CMIknn paper compares with, and an outside oracle.

tigramite has random numbers of its own, so its skeleton may differ from ours where a p-value is near alpha. How
else its test differs is listed in docs/cmiknn.md.
"""

import concurrent.futures
import functools
import itertools
import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.nonlinear.problem import NonlinearProblem


@method(
    "tigramite",
    family="nonlinear",
    backends=("cpu",),
    source="tigramite, CMIknn (Runge 2018) in PC-stable; GPU-CMIknn, section 5.1, as CPU (1 worker) and CPU-8 (8)",
    summary="PC-stable with CMIknn of the package tigramite (k-d trees, slow)",
    params={"workers": Parameter(1, "processes that share the edges of a level", minimum=1, maximum=1024)},
    reference=True,
    random=True,
    unavailable=needs_package("tigramite", "tigramite"),
)
def tigramite(problem: NonlinearProblem, run: Run) -> Skeleton:
    """Several workers are spawned: a script must then keep its own work under ``if __name__ == "__main__"``."""
    workers = run.params["workers"]
    if workers == 1:
        search = _EdgeSearch(problem, run.pmax, functools.partial(map, TigramiteTest(problem).first_separating_set))
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)
    with concurrent.futures.ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),  # a fork would copy the threads' locks, and break CUDA
        initializer=_start_worker,
        initargs=(problem,),
    ) as pool:
        search = _EdgeSearch(problem, run.pmax, functools.partial(pool.map, _first_separating_set))
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


def open_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Single tests (`measurement.single_tests`): (i, j, S) -> p-value, in the paper's convention."""
    test = TigramiteTest(problem)
    return lambda i, j, members: problem.p_value(test.count(i, j, members))


class TigramiteTest:
    """tigramite's CMIknn with a problem's parameters, one thread, and random numbers for each test of its own."""

    def __init__(self, problem: NonlinearProblem):
        from tigramite.independence_tests.cmiknn import CMIknn

        self._problem = problem
        self._test = CMIknn(
            knn=problem.k_cmi,
            shuffle_neighbors=problem.k_perm,
            transform={"none": False}.get(problem.transform, problem.transform),
            permute="X",
            sig_samples=problem.permutations,
            sig_blocklength=1,  # samples are independent: level 0 permutes them one by one
            workers=1,
        )
        names = {name: k for k, name in enumerate(problem.names)}
        self._constant = {names[name] for name in problem.constant}

    def dependence(self, i: int, j: int, members: tuple[int, ...]) -> float:
        """CMI in nats."""
        return self._test.get_dependence_measure(*self._samples(i, j, members))

    def count(self, permuted: int, other: int, members: tuple[int, ...]) -> int:
        """How many permutations have at least the CMI of the data.

        tigramite's p-value is (count + 1) / (permutations + 1), the paper's is count / permutations. A constant
        variable is independent of all others; tigramite would give it the ranks of the samples' order.
        """
        permutations = self._problem.permutations
        if self._constant & {permuted, other}:
            return permutations
        seed = np.random.SeedSequence([self._problem.seed, permuted, other, *members])
        self._test.random_state = np.random.default_rng(seed)
        array, roles = self._samples(permuted, other, members)
        value = self._test.get_dependence_measure(array, roles)
        p_value = self._test.get_shuffle_significance(array, roles, value)
        return round(p_value * (permutations + 1)) - 1

    def first_separating_set(self, edge) -> tuple[int, int, tuple[int, ...] | None]:
        """Test an edge until a set separates it: (tests made, largest count, that set or None).

        ``edge`` is (level, sides); a side is (permuted variable, other variable, candidates for the set).
        """
        level, sides = edge
        tests, largest = 0, -1
        for permuted, other, candidates in sides:
            for members in itertools.combinations(candidates, level):
                count = self.count(permuted, other, members)
                tests, largest = tests + 1, max(largest, count)
                if count >= self._problem.critical_count:
                    return tests, largest, members
        return tests, largest, None

    def _samples(self, i: int, j: int, members: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The (2 + l, n) float64 samples and the role of each row: 0 for X, 1 for Y, 2 for Z."""
        array = self._problem.values[[i, j, *members]].astype(np.float64)
        return array, np.array([0, 1, *(2 for _ in members)])


class _EdgeSearch(LevelSearch):
    """PC-stable edge by edge; a `LevelSearch`. ``map_edges`` applies `TigramiteTest.first_separating_set`."""

    def __init__(self, problem: NonlinearProblem, pmax: bool, map_edges):
        self._problem, self._map_edges = problem, map_edges
        p = problem.n_variables
        self._adjacent = problem.start_graph()
        self._pmax = np.full((p, p), np.nan) if pmax else None

    def adjacency(self) -> np.ndarray:
        return self._adjacent

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    def run_level(self, level: int) -> LevelOutcome:
        rows = [np.flatnonzero(row).tolist() for row in self._adjacent]
        all_edges = np.argwhere(np.triu(self._adjacent))
        pairs = self._problem.edges_to_test(all_edges).tolist()
        edges = []
        for i, j in pairs:
            sides = [(i, j, [k for k in rows[i] if k != j]), (j, i, [k for k in rows[j] if k != i])]
            edges.append((level, sides if level else sides[:1]))  # without a set a pair is tested once
        tests, removed, sets = 0, [], []
        for (i, j), (made, largest, members) in zip(pairs, self._map_edges(edges), strict=True):
            tests += made
            if self._pmax is not None and made:
                self._pmax[i, j] = self._pmax[j, i] = np.fmax(self._pmax[i, j], self._problem.p_value(largest))
            if members is not None:
                removed.append((i, j))
                sets.append(members)
        for i, j in removed:
            self._adjacent[i, j] = self._adjacent[j, i] = False
        return LevelOutcome(
            edges=len(all_edges) - len(removed),
            max_degree=self._problem.most_tested_degree(self._adjacent.sum(axis=1)),
            tests=tests,
            pairs=np.array(removed, np.int32).reshape(-1, 2),
            sets=np.array(sets, np.int32).reshape(len(sets), level),
        )


_worker: TigramiteTest | None = None
"""The test of a worker process."""


def _start_worker(problem: NonlinearProblem) -> None:
    global _worker
    _worker = TigramiteTest(problem)


def _first_separating_set(edge):
    return _worker.first_separating_set(edge)
