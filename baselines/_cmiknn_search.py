"""PC-stable with CMIknn on the CPU: the search that `cmiknn-serial` and `cmiknn-parallel` share."""

import concurrent.futures
import itertools

import numpy as np

from baselines import _cmiknn
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.problem import NonlinearProblem

COLUMNS = 128
"""Permutations that are worked on side by side: bounds the memory of many permutations."""
LANES = 16
"""Columns are a multiple of this, so that no loop over them has a remainder to do one by one."""
SMALLEST_TASK = 32
"""Samples handed to a thread at least."""


def cmiknn_skeleton(problem: NonlinearProblem, run: Run, threads: int) -> Skeleton:
    """Find the skeleton with that many threads, which share the samples of each test.

    Sums are of whole numbers and every random number has its own counter, so the answer does not depend on the number
    of threads.
    """
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        search = _CmiknnSearch(problem, run.pmax, CmiknnTest(problem, threads, map if threads == 1 else pool.map))
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


class CmiknnTest:
    """The test of Algorithm 1 for one permuted variable and set, and any number of other variables at once."""

    def __init__(self, problem: NonlinearProblem, threads: int = 1, map_tasks=map):
        self._problem, self._map_tasks = problem, map_tasks
        size = max(ceil_div(problem.n_samples, 4 * threads), SMALLEST_TASK) if threads > 1 else problem.n_samples
        firsts = range(0, problem.n_samples, size)
        self._samples = [(first, min(first + size, problem.n_samples)) for first in firsts]
        self._shares = threads

    def partial_sums(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """(w, permutations + 1) int64: psi(n_xz) + psi(n_yz) - psi(n_z) over all samples, the data first."""
        values, numbers = self._problem.values, np.arange(-1, self._problem.permutations)
        s, ys, psi = values[list(members)], values[others], self._problem.psi
        key = _cmiknn.permutation_key(self._problem.seed, permuted, members)
        neighbours = self._neighbours(s)
        sums = []
        for start in range(0, len(numbers), COLUMNS):
            block = numbers[start : start + COLUMNS]
            padding = np.full(-len(block) % LANES, -1)
            columns = self._permutations(values[permuted], neighbours, key, np.append(block, padding))

            def add_up(samples, columns=columns):
                return _cmiknn.partial_sums(columns, ys, s, self._problem.k_cmi, psi, *samples)

            sums.append(sum(self._map_tasks(add_up, self._samples))[:, : len(block)])
        return np.concatenate(sums, axis=1)

    def counts(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """(w,) permutations whose CMI is at least that of the data: those whose sum is at most that of the data."""
        sums = self.partial_sums(permuted, others, members)
        return (sums[:, 1:] <= sums[:, :1]).sum(axis=1)

    def p_value(self, permuted: int, other: int, members: tuple[int, ...]) -> float:
        return float(self._problem.p_value(self.counts(permuted, [other], members)[0]))

    def _neighbours(self, s: np.ndarray) -> np.ndarray:
        """(n, k_perm) int32 nearest samples in S, nearest first; (n, 0) when S is empty."""
        neighbours = np.empty((self._problem.n_samples, self._problem.k_perm if len(s) else 0), np.int32)
        if len(s):

            def fill(samples):
                _cmiknn.nearest_neighbours(s, self._problem.k_perm, *samples, neighbours)

            list(self._map_tasks(fill, self._samples))
        return neighbours

    def _permutations(self, x: np.ndarray, neighbours: np.ndarray, key, numbers: np.ndarray) -> np.ndarray:
        """(n, width): a permutation of x in each column."""
        columns = np.empty((len(x), len(numbers)), x.dtype)
        shares = np.array_split(np.arange(len(numbers)), self._shares)

        def fill(share):
            part = slice(share[0], share[-1] + 1)
            _cmiknn.permute(x, neighbours, key, numbers[part], columns[:, part])

        list(self._map_tasks(fill, [share for share in shares if len(share)]))
        return columns


class _CmiknnSearch(LevelSearch):
    """PC-stable at work on one problem (Algorithm 5 without its device); a `LevelSearch`.

    Variables are taken one after the other, and their sets in lexicographic order. The permutations of a variable given
    a set serve all its neighbours that are not separated yet. A pair is met first from its smaller end, so exactly
    the tests of a serial PC-stable are made that goes from edge to edge.
    """

    def __init__(self, problem: NonlinearProblem, pmax: bool, test: CmiknnTest):
        self._problem, self._test = problem, test
        p = problem.n_variables
        self._adjacent = problem.start_graph()
        self._pmax = np.full((p, p), np.nan) if pmax else None

    def adjacency(self) -> np.ndarray:
        return self._adjacent

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    def run_level(self, level: int) -> LevelOutcome:
        neighbours = [np.flatnonzero(row).tolist() for row in self._adjacent]
        to_test = set(map(tuple, self._problem.edges_to_test(np.argwhere(np.triu(self._adjacent))).tolist()))
        removed: dict[tuple[int, int], tuple[int, ...]] = {}
        tests = 0
        for permuted, row in enumerate(neighbours):
            # Without a set it does not matter from which end a pair is tested: the smaller one.
            others = [k for k in row if level or k > permuted]
            others = [k for k in others if (min(k, permuted), max(k, permuted)) in to_test - removed.keys()]
            if len(row) <= level:
                continue
            for members in itertools.combinations(row, level):
                if not others:
                    break
                tested = [k for k in others if k not in members]
                if not tested:
                    continue
                tests += len(tested)
                counts = self._test.counts(permuted, tested, members)
                self._update_pmax(permuted, tested, counts)
                for k in np.array(tested)[counts >= self._problem.critical_count].tolist():
                    removed[min(k, permuted), max(k, permuted)] = members
                    others.remove(k)
        pairs = np.array(sorted(removed), np.int32).reshape(-1, 2)
        self._adjacent[pairs[:, 0], pairs[:, 1]] = self._adjacent[pairs[:, 1], pairs[:, 0]] = False
        return LevelOutcome(
            edges=int(self._adjacent.sum()) // 2,
            max_degree=self._problem.most_tested_degree(self._adjacent.sum(axis=1)),
            tests=tests,
            pairs=pairs,
            sets=np.array([removed[i, j] for i, j in pairs.tolist()], np.int32).reshape(len(pairs), level),
        )

    def _update_pmax(self, permuted: int, tested: list[int], counts: np.ndarray) -> None:
        if self._pmax is not None:
            largest = np.fmax(self._pmax[permuted, tested], self._problem.p_value(counts))
            self._pmax[permuted, tested] = self._pmax[tested, permuted] = largest
