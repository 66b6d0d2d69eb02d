"""KCI in batches: kernel matrices, their residuals on a set, and sums over all pairs of samples as matrix products. The
test is that of Zhang et al. (2011), sections 3.2 and 3.3, with causal-learn's kernel widths (docs/kernel.md). Without a
set the statistic of x and y is tr(K_x K_y) of the centered kernel matrices. With a set S the statistic is tr(R K_xS R R
K_y R), where K_xS is the kernel matrix of x together with half of S, and R = e (K_S + e I)^-1 maps values to their
residuals in the ridge regression on S. The weights of the null distribution are the eigenvalues of the elementwise
product of both matrices, and the gamma approximation needs only the sum of the weights and the sum of their squares.
Statistics, sums and sums of squares of all pairs with one S are therefore three products of matrices, each row of which
is a whole kernel matrix. For many samples a kernel matrix K is replaced by F F^T, where F has n rows and a column for
each landmark (Nystrom approximation). The code is the same for NumPy and CuPy (`Backend.array_library`)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy  # SciPy loads its modules at their first use

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.p_value_search import for_each
from gpupc_impl.kernel.null import upper_tail
from gpupc_impl.kernel.problem import EIGENVALUE_CUTOFF, KCI_RIDGE, NYSTROM_JITTER, KernelProblem

BATCH_BYTES = {"cuda": 1 << 33, "host": 1 << 28}
NEGLIGIBLE = 1e-14  # of a kernel matrix's diagonal, which is one
ROWS_BYTES = 1 << 27  # upper bound on the memory of rows of a kernel matrix that is never held whole


class KciTest:
    """KCI tests of one problem on one backend; without a set, `members` are empty."""

    def __init__(self, problem: KernelProblem, backend: Backend):
        self.problem, self._backend = problem, backend
        self._constant = problem.is_constant()
        n = problem.n_samples
        width = n if problem.is_exact else problem.landmarks
        self._draws: dict[bool, np.ndarray] = {}
        free = backend.memory_limit - backend.memory_used
        unit = 3 * 8 * n * width * backend.array_threads  # a variable's matrix and two intermediate ones
        self._most = min(BATCH_BYTES[backend.name], free) // unit
        if self._most < 4:
            if 4 * unit > free:
                raise DeviceMemoryError(4 * unit, backend.memory_used, backend.memory_limit)
            self._most = 4
        with backend.array_library() as xp:
            self._values = xp.asarray(problem.values)

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level, spectral = sets.shape[1], self.problem.null == "spectral"
        statistics, sums, p_values = np.zeros(len(tests)), np.zeros((len(tests), 2)), np.ones(len(tests))
        constant = self._constant[tests[:, 1]] | self._constant[tests[:, 2]]
        with self._backend.array_library() as xp:

            def test_set(number: int) -> None:
                members = sets[number]
                project = self._projection(xp, members) if level else None
                for part in self._fitting(np.flatnonzero((tests[:, 0] == number) & ~constant), tests):
                    (first, x), (second, y) = (np.unique(tests[part, k], return_inverse=True) for k in (1, 2))
                    left = xp.stack([self._residuals(xp, project, level, v, members) for v in first])
                    right = xp.stack([self._residuals(xp, project, level, v) for v in second])
                    outcome = self._backend.download(self._sums(xp, left, right, bool(level)))[:, x, y]
                    statistics[part], sums[part] = outcome[0], outcome[1:].T
                    if spectral:
                        pairs = zip(x, y, outcome[0], strict=True)
                        weights = self._weights(xp, left, right, level)
                        p_values[part] = [self._simulated(weights(a, b), q, bool(level)) for a, b, q in pairs]

            for_each(test_set, np.unique(tests[~constant, 0]).tolist(), self._backend)
        return (p_values if spectral else upper_tail("gamma", statistics, sums)), statistics

    def _fitting(self, rows: np.ndarray, tests: np.ndarray) -> Iterator[np.ndarray]:
        """Parts of the rows whose variables' matrices fit into the budget together."""
        if len(rows) > 1 and sum(len(np.unique(tests[rows, k])) for k in (1, 2)) > self._most:
            yield from self._fitting(rows[: len(rows) // 2], tests)
            yield from self._fitting(rows[len(rows) // 2 :], tests)
        else:
            yield rows

    def _kernel(self, xp: Any, level: int, variable: int | None = None, members: Sequence[int] = ()) -> Any:
        """The centered kernel matrix, (n, n), of a variable with half of the members, or of the members alone; or its
        Nystrom factor: (n, m) F with F F^T in place of the matrix."""
        problem = self.problem
        factors = [(int(k), 1.0 if variable is None else 0.25) for k in members]
        factors += [] if variable is None else [(int(variable), 1.0)]
        marks = slice(None) if problem.is_exact else xp.asarray(problem.landmark_samples)
        matrix: Any = 0.0
        for k, share in factors:
            squares = self._values[k][:, None] - self._values[k][marks][None, :]
            squares *= squares
            squares *= -0.5 * share / problem.width(level) ** 2
            matrix = xp.add(squares, matrix, out=squares)
        xp.exp(matrix, out=matrix)
        if problem.is_exact:
            means = matrix.mean(axis=0)
            matrix -= means
            matrix -= (means - means.mean())[:, None]
            return matrix
        among = matrix[marks] + NYSTROM_JITTER * xp.eye(matrix.shape[1])
        factor = xp.linalg.solve(xp.linalg.cholesky(among), matrix.T).T
        return factor - factor.mean(axis=0)

    def _thin_factor(self, level: int, variable: int) -> np.ndarray:
        """(n, r) F with F F^T the centered kernel matrix of one variable, up to rounding errors. It is a Cholesky
        factor with pivots, whose r is a few dozen: of standardized values only few can lie far out."""
        n, values, scale = self.problem.n_samples, self._values[variable], -0.5 / self.problem.width(level) ** 2
        missing, rows, rank = np.ones(n), np.empty((n, n)), 0  # `missing` is the diagonal less that of F F^T
        while rank < n and missing[pivot := int(missing.argmax())] > NEGLIGIBLE:
            row = np.exp(scale * (values - values[pivot]) ** 2) - rows[:rank, pivot] @ rows[:rank]
            rows[rank] = row / missing[pivot] ** 0.5
            missing -= rows[rank] ** 2
            rank += 1
        return (rows[:rank] - rows[:rank].mean(axis=1, keepdims=True)).T

    def _projection(self, xp: Any, members: np.ndarray) -> Callable[[Any], Any]:
        """The function that maps columns, (n, c), to their residuals on the members: R times the columns."""
        is_thin = xp is np and self.problem.is_exact and len(members) == 1
        kernel = self._thin_factor(1, members[0]) if is_thin else self._kernel(xp, len(members), None, members)
        if self.problem.is_exact and not is_thin:
            operator = KCI_RIDGE * _inverse(xp, kernel + KCI_RIDGE * xp.eye(len(kernel)))
            return lambda columns: xp.matmul(operator, columns)
        inner = xp.matmul(kernel.T, kernel) + KCI_RIDGE * xp.eye(kernel.shape[1])
        return lambda columns: columns - xp.matmul(kernel, xp.linalg.solve(inner, xp.matmul(kernel.T, columns)))

    def _residuals(
        self, xp: Any, project: Callable[[Any], Any] | None, level: int, variable: int, members: Sequence[int] = ()
    ) -> Any:
        """R K R of the kernel matrix K of a variable with half of the members, or the factor R F; without a set K or F.
        On cores the product of a thin factor takes a fraction of the time of products with a whole matrix."""
        if project is None or not self.problem.is_exact:
            kernel = self._kernel(xp, level, variable, members)
            return kernel if project is None else project(kernel)
        if xp is np and not len(members):
            factor = project(self._thin_factor(level, variable))
            return factor @ factor.T
        return project(project(self._kernel(xp, level, variable, members)).T)

    def _sums(self, xp: Any, left: Any, right: Any, conditional: bool) -> Any:
        """(3, a, b): statistics, sums of weights and of squares of all pairs of a left and b right matrices."""
        n, squares, statistics = self.problem.n_samples, 0.0, 0.0
        energies = [0.0, 0.0]
        diagonals = [[], []]
        most = max(1, ROWS_BYTES // (8 * n * (len(left) + len(right))))
        for part in pieces(n, most):
            blocks = []
            for side, matrices in enumerate((left, right)):
                rows = matrices[:, part]
                if not self.problem.is_exact:
                    rows = xp.matmul(rows, matrices.swapaxes(1, 2))
                at = xp.arange(part.start, part.stop)
                diagonals[side].append(rows[:, at - part.start, at])
                blocks.append(rows.reshape(len(matrices), -1))
                if not conditional:
                    energies[side] = energies[side] + (blocks[side] ** 2).sum(axis=1)
            statistics = statistics + xp.matmul(blocks[0], blocks[1].T)
            if conditional:
                squares = squares + xp.matmul(blocks[0] ** 2, (blocks[1] ** 2).T)
        of_left, of_right = (xp.concatenate(diagonal, axis=1) for diagonal in diagonals)
        if conditional:
            return xp.stack([statistics, xp.matmul(of_left, of_right.T), squares])
        traces = of_left.sum(axis=1)[:, None] * of_right.sum(axis=1) / n
        return xp.stack([statistics, traces, energies[0][:, None] * energies[1] / n**2])

    def _weights(self, xp: Any, left: Any, right: Any, level: int) -> Callable[[int, int], np.ndarray]:
        """A function of the numbers of a left and a right matrix: the weights of their null, descending."""
        download = self._backend.download
        if level:
            return lambda a, b: download(xp.linalg.eigvalsh(left[a] * right[b]))[::-1]
        of_left, of_right = (
            [download(xp.linalg.eigvalsh(matrix)) for matrix in matrices] for matrices in (left, right)
        )
        return lambda a, b: np.sort(np.outer(of_left[a], of_right[b]), axis=None)[::-1] / self.problem.n_samples

    def _simulated(self, weights: np.ndarray, statistic: float, conditional: bool) -> float:
        """The share of draws from the null distribution that exceed the statistic."""
        if conditional not in self._draws:
            self._draws[conditional] = self.problem.null_draws(conditional)
        draws = self._draws[conditional]
        kept = weights[: len(draws)]
        kept = kept[kept > EIGENVALUE_CUTOFF[conditional] * weights[0]]
        return float(np.mean(kept @ draws[: len(kept)] > statistic))


def _inverse(xp: Any, matrix: Any) -> Any:
    """The inverse of a positive definite matrix, on cores by Cholesky's factorisation in a fraction of the time."""
    if xp is not np:
        return xp.linalg.inv(matrix)
    upper, _ = scipy.linalg.lapack.dpotri(scipy.linalg.lapack.dpotrf(matrix)[0])
    return upper + np.triu(upper, 1).T
