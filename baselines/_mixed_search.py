"""PC-stable with the test of mixed data on the CPU: what `mixed-serial` and `mixed-parallel` share."""

import concurrent.futures

import numpy as np

from baselines import _cmiknn, _mixed
from baselines._cmiknn_search import COLUMNS, CmiknnTest, _CmiknnSearch
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


def mixed_skeleton(problem: MixedProblem, run: Run, threads: int) -> Skeleton:
    """Find the skeleton with that many threads, which share the samples of each test."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        search = _CmiknnSearch(problem, run.pmax, MixedTest(problem, threads, map if threads == 1 else pool.map))
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


class MixedTest(CmiknnTest):
    """The test for one permuted variable and set, and any number of other variables at once."""

    _problem: MixedProblem

    def partial_sums(self, permuted: int, others: list[int], members: tuple[int, ...]) -> np.ndarray:
        """(w, permutations + 1) int64: psi(n_xz) + psi(n_yz) - psi(n_z) - psi(k~) over all samples, the data first."""
        problem = self._problem
        values, categorical = problem.values, problem.categories > 0
        s, ys = list(members), list(others)
        key = _cmiknn.permutation_key(problem.seed, permuted, members)
        neighbours = self._nearest(s)
        numbers = np.arange(-1, problem.permutations)
        sums = []
        for start in range(0, len(numbers), COLUMNS):
            columns = self._permutations(values[permuted], neighbours, key, numbers[start : start + COLUMNS])
            lanes = np.ascontiguousarray(columns.T)

            def add_up(samples, lanes=lanes):
                return _mixed.partial_sums(
                    lanes,
                    categorical[permuted],
                    *(values[ys], categorical[ys]),
                    *(values[s], categorical[s]),
                    *(problem.k_cmi, problem.psi),
                    *samples,
                )

            sums.append(sum(self._map_tasks(add_up, self._samples)))
        return np.concatenate(sums, axis=1)

    def _nearest(self, members: list[int]) -> np.ndarray:
        """(n, k_perm) int32 neighbours given the members; (n, 0) without members."""
        problem = self._problem
        found = np.empty((problem.n_samples, problem.k_perm if members else 0), np.int32)
        if members:
            s, categorical = problem.values[members], problem.categories[members] > 0

            def fill(samples):
                _mixed.nearest_neighbours(s, categorical, problem.k_perm, *samples, found)

            list(self._map_tasks(fill, self._samples))
        return found
