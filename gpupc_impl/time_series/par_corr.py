"""Partial correlation (ParCorr; Runge et al. 2019, Supplementary Materials, section S2), of a matrix or of samples.

If nothing is masked or missing, all tests are on the same samples. Their partial correlations then follow from one
matrix of the correlations of all lagged columns, and a kernel makes the tests of a batch. A test in which a variance
given the conditions is small, so that the matrix would cost digits, is made from its samples, by least squares.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.special

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.gaussian.matrix import correlation_matrix
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.time_series.batches import Batch, LaggedTest, Outcomes, Parents, SingleTests
from gpupc_impl.time_series.series import Series

VARIANCE_TOLERANCE = 1e-3
"""The share of a variance left by the conditions up to which a test is made from its samples. A partial correlation
from the matrix has an error of about the rounding unit divided by this share, and a p-value of T samples one that is
sqrt(T) times as large, which stays below 1e-10."""

DETERMINED = 1e-10
"""The standard deviation given the conditions, as a share of that of the variable, up to which it is rounding error."""

MOST = ("most_of_target", "most_of_source", "most_of_lagged_source")

TESTS = Struct(
    "LaggedTests",
    correlations=Pointer(np.float64),
    constant=Pointer(np.uint8),
    **dict.fromkeys(("sources", "lags", "targets", "sets"), Pointer(np.int32)),
    parent_starts=Pointer(np.int64),
    parents=Pointer(np.int32),
    values=Pointer(np.float64),
    sizes=Pointer(np.int32),
    scratch=Pointer(np.float64),
    tolerance=np.float64,
    **dict.fromkeys(("count", "columns", "area"), np.int64),
    **dict.fromkeys(("variables", "set_size"), np.int32),
    **dict.fromkeys(MOST, np.int32),
    capacity=np.int32,
)

LANES, PANEL = 32, 8
"""The threads of a warp of a GPU, and the columns that a warp computes at a time."""

KERNEL = KernelSource(
    "time_series/kernels/partial_correlations.cu", "partial_correlations", (TESTS,), {"LANES": LANES, "PANEL": PANEL}
)


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel of this room; none depends on a level."""
    return [KERNEL]


CAPACITY_STEP = 16
"""Tests whose numbers of rows differ by less are one launch."""

WARPS = {1: 1, LANES: 4}
"""The upper bound on the warps of a block, by the threads of a warp."""

HOST_TESTS = 64
"""The tests for which a further thread of the host is woken."""


class ParCorr(LaggedTest):
    """The tests of a batch from one matrix; for `Series.is_whole`.

    Attributes:
        from_samples: the number of tests that were made from their samples.
    """

    is_speculative = True

    def __init__(self, series: Series, backend: Backend):
        self.series, self.backend = series, backend
        self._single = ParCorrOfSamples(series)
        self.n_samples = len(series.columns)
        self.correlation, self.constant = correlation_matrix(series.columns)
        self._device = backend.upload(self.correlation), backend.upload(self.constant.astype(np.uint8))
        self.from_samples = 0

    def facts(self) -> dict[str, object]:
        return {"tests_from_samples": self.from_samples}

    def run(self, batch: Batch, parents: Parents | None = None) -> Outcomes:
        values, sizes = self._launch(batch, parents or Parents.from_lists([[]] * self.series.n_variables))
        freedom = self.n_samples - 2 - np.maximum(sizes, 0)
        p_values = student_p_values(values, np.maximum(freedom, 1))
        p_values[sizes < 0] = 1.0
        # A test on too few samples is made in this way, too, since it raises the error.
        for t in np.flatnonzero(np.isnan(values) | (freedom < 1)).tolist():
            values[t], p_values[t] = self._single.test(*next(batch[t : t + 1].tests(self.series.n_variables, parents)))
            self.from_samples += 1
        return Outcomes(values, p_values)

    def _launch(self, batch: Batch, parents: Parents) -> tuple[np.ndarray, np.ndarray]:
        """Return the partial correlations and the numbers of conditions, as the kernel writes them."""
        values, sizes = np.empty(len(batch)), np.empty(len(batch), np.int32)
        # Upper bounds, since a column may be listed twice. A launch reserves memory for the most.
        capacities = round_up(2 + batch.sets.shape[1] + parents.counts(batch), CAPACITY_STEP)
        for capacity in np.flatnonzero(np.bincount(capacities)).tolist():
            chosen = np.flatnonzero(capacities == capacity)
            part = batch if len(chosen) == len(batch) else batch[chosen]
            values[chosen], sizes[chosen] = self._launch_alike(part, parents, capacity)
        return values, sizes

    def _launch_alike(self, batch: Batch, parents: Parents, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Launch tests with up to so many rows."""
        backend, threads, tests = self.backend, self.backend.warp_threads, len(batch)
        area = capacity * (capacity + PANEL) // 2 + capacity + capacity // 2  # doubles
        fitting = backend.max_shared_bytes // (8 * area)  # the warps whose work areas fit in shared memory
        warps = min(WARPS[threads], fitting or WARPS[threads])
        blocks = min(ceil_div(tests, HOST_TESTS if threads == 1 else warps), backend.blocks_at_once)
        if not fitting:
            blocks = min(blocks, backend.multiprocessors or blocks)  # so that the work areas stay in a GPU's cache
        values, sizes = backend.empty(tests, np.float64), backend.empty(tests, np.int32)
        given = {name: getattr(batch, name) for name in ("sources", "lags", "targets", "sets")}
        given |= {"parent_starts": parents.starts, "parents": parents.columns}
        arguments = TESTS(
            correlations=self._device[0],
            constant=self._device[1],
            **{name: backend.upload(array) if array.size else None for name, array in given.items()},
            values=values,
            sizes=sizes,
            scratch=None if fitting else backend.empty(blocks * warps * area, np.float64),
            tolerance=VARIANCE_TOLERANCE,
            count=tests,
            columns=self.series.n_columns,
            area=area,
            variables=self.series.n_variables,
            set_size=batch.sets.shape[1],
            **{name: getattr(parents, name) for name in MOST},
            capacity=capacity,
        )
        shared = 8 * area * warps if fitting else 0
        backend.kernel(*KERNEL)((blocks,), (warps * threads,), [arguments], shared_bytes=shared)
        return backend.download(values), backend.download(sizes)


class ParCorrOfSamples(SingleTests):
    """The test from the samples of each test, by least squares, as tigramite makes it."""

    def of_samples(self, array: np.ndarray, described: functools.partial[str]) -> tuple[float, float]:
        dim, samples = array.shape
        if samples - dim < 1:
            raise InvalidProblem(
                f"{described()} has {samples} samples and needs at least {dim + 1}; limit its conditions by "
                "max_conds_dim, max_conds_py and max_conds_px, or lower tau_max or the significance level"
            )
        residuals = residuals_of(array)
        residuals -= residuals.mean(axis=1, keepdims=True)
        lengths = np.sqrt((residuals**2).sum(axis=1))
        if lengths.min() <= DETERMINED * np.sqrt(samples):
            raise InvalidProblem(
                f"{described()} cannot be made, since the conditions determine one of the two, such as a trend or a "
                "copy; leave it out, or take differences"
            )
        value = float(np.clip(residuals[0] / lengths[0] @ (residuals[1] / lengths[1]), -1.0, 1.0))
        return value, float(student_p_values(np.array([value]), np.array([samples - dim]))[0])


def residuals_of(array: np.ndarray, rows: slice = slice(2)) -> np.ndarray:
    """Return the residuals of some of the first two rows on the rows from the third on, all standardised first."""
    array = array - array.mean(axis=1, keepdims=True)
    array /= array.std(axis=1, keepdims=True)
    targets, conditions = array[rows], array[2:].T
    if not conditions.size:
        return targets
    solution = np.linalg.lstsq(conditions, targets.T, rcond=None)[0]
    return targets - (conditions @ solution).T


def akaike(series: Series, j: int, parents: list[int]) -> float:
    """Return Akaike's criterion of the linear model of variable j by lagged or contemporaneous columns.

    It is n log(residual sum of squares of the standardised variable) + 2 (1 + parents), as tigramite's ParCorr scores
    the choice of pc_alpha.
    """
    array = series.sample(j, j, sorted(parents))  # so that the same parents in another order have the same bits
    if array[1].min() == array[1].max():
        return -np.inf
    with np.errstate(divide="ignore"):
        fit = np.log((residuals_of(array, slice(1, 2)) ** 2).sum())
    return float(array.shape[1] * fit + 2.0 * (len(array) - 1))


def student_p_values(values: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return two-sided p-values of (k,) partial correlations with (k,) degrees of freedom, by Student's t; NaN for
    NaN."""
    with np.errstate(divide="ignore"):
        statistic = np.abs(values) * np.sqrt(freedom / (1.0 - values * values))
    return np.asarray(2.0 * scipy.special.stdtr(freedom, -statistic))
