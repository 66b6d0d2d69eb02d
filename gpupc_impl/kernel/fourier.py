"""RCIT and RCoT in batches: random Fourier features, ridge residuals and power sums for the null distribution.

For x, y and a set S (Strobl et al. 2019, algorithms 1 and 2; docs/kernel.md): with features f of x, g of y (of y and S
in RCIT) and h of S, all standardized over the samples, the residuals on S are f - C_fh (C_hh + ridge I)^-1 h, those of
g likewise. The statistic is n ||cov(f, residuals of g)||^2, and the weights of its null distribution are the
eigenvalues of the second moments of all products of a residual of f and one of g.

The code is the same for NumPy and CuPy (`Backend.array_library`). Arrays have the samples last. Features of a variable
are made once; those of a set, their covariance and the residuals of a variable serve all tests of a batch with that
set."""

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.core.mapped import pieces
from gpupc_impl.integers import ceil_div
from gpupc_impl.kernel.batches import for_each
from gpupc_impl.kernel.null import upper_tail
from gpupc_impl.kernel.problem import BESIDE_SECOND, IN_SET, OWN, RIDGE, SECOND, KernelProblem

POWERS = 8
"""Power sums that the null distributions need at most."""

CONSTANT = 1e-12
"""Standard deviation up to which a feature is constant."""

BATCH_BYTES = {"cuda": 1 << 32, "host": 1 << 26}
"""Upper bound on the memory of a batch by backend: large launches on a GPU, caches on cores."""


class FourierTest:
    """RCIT or RCoT tests of one problem on one backend."""

    def __init__(self, problem: KernelProblem, backend: Backend):
        self.problem, self._backend = problem, backend
        self._constant = problem.is_constant()
        p, n, f, d = problem.n_variables, problem.n_samples, problem.features, problem.n_set_features
        self._budget = min(BATCH_BYTES[backend.name], (backend.memory_limit - backend.memory_used) // 2)
        self._set_bytes, self._entry_bytes = 8 * n * (3 * d + 4 * f), 8 * n * 5 * f
        self._test_bytes = 8 * (n * (f * f + 3 * f) + 5 * f**4)
        needed = 8 * p * n * (f + 1) + self._set_bytes + 2 * self._entry_bytes + self._test_bytes
        if needed > backend.memory_limit - backend.memory_used:
            raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
        with backend.array_library() as xp:
            self._values = xp.asarray(problem.values)
            first, second = problem.width_pairs.T
            self._squares = xp.asarray((problem.values[:, first] - problem.values[:, second]) ** 2)
            counts = {OWN: f, IN_SET: d, SECOND: f, BESIDE_SECOND: f}
            self._frequencies = {
                role: tuple(map(xp.asarray, problem.frequencies(role, count))) for role, count in counts.items()
            }
            variables = xp.arange(p)[:, None]
            width = _median_distance(xp, self._squares)
            self._own = _features(xp, self._angles(OWN, variables), width, self._phases(OWN, variables))

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p-values and statistics of (t, 3) tests: the number of a set among (k, l), and two variables i < j.

        Tests are ordered by set.
        """
        statistics, sums = np.zeros(len(tests)), np.zeros((len(tests), POWERS))
        most = max(1, self._budget // (2 * self._test_bytes))
        with self._backend.array_library() as xp:

            def test_batch(part: slice) -> None:
                features, residuals, scale, first, second = self._residuals(xp, sets, tests[part])
                for some in pieces(len(first), most):
                    rows = slice(part.start + some.start, part.start + some.stop)
                    x, y = xp.asarray(first[some]), xp.asarray(second[some])
                    outcome = self._backend.download(_compare(xp, features[x], residuals[x], residuals[y], scale[x]))
                    statistics[rows], sums[rows] = outcome[:, 0], outcome[:, 1:]

            for_each(test_batch, self._batches(tests, sets.shape[1]), self._backend)
        constant = self._constant[tests[:, 1]] | self._constant[tests[:, 2]]
        statistics[constant], sums[constant] = 0, 0
        return upper_tail(self.problem.null, statistics, sums), statistics

    def _batches(self, tests: np.ndarray, level: int) -> list[slice]:
        """Consecutive tests whose sets and variables fit into the budget."""
        if not level:
            return list(pieces(len(tests), max(1, ceil_div(len(tests), 4 * self._backend.array_threads))))
        starts = np.flatnonzero(np.diff(tests[:, 0], prepend=-1))  # where the tests of a set begin
        most = max(1, self._budget // (4 * self._entry_bytes))  # tests of a set that go together
        starts = np.concatenate([np.arange(a, b, most) for a, b in zip(starts, [*starts[1:], len(tests)], strict=True)])
        batches: list[slice] = []
        begin, sets, widest = 0, 0, 0
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(tests)], strict=True):
            widest = max(widest, stop - start)
            sets += 1
            if sets > 1 and sets * (self._set_bytes + 2 * widest * self._entry_bytes) > self._budget:
                batches.append(slice(begin, start))
                begin, sets, widest = start, 1, stop - start
        return [*batches, slice(begin, len(tests))]

    def _residuals(self, xp: Any, sets: np.ndarray, tests: np.ndarray) -> tuple[Any, Any, Any, Any, Any]:
        """Features and residuals, (r, f, n) each, and (r,) scales of weights; (t,) rows of both variables there."""
        if not sets.shape[1]:
            return self._own, self._own, xp.ones(len(self._own)), tests[:, 1], tests[:, 2]
        p, n, f = self.problem.n_variables, self.problem.n_samples, self.problem.features
        numbers, batch_sets = np.unique(tests[:, 0], return_inverse=True)
        members = xp.asarray(sets[numbers])
        joined = self.problem.test == "rcit"  # whether the features of the second variable are also the set's
        keys = batch_sets.reshape(-1, 1) * 2 * p + tests[:, 1:] + np.array([0, p * joined])
        entries, places = np.unique(keys, return_inverse=True)  # ordered by set, then by role, then by variable
        owners, variables = entries // (2 * p), entries % p
        slots = np.arange(len(entries)) - np.searchsorted(owners, np.arange(len(numbers)))[owners]
        wide = int(slots.max()) + 1
        rows = owners * wide + slots
        held = xp.zeros((len(numbers) * wide, f, n))
        is_second = entries // p % 2 == 1
        held[xp.asarray(rows[~is_second])] = self._own[xp.asarray(variables[~is_second])]
        squares = sum(self._squares[k] for k in members.T)
        if joined:
            owner, variable = xp.asarray(owners[is_second]), xp.asarray(variables[is_second])
            held[xp.asarray(rows[is_second])] = self._joined_features(xp, members, squares, owner, variable)
        held = held.reshape(len(members), wide * f, n)
        width = _median_distance(xp, squares)
        of_sets = _features(xp, self._angles(IN_SET, members), width, self._phases(IN_SET, members))
        covariance = xp.matmul(of_sets, of_sets.swapaxes(1, 2)) / (n - 1)
        identity = xp.broadcast_to(xp.eye(covariance.shape[1]), covariance.shape)
        across = xp.matmul(of_sets, held.swapaxes(1, 2)) / (n - 1)
        solutions = xp.linalg.solve(covariance + RIDGE * identity, xp.concatenate([across, identity], axis=2))
        weights, inverse = solutions[:, :, : wide * f], solutions[:, :, wide * f :]
        scale = self.problem.weight_scale(len(identity[0]) - RIDGE * xp.trace(inverse, axis1=1, axis2=2))
        residuals = held - xp.matmul(weights.swapaxes(1, 2), of_sets)
        first, second = rows[places.reshape(keys.shape)].T
        return held.reshape(-1, f, n), residuals.reshape(-1, f, n), xp.repeat(scale, wide), first, second

    def _joined_features(self, xp: Any, members: Any, squares: Any, owners: Any, variables: Any) -> Any:
        """(e, f, n) features of each of e variables together with the members of its set."""
        angles = self._angles(BESIDE_SECOND, members)[owners] + self._angles(SECOND, variables[:, None])
        width = _median_distance(xp, squares[owners] + self._squares[variables])
        phases = self._phases(BESIDE_SECOND, members)[owners] + self._phases(SECOND, variables[:, None])
        return _features(xp, angles, width, phases)

    def _angles(self, role: int, members: Any) -> Any:
        """(b, c, n) sums over the (b, l) members of each set of a member's frequencies times its values."""
        frequencies = self._frequencies[role][0]
        return sum(frequencies[k][:, :, None] * self._values[k][:, None, :] for k in members.T)

    def _phases(self, role: int, members: Any) -> Any:
        """(b, c) sums of the phases of (b, l) members."""
        return sum(self._frequencies[role][1][k] for k in members.T)


def _features(xp: Any, angles: Any, width: Any, phases: Any) -> Any:
    """(b, c, n) random Fourier features cos(angles / width + phase), with mean 0 and sample variance 1.

    A constant feature is zero.
    """
    features = xp.cos(angles / width[:, None, None] + phases[:, :, None])
    features -= features.mean(axis=2, keepdims=True)
    deviation = xp.sqrt((features * features).sum(axis=2, keepdims=True) / (features.shape[2] - 1))
    features /= xp.where(deviation > CONSTANT, deviation, xp.inf)
    return features


def _median_distance(xp: Any, squares: Any) -> Any:
    """(b,) medians of the distances that are not zero, of (b, w) squared distances; 1 where all are zero."""
    ordered = xp.sort(squares, axis=1)
    zeros = (ordered <= 0).sum(axis=1)
    others = ordered.shape[1] - zeros
    last = ordered.shape[1] - 1
    low, high = (xp.minimum(zeros + half, last)[:, None] for half in ((others - 1) // 2, others // 2))
    medians = (xp.sqrt(xp.take_along_axis(ordered, low, 1)) + xp.sqrt(xp.take_along_axis(ordered, high, 1))) / 2
    return xp.where(others > 0, medians[:, 0], 1.0)


def _compare(xp: Any, features: Any, residuals: Any, others: Any, scale: Any) -> Any:
    """(t, 9) statistics, and the first eight power sums of the weights, of (t, f, n) arrays and (t,) scales."""
    t, f, n = features.shape
    covariance = xp.matmul(features, others.swapaxes(1, 2)) / (n - 1)
    statistics = n * (covariance * covariance).sum(axis=(1, 2))
    products = (residuals[:, :, None, :] * others[:, None, :, :]).reshape(t, f * f, n)
    one = xp.matmul(products, products.swapaxes(1, 2)) * (scale / n)[:, None, None]
    two = xp.matmul(one, one)
    three, four = xp.matmul(two, one), xp.matmul(two, two)
    traces = [
        (left * right).sum(axis=(1, 2))
        for left, right in ((one, one), (two, one), (two, two), (four, one), (four, two), (four, three), (four, four))
    ]
    return xp.stack([statistics, xp.trace(one, axis1=1, axis2=2), *traces], axis=1)
