"""PC-stable with CMIknn on the CPU, the search of the references of the nonlinear and the mixed family.

This is Algorithm 5 of GPU-CMIknn without its device: the permutations of a variable given a set serve the tests of all
its neighbours. Sets, their order and all random numbers are those of the GPU methods.
"""

import concurrent.futures
import itertools
import weakref
from collections.abc import Callable

import numpy as np

from baselines import _cmiknn
from gpupc_impl.core import watching
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.registry import Run
from gpupc_impl.core.tiers import allowed_partners
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.problem import NonlinearProblem

COLUMNS = 128
"""The number of permutations that are evaluated at once, which bounds the memory."""
SMALLEST_TASK = 32
"""The lower bound on the samples of a thread's task."""


class CmiknnTest:
    """The test of Algorithm 1 for one permuted variable and set, and any number of other variables at once.

    Args:
        threads: the number of threads that share the samples of each test. The result does not depend on this number,
            since sums are of integers and every random number has its own counter.
        map_tasks: applies a function to tasks in these threads, as `map` does.
    """

    COLUMN_MULTIPLE = 16
    """The number of columns is a multiple of this number, so that vectorized loops over columns have no scalar
    remainder."""

    def __init__(self, problem: NonlinearProblem, threads: int = 1, map_tasks=map):
        self._problem, self._map_tasks = problem, map_tasks
        size = max(ceil_div(problem.n_samples, 4 * threads), SMALLEST_TASK) if threads > 1 else problem.n_samples
        firsts = range(0, problem.n_samples, size)
        self._samples = [(first, min(first + size, problem.n_samples)) for first in firsts]
        self._shares = threads

    @classmethod
    def single(cls, problem: NonlinearProblem, threads: int) -> Callable[..., float]:
        """`p_value` of a test whose threads end when it is garbage collected."""
        if threads == 1:
            return cls(problem).p_value
        pool = concurrent.futures.ThreadPoolExecutor(threads)
        test = cls(problem, threads, pool.map)
        weakref.finalize(test, pool.shutdown)
        return test.p_value

    def partial_sums(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """Return the sums over all samples that determine CMI, (w, permutations + 1) int64; the sum of the data comes
        first."""
        numbers, x = np.arange(-1, self._problem.permutations), self._problem.values[permuted]
        key = _cmiknn.permutation_key(self._problem.seed, permuted, members)
        neighbours = self._neighbours(list(members))
        sums = []
        for start in range(0, len(numbers), COLUMNS):
            block = numbers[start : start + COLUMNS]
            padding = np.full(-len(block) % self.COLUMN_MULTIPLE, -1)
            columns = self._permutations(x, neighbours, key, np.append(block, padding))
            add_up = self._adder(columns, permuted, list(others), list(members))
            sums.append(sum(self._map_tasks(add_up, self._samples))[:, : len(block)])
        return np.concatenate(sums, axis=1)

    def _adder(self, columns: np.ndarray, permuted: int, others: list[int], members: list[int]) -> Callable:
        """Return a function from a range of samples to their sums of psi(n_xz) + psi(n_yz) - psi(n_z), (w, width)."""
        values, k, psi = self._problem.values, self._problem.k_cmi, self._problem.psi
        ys, s = values[others], values[members]
        return lambda samples: _cmiknn.partial_sums(columns, ys, s, k, psi, *samples)

    def counts(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of permutations, (w,), whose CMI is at least that of the data, that is, whose sum is at
        most that of the data."""
        sums = self.partial_sums(permuted, others, members)
        return (sums[:, 1:] <= sums[:, :1]).sum(axis=1)

    def p_value(self, permuted: int, other: int, members: tuple[int, ...]) -> float:
        return float(self._problem.p_value(self.counts(permuted, [other], members)[0]))

    def _neighbours(self, members: list[int]) -> np.ndarray:
        """The nearest samples in S, nearest first, as (n, k_perm) int32; (n, 0) if S is empty."""
        neighbours = np.empty((self._problem.n_samples, self._problem.k_perm if members else 0), np.int32)
        if members:
            list(self._map_tasks(lambda samples: self._fill_neighbours(members, *samples, neighbours), self._samples))
        return neighbours

    def _fill_neighbours(self, members: list[int], first: int, last: int, neighbours: np.ndarray) -> None:
        """Fill the rows of samples [first, last)."""
        s = self._problem.values[members]
        _cmiknn.nearest_neighbours(s, self._problem.k_perm, first, last, neighbours)

    def _permutations(self, x: np.ndarray, neighbours: np.ndarray, key, numbers: np.ndarray) -> np.ndarray:
        """Return a permutation of x in each column: (n, width)."""
        columns = np.empty((len(x), len(numbers)), x.dtype)
        shares = np.array_split(np.arange(len(numbers)), self._shares)

        def fill(share):
            part = slice(share[0], share[-1] + 1)
            _cmiknn.permute(x, neighbours, key, numbers[part], columns[:, part])

        list(self._map_tasks(fill, [share for share in shares if len(share)]))
        return columns


def cmiknn_skeleton(problem: NonlinearProblem, run: Run, threads: int, test_class: type[CmiknnTest] = CmiknnTest):
    """Find the skeleton with this many threads, which share the samples of each test."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        test = test_class(problem, threads, map if threads == 1 else pool.map)
        search = _CmiknnSearch(problem, run.pmax, test)
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


class _CmiknnSearch(GraphSearch):
    """PC-stable on one problem.

    Variables are visited one after the other, and their sets in lexicographic order. The permutations of a variable
    given a set serve all its neighbours that are not separated yet. A pair is visited first from its smaller end, so
    the tests are those of a serial PC-stable that visits edge after edge.
    """

    def __init__(self, problem: NonlinearProblem, pmax: bool, test: CmiknnTest):
        super().__init__(problem, pmax)
        self._test = test

    def run_level(self, level: int) -> LevelOutcome:
        neighbours = [np.flatnonzero(row).tolist() for row in self.adjacent]
        to_test = set(map(tuple, self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).tolist()))
        removed: dict[tuple[int, int], tuple[int, ...]] = {}
        tests, possible = 0, watching.possible_tests(self.adjacent, level)
        for permuted, row in enumerate(neighbours):
            # At level 0 a pair is tested only from its smaller end.
            others = [k for k in row if level or k > permuted]
            others = [k for k in others if (min(k, permuted), max(k, permuted)) in to_test - removed.keys()]
            if len(row) <= level:
                continue
            for members in itertools.combinations(row, level):
                if not others:
                    break
                tested = allowed_partners(self.problem.tiers, permuted, others, members)
                if not tested:
                    continue
                tests += len(tested)
                counts = self._test.counts(permuted, tested, members)
                watching.advance(tests, possible, "possible tests")
                self.note_p_values(permuted, tested, self.problem.p_value(counts))
                for k in np.array(tested)[counts >= self.problem.critical_count].tolist():
                    removed[min(k, permuted), max(k, permuted)] = members
                    others.remove(k)
        return self.remove(level, tests, removed)
