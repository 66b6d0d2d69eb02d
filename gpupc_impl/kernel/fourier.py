"""RCIT and RCoT in batches: random Fourier features, ridge residuals and power sums for the null distribution. The test
of x and y given a set S (Strobl et al. 2019, algorithms 1 and 2; docs/kernel.md) has features f of x, g of y (of y and
S in RCIT) and h of S, all standardized over the samples. The residuals of f on S are f - C_fh (C_hh + ridge I)^-1 h,
and the residuals of g are made by the same formula. The statistic is n ||cov(f, residuals of g)||^2, and the weights of
its null distribution are the eigenvalues of the second moments of all products of a residual of f and a residual of g.

Each second moment is the mean of a product of two residuals of x and two residuals of y. A test therefore needs one
matrix product of a table of x and a table of y, whose rows are the features, the f (f + 1) / 2 products of two
residuals, and the residuals. The code is the same for NumPy and CuPy (`Backend.array_library`), and the last axis of an
array is the samples. The features of a variable are made once. The features of a set, their covariance and the tables
of variables serve all tests of a batch with that set."""

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.p_value_search import for_each
from gpupc_impl.integers import ceil_div
from gpupc_impl.kernel.null import upper_tail
from gpupc_impl.kernel.problem import BESIDE_SECOND, IN_SET, OWN, RIDGE, SECOND, KernelProblem

POWERS = 8  # upper bound on the power sums that a null distribution needs
CONSTANT = 1e-12  # upper bound on the standard deviation of a feature that counts as constant
SETS_BYTES = {"cuda": 1 << 32, "host": 1 << 22}  # of a batch of several sets; that of a core fits its cache
SET_BYTES = {"cuda": 1 << 32, "host": 1 << 28}  # of one set; beyond, its features are made again
CELLS = {"cuda": 1 << 62, "host": 1 << 16}  # entries of features that are computed at a time


class FourierTest:
    def __init__(self, problem: KernelProblem, backend: Backend):
        self.problem, self._backend = problem, backend
        self._constant = problem.is_constant()
        p, n, f, d = problem.n_variables, problem.n_samples, problem.features, problem.n_set_features
        free = backend.memory_limit - backend.memory_used
        products = f * (f + 1) // 2
        self._set_bytes, self._entry_bytes = 8 * n * 3 * d, 8 * n * (4 * f + products)
        self._test_bytes = 8 * (2 * n * (f + products) + 6 * f**4)
        distances = 8 * p * len(problem.width_pairs)  # these stay, and sorting them takes as much twice
        needed = 8 * p * n * (f + 1) + 3 * distances + self._set_bytes + 2 * self._entry_bytes + self._test_bytes
        if needed > free:
            raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
        self._sets_budget, self._set_budget = (min(bound[backend.name], free // 2) for bound in (SETS_BYTES, SET_BYTES))
        self._rows = np.stack(np.triu_indices(f))  # the two residuals of each product
        row_of = np.zeros((f, f), np.int64)
        row_of[*self._rows] = row_of[*self._rows[::-1]] = np.arange(products)
        with backend.array_library() as xp:
            self._values, self._row_of = xp.asarray(problem.values), xp.asarray(row_of)
            first, second = problem.width_pairs.T
            self._squares = xp.asarray((problem.values[:, first] - problem.values[:, second]) ** 2)
            counts = {OWN: f, IN_SET: d} | ({SECOND: f, BESIDE_SECOND: f} if problem.test == "rcit" else {})
            self._frequencies = {
                role: tuple(map(xp.asarray, problem.frequencies(role, count))) for role, count in counts.items()
            }
            frequencies, phases = self._frequencies[OWN]
            self._own = self._features(xp, xp.arange(p)[:, None], self._squares, frequencies[:, None], phases)

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        statistics, sums = np.zeros(len(tests)), np.zeros((len(tests), POWERS))
        most = max(1, self._set_budget // (2 * self._test_bytes))
        with self._backend.array_library() as xp:

            def test_batch(part: slice) -> None:
                tables, scale, first, second = self._tables(xp, sets, tests[part])
                for some in pieces(len(first), most):
                    rows = slice(part.start + some.start, part.start + some.stop)
                    outcome = self._compare(xp, tables, scale, first[some], second[some])
                    statistics[rows], sums[rows] = outcome[:, 0], outcome[:, 1:]

            for_each(test_batch, self._batches(tests, sets.shape[1]), self._backend)
        constant = self._constant[tests[:, 1]] | self._constant[tests[:, 2]]
        statistics[constant], sums[constant] = 0, 0
        return upper_tail(self.problem.null, statistics, sums), statistics

    def _batches(self, tests: np.ndarray, level: int) -> list[slice]:
        """Consecutive tests whose sets and variables fit into the budgets."""
        most = max(1, self._set_budget // (2 * self._entry_bytes))  # tests of a set in a batch
        if not level:
            return list(pieces(len(tests), max(1, min(most, ceil_div(len(tests), 4 * self._backend.array_threads)))))
        starts = np.flatnonzero(np.diff(tests[:, 0], prepend=-1))  # where the tests of a set begin
        starts = np.concatenate([np.arange(a, b, most) for a, b in zip(starts, [*starts[1:], len(tests)], strict=True)])
        batches: list[slice] = []
        begin, sets, widest = 0, 0, 0
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(tests)], strict=True):
            widest = max(widest, stop - start)
            sets += 1
            if sets > 1 and sets * (self._set_bytes + 2 * widest * self._entry_bytes) > self._sets_budget:
                batches.append(slice(begin, start))
                begin, sets, widest = start, 1, stop - start
        return [*batches, slice(begin, len(tests))]

    def _tables(self, xp: Any, sets: np.ndarray, tests: np.ndarray) -> tuple[Any, Any, np.ndarray, np.ndarray]:
        """(r, c, n) tables, (r,) scales of the weights, and for either variable the (t,) numbers of its tables. A
        table's rows are a variable's features, products of two of its residuals, and the residuals."""
        p, n, f, level = self.problem.n_variables, self.problem.n_samples, self.problem.features, sets.shape[1]
        numbers, batch_sets = np.unique(tests[:, 0], return_inverse=True)
        members = xp.asarray(sets[numbers])
        joined = self.problem.test == "rcit" and level > 0  # whether the second variable has features with the set
        keys = batch_sets.reshape(-1, 1) * 2 * p + tests[:, 1:] + np.array([0, p * joined])
        entries, places = np.unique(keys, return_inverse=True)  # ordered by set, then by role, then by variable
        owners, variables = entries // (2 * p), entries % p
        slots = np.arange(len(entries)) - np.searchsorted(owners, np.arange(len(numbers)))[owners]
        wide = int(slots.max()) + 1
        rows = owners * wide + slots
        tables = xp.zeros((len(numbers) * wide, 2 * f + len(self._rows[0]), n))
        is_second = entries // p % 2 == 1
        tables[xp.asarray(rows[~is_second]), :f] = self._own[xp.asarray(variables[~is_second])]
        if joined:
            owner, variable = xp.asarray(owners[is_second]), xp.asarray(variables[is_second])
            tables[xp.asarray(rows[is_second]), :f] = self._joined_features(xp, members[owner], variable)
        residuals, scale = tables[:, :f], xp.ones(len(numbers))
        if level:
            residuals, scale = self._residuals(xp, members, residuals.reshape(len(numbers), wide * f, n))
            residuals = residuals.reshape(-1, f, n)
        tables[:, -f:] = residuals
        for k, (a, b) in enumerate(self._rows.T.tolist()):
            xp.multiply(residuals[:, a], residuals[:, b], out=tables[:, f + k])
        first, second = rows[places.reshape(keys.shape)].T
        return tables, xp.repeat(scale, wide), first, second

    def _residuals(self, xp: Any, members: Any, held: Any) -> tuple[Any, Any]:
        """Residuals of (b, c, n) features on the features of (b, l) sets, and (b,) scales of the weights."""
        n, squares = self.problem.n_samples, sum(self._squares[k] for k in members.T)
        frequencies, phases = self._frequencies[IN_SET]
        of_sets = self._features(xp, members, squares, frequencies[members], phases[members].sum(axis=1))
        covariance = xp.matmul(of_sets, of_sets.swapaxes(1, 2)) / (n - 1)
        identity = xp.broadcast_to(xp.eye(covariance.shape[1]), covariance.shape)
        across = xp.matmul(of_sets, held.swapaxes(1, 2)) / (n - 1)
        solutions = xp.linalg.solve(covariance + RIDGE * identity, xp.concatenate([across, identity], axis=2))
        weights, inverse = solutions[:, :, : held.shape[1]], solutions[:, :, held.shape[1] :]
        scale = self.problem.weight_scale(len(identity[0]) - RIDGE * xp.trace(inverse, axis1=1, axis2=2))
        fitted = xp.matmul(weights.swapaxes(1, 2), of_sets)
        return xp.subtract(held, fitted, out=fitted), scale

    def _joined_features(self, xp: Any, members: Any, variables: Any) -> Any:
        """(e, f, n) features of each of e variables together with its (e, l) members."""
        beside, second = self._frequencies[BESIDE_SECOND], self._frequencies[SECOND]
        squares = sum(self._squares[k] for k in members.T) + self._squares[variables]
        frequencies = xp.concatenate([beside[0][members], second[0][variables][:, None]], axis=1)
        phases = beside[1][members].sum(axis=1) + second[1][variables]
        return self._features(xp, xp.concatenate([members, variables[:, None]], axis=1), squares, frequencies, phases)

    def _features(self, xp: Any, members: Any, squares: Any, frequencies: Any, phases: Any) -> Any:
        """(b, c, n) features of (b, l) variables, with mean 0 and sample variance 1; a constant feature is zero.
        `squares`, (b, w), are squared distances of the pairs of samples that decide the kernel width; frequencies are
        (b, l, c), phases (b, c)."""
        n = self.problem.n_samples
        medians = _median_distance(xp, self._sorted(xp, squares))
        frequencies = (frequencies / medians[:, None, None]).swapaxes(1, 2)
        values = self._values[members]
        features = xp.empty((*phases.shape, n))
        for part in pieces(phases.shape[1], max(1, CELLS[self._backend.name] // (n * len(phases)))):
            some = xp.matmul(frequencies[:, part], values)
            some += phases[:, part, None]
            xp.cos(some, out=some)
            some -= some.mean(axis=2, keepdims=True)
            deviation = xp.sqrt((some * some).sum(axis=2, keepdims=True) / (n - 1))
            xp.divide(some, xp.where(deviation > CONSTANT, deviation, xp.inf), out=features[:, part])
        return features

    def _sorted(self, xp: Any, squares: Any) -> Any:
        try:
            return xp.sort(squares, axis=1)
        except MemoryError as error:
            if type(error) is not MemoryError:
                raise
            # Thrust, which sorts for CuPy, turns every exception of the allocator that it calls into a MemoryError.
            raise DeviceMemoryError(squares.nbytes, self._backend.memory_used, self._backend.memory_limit) from error

    def _compare(self, xp: Any, tables: Any, scale: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """(t, 9): the statistic and first eight power sums of the weights of tests, by (t,) numbers of two tables."""
        n, f, t = self.problem.n_samples, self.problem.features, len(first)
        if xp is np:  # as views, since a copy of both tables would take longer than their product
            moments = np.empty((t, tables.shape[1] - f, tables.shape[1] - f))
            for k, (x, y) in enumerate(zip(first, second, strict=True)):
                np.matmul(tables[x, :-f], tables[y, f:].T, out=moments[k])
            scale = scale[first]
        else:
            x, y = xp.asarray(first), xp.asarray(second)
            moments, scale = xp.matmul(tables[x, :-f], tables[y, f:].swapaxes(1, 2)), scale[x]
        covariance = moments[:, :f, -f:] / (n - 1)
        statistics = n * (covariance * covariance).sum(axis=(1, 2))
        left, right = self._row_of[:, None, :, None], self._row_of[None, :, None, :]
        one = moments[:, f:, :-f][:, left, right].reshape(t, f * f, f * f) * (scale / n)[:, None, None]
        two = xp.matmul(one, one)
        three, four = xp.matmul(two, one), xp.matmul(two, two)
        traces = [
            (left * right).sum(axis=(1, 2))
            for left, right in (
                (one, one),
                (two, one),
                (two, two),
                (four, one),
                (four, two),
                (four, three),
                (four, four),
            )
        ]
        return self._backend.download(xp.stack([statistics, xp.trace(one, axis1=1, axis2=2), *traces], axis=1))


def _median_distance(xp: Any, ordered: Any) -> Any:
    """(b,) medians of the distances that are not zero, of (b, w) ascending squared distances; 1 where all are zero."""
    zeros = (ordered <= 0).sum(axis=1)
    others = ordered.shape[1] - zeros
    last = ordered.shape[1] - 1
    low, high = (xp.minimum(zeros + half, last)[:, None] for half in ((others - 1) // 2, others // 2))
    medians = (xp.sqrt(xp.take_along_axis(ordered, low, 1)) + xp.sqrt(xp.take_along_axis(ordered, high, 1))) / 2
    return xp.where(others > 0, medians[:, 0], 1.0)
