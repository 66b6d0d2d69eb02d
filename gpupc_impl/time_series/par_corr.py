"""Partial correlation (ParCorr; Runge et al. 2019, Supplementary Materials, section S2), of a matrix or of samples. If
nothing is masked or missing, all tests are on the same samples. Their partial correlations then follow from one matrix
of the correlations of all lagged columns, and a kernel makes the tests of a batch. A test in which a variance given the
conditions is small, so that the matrix would cost digits, is made from its samples, by least squares."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.special

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.gaussian.matrix import correlation_matrix
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.time_series.batches import Batch, LaggedTest, Outcomes, Parents
from gpupc_impl.time_series.series import Series

VARIANCE_TOLERANCE = 1e-3
"""The share of a variance left by the conditions up to which a test is made from its samples. The error of a partial
correlation from the matrix is about the rounding unit divided by this share, and that of a p-value of T samples sqrt(T)
times as large, which stays below 1e-10."""

CRITICAL_MARGIN = 1e-6
"""The share by which a correlation must differ from the critical one to be decided without its p-value."""

BYTES_A_BLOCK = 1 << 20
"""Upper bound on the rows of the factors of all targets in a launch, in bytes for each block that runs at once; so they
stay in the cache of a core of the host."""

DETERMINED = 1e-10  # the share of a standard deviation that conditions leave, up to which it is rounding error
LEAST_SHARED = 0.25  # the tests for each column of a target from which they share its parents
TESTS_A_THREAD = 1 << 15  # the p-values that a thread computes at a time
HOST_TASKS = 16  # the tasks of warps for which a further thread of the host is woken
WARPS = 2  # of a block on a GPU, so that all blocks of a launch are resident; on the host a block is one warp
LANES, ROWS, PANEL = 32, 4, 8  # the threads of a warp of a GPU, the rows that each computes at a time, and the columns

POINTERS = {
    "constant": np.uint8,
    **dict.fromkeys(("starts", "parent_starts"), np.int64),
    **dict.fromkeys(("sources", "targets", "sets", "parents", "leading", "leading_sizes", "sizes"), np.int32),
    **dict.fromkeys(("correlations", "factors", "rows", "values", "scratch"), np.float64),
}
MOST = ("most_of_target", "most_of_source", "most_of_lagged_source")
TESTS = Struct(
    "LaggedTests",
    **{name: Pointer(kind) for name, kind in POINTERS.items()},
    tolerance=np.float64,
    **dict.fromkeys(("columns", "area"), np.int64),
    **dict.fromkeys(("groups", "variables", "set_size", *MOST, "others"), np.int32),
    **dict.fromkeys(("leading_capacity", "row_capacity", "capacity"), np.int32),
)

KERNELS = [
    KernelSource("time_series/kernels/partial_correlations.cu", name, (TESTS,), {"LANES": LANES, "PANEL": PANEL})
    for name in ("leading_factors", "leading_rows", "partial_correlations")
]


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel of this room; none depends on a level."""
    return KERNELS


class ParCorrOfSamples(LaggedTest):
    """The test from the samples of each test, by least squares, as tigramite makes it."""

    def of_samples(self, array: np.ndarray) -> tuple[float, float]:
        dim, samples = array.shape
        if samples - dim < 1:
            raise InvalidProblem(
                f"it has {samples} samples and needs at least {dim + 1}; limit its conditions by max_conds_dim, "
                "max_conds_py and max_conds_px, or lower tau_max or the significance level"
            )
        residuals = residuals_of(array)
        residuals -= residuals.mean(axis=1, keepdims=True)
        lengths = np.sqrt((residuals**2).sum(axis=1))
        if lengths.min() <= DETERMINED * np.sqrt(samples):
            raise InvalidProblem(
                "the conditions determine one of the two, such as a trend or a copy; leave it out, or take differences"
            )
        value = float(np.clip(residuals[0] / lengths[0] @ (residuals[1] / lengths[1]), -1.0, 1.0))
        return value, float(student_p_values(np.array([value]), np.array([samples - dim]))[0])


class ParCorr(ParCorrOfSamples):
    """The tests of a batch from one matrix, for `Series.is_whole`; `facts` counts those made from samples."""

    is_speculative = True

    def __init__(self, series: Series, backend: Backend):
        super().__init__(series)
        self.backend, self.n_samples = backend, len(series.columns)
        correlation, constant = correlation_matrix(series.columns)
        self._device = self._uploaded(constant=constant.astype(np.uint8))
        self._device["correlations"] = backend.upload_symmetric(correlation)
        self.facts["tests_from_samples"] = 0

    def _uploaded(self, **arrays: np.ndarray) -> dict[str, Any]:
        """Return arrays on the device; None for an empty one."""
        return {name: self.backend.upload(array) if array.size else None for name, array in arrays.items()}

    def run(self, batch: Batch, parents: Parents | None = None, alpha: float | None = None) -> Outcomes:
        values, sizes = self._launch(batch, parents or Parents.from_lists([[]] * self.series.n_variables))
        freedom = self.n_samples - 2 - np.maximum(sizes, 0)
        p_values = student_p_values(values, np.maximum(freedom, 1), alpha)
        # A test on too few samples is made in this way, too, since it raises the error.
        again = np.flatnonzero(np.isnan(values) | (freedom < 1))
        values[again], p_values[again] = super().run(batch[again], parents)
        self.facts["tests_from_samples"] += len(again)
        return values, p_values

    def _launch(self, batch: Batch, parents: Parents) -> tuple[np.ndarray, np.ndarray]:
        """Return the partial correlations and the numbers of conditions, as the kernel writes them."""
        steps = np.diff(batch.targets)
        if steps.min(initial=0) < 0:
            order = np.argsort(batch.targets, kind="stable")
            back, (values, sizes) = np.argsort(order), self._launch(batch[order], parents)
            return values[back], sizes[back]
        starts = np.concatenate(([0], np.flatnonzero(steps) + 1, [len(batch)]))  # of the tests of a target

        # Upper bounds, since constant columns are no conditions and others may be listed twice.
        most, set_size = int(np.diff(parents.starts).max()), batch.sets.shape[1]
        leading = min(most, parents.most_of_target + parents.others)
        own = 2 + set_size + min(most, max(parents.most_of_source, parents.most_of_lagged_source))
        rows = 1 + int(np.diff(starts).max()) if parents.others else self.series.n_columns
        if not parents.others and len(batch) < LEAST_SHARED * rows * (len(starts) - 1):
            own, leading = own + leading, 0
        own, leading = round_up(own, PANEL), round_up(leading, PANEL)
        threads, blocks = self.backend.warp_threads, self.backend.blocks_at_once
        warps, at_least = (1, HOST_TASKS) if threads == 1 else (WARPS, WARPS)
        area = max(own // 2 + (leading + own) * own, (1 + leading) * ROWS * LANES)  # doubles
        fixed = {"tolerance": VARIANCE_TOLERANCE, **{name: int(getattr(parents, name)) for name in (*MOST, "others")}}
        fixed |= {"set_size": set_size, "variables": self.series.n_variables, "columns": self.series.n_columns}
        fixed |= {"leading_capacity": leading, "row_capacity": rows, "capacity": own, "area": area}
        fixed |= self._device | self._uploaded(parent_starts=parents.starts, parents=parents.columns)

        made: list[list[np.ndarray]] = []
        at_once = max(1, BYTES_A_BLOCK * blocks // (8 * rows * max(leading, 1)))
        for group in range(0, len(starts) - 1, at_once):
            bounds = starts[group : group + at_once + 1]
            groups, tests = len(bounds) - 1, batch[bounds[0] : bounds[-1]]
            given = self._uploaded(
                sources=tests.sources, sets=tests.sets, starts=bounds - bounds[0], targets=batch.targets[bounds[:-1]]
            )
            lengths = {"values": len(tests), "sizes": len(tests), "scratch": blocks * warps * area}
            lengths |= {"leading": groups * leading, "leading_sizes": 2 * groups * (leading > 0)}
            lengths |= {"factors": groups * leading**2, "rows": groups * rows * leading}
            needed = {name: (length, POINTERS[name]) for name, length in lengths.items() if length}
            memory = self.backend.empty_all(**needed)
            arguments = TESTS(groups=groups, **fixed, **given, **(dict.fromkeys(lengths) | memory))
            tasks = leading and groups, leading and groups * ceil_div(rows, ROWS * LANES), len(tests)
            for kernel, number in zip(KERNELS, tasks, strict=True):
                grid = min(ceil_div(number, at_least), blocks)
                self.backend.kernel(*kernel)((grid,), (warps * threads,), [arguments])
            made.append(self.backend.download_all([memory["values"], memory["sizes"]]))
        values, sizes = map(np.concatenate, zip(*made, strict=True))
        return values, sizes


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
    """Return Akaike's criterion of the linear model of variable j by columns, as tigramite: n log(residual sum of
    squares of the standardised variable) + 2 (1 + parents)."""
    array = series.sample(j, j, sorted(parents))  # so that the same parents in another order have the same bits
    if array[1].min() == array[1].max():
        return -np.inf
    with np.errstate(divide="ignore"):
        fit = np.log((residuals_of(array, slice(1, 2)) ** 2).sum())
    return float(array.shape[1] * fit + 2.0 * (len(array) - 1))


def student_p_values(values: np.ndarray, freedom: np.ndarray, alpha: float | None = None) -> np.ndarray:
    """Return two-sided p-values of (k,) partial correlations with (k,) degrees of freedom, by Student's t; NaN for NaN.
    With `alpha`, most are 0 if they are up to it and 1 if not, since comparing correlations is faster."""
    if alpha is not None and len(values):
        each = np.arange(freedom.min(), freedom.max() + 1)
        t = scipy.special.stdtrit(each, alpha / 2)
        critical = np.abs(t) / np.sqrt(each + t * t)
        lower, upper = critical * (1.0 - CRITICAL_MARGIN), np.minimum(critical * (1.0 + CRITICAL_MARGIN), 1.0)
        lower[~(student_p_values(lower, each) > alpha)] = 0.0
        upper[~(student_p_values(upper, each) <= alpha)] = np.inf
        if len(each) > 1:
            lower, upper = lower[freedom - each[0]], upper[freedom - each[0]]
        size = np.abs(values)
        p_values = np.where(size < lower, 1.0, 0.0)
        at = np.flatnonzero(~((size < lower) | (size > upper)))
        p_values[at] = student_p_values(values[at], freedom[at])
        return p_values

    def of_some(part: slice) -> np.ndarray:
        r, nu = values[part], freedom[part]
        with np.errstate(divide="ignore"):
            statistic = np.abs(r) * np.sqrt(nu / (1.0 - r * r))
        return np.asarray(2.0 * scipy.special.stdtr(nu, -statistic))

    parts = list(mapped_arrays.pieces(len(values), TESTS_A_THREAD))
    if len(parts) < 2:
        return of_some(slice(None))
    with ThreadPoolExecutor(min(available_cores(), len(parts))) as pool:
        return np.concatenate(list(pool.map(of_some, parts)))
