"""Random problems, a serial search of them, and backends that tell what a search asks of them."""

import collections
import warnings

import numpy as np
from scipy import stats

from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic
from tests.graphs import plain_pc_stable

METHODS = ("gpupc", "disc-cupc")
SHAPES = {
    "gpupc": [{}, {"delta": 7, "gamma": 2, "beta": 1}, {"delta": 32, "gamma": 3, "beta": 2}],
    "disc-cupc": [{}, {"beta": 1, "gamma": 1}, {"beta": 3, "gamma": 5}],
}


def sampled(seed, p=8, n=400, most=4, noise=0.4, **options):
    """A random network's samples: each variable copies a function of up to two earlier ones, or a random value."""
    rng = np.random.default_rng(seed)
    categories = rng.integers(2, most + 1, p)
    codes = np.empty((n, p), np.int64)
    for k in range(p):
        codes[:, k] = rng.integers(0, categories[k], n)
        for parent in rng.choice(k, min(k, 2), replace=False) if k else ():
            copies = rng.random(n) > noise
            codes[copies, k] = (codes[copies, parent] + parent) % categories[k]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        declared = {f"V{k}": int(count) for k, count in enumerate(categories)}
        return DiscreteProblem.from_data(codes, categories=declared, **options)


def serial_search(problem):
    """Adjacency and separating sets of a serial PC-stable, with the statistic of NumPy."""

    def test(i, j, S):
        value, df = statistic(problem, i, j, np.array(S, np.int64))
        return np.nan, df == 0 or value <= stats.chi2.isf(problem.alpha, df)

    return plain_pc_stable(problem, test)[:2]


def run(problem, method, backend, params=None, **options):
    return solve(problem, get_method(method), backend, params or {}, **options)


def assert_same(found, expected):
    assert found == expected
    assert found.tests_per_level[0] == expected.tests_per_level[0]


class WatchedBackend(HostBackend):
    """Counts launches and allocations, and records the last grid and block of each kernel and the bytes of copies; with
    multiprocessors, searches launch as on a GPU that has so many."""

    def __init__(self, multiprocessors: int = 0):
        super().__init__()
        self.multiprocessors = multiprocessors
        self.launches, self.shapes = collections.Counter(), {}
        self.uploaded, self.downloaded, self.allocated = [], [], 0
        self.waits_for_best = True  # Otherwise launches depend on which kernels are compiled in time.

    def empty(self, shape, dtype):
        self.allocated += 1
        return super().empty(shape, dtype)

    def empty_all(self, **arrays):
        before = self.allocated
        made = super().empty_all(**arrays)
        self.allocated = before + 1  # of a GPU
        return made

    def kernel(self, source, expression, *declared):
        kernel = super().kernel(source, expression, *declared)

        def launch(grid, block, *arguments, **options):
            name = expression.split("<")[0]
            self.launches[name] += 1
            self.shapes[name] = grid, block
            kernel(grid, block, *arguments, **options)

        return launch

    def upload(self, array):
        self.uploaded.append(np.asarray(array).nbytes)
        return super().upload(array)

    def upload_rows(self, matrix, width):
        self.uploaded.append(matrix.nbytes)
        return super().upload_rows(matrix, width)

    def download(self, array, out=None):
        self.downloaded.append(array.nbytes)
        return super().download(array, out)
