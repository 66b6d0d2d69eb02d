"""Gaussian data with missing values, where the correlation of two variables is computed from the samples that have
both, as by pandas' ``DataFrame.corr`` and R's ``use="pairwise.complete.obs"``. The test of Vi and Vj given S is
Fisher's z (cuPC, section 4.3). Its sample size is the smallest number of samples among all pairs of variables in {Vi,
Vj} and S, since every correlation in the test is computed from at least that many samples; or, by choice, the harmonic
mean of these numbers. The correlation matrix need not be positive definite; the rules for near-singular sets and
undefined tests are those of every Gaussian test (`RESIDUAL_TOLERANCE`)."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core import allocation, mapped_arrays
from gpupc_impl.core.problem import InvalidProblem, as_matrix, name_constants, one_of, parameter, variable_names
from gpupc_impl.core.rows import RowStream
from gpupc_impl.gaussian.array_search import ArrayProblem, Outcome, Tests, array_method
from gpupc_impl.gaussian.canonical import quick_residuals, to_host

LEAST_SAMPLES = 4  # lower bound on the samples of a pair; with this many, a test of level 0 has one degree of freedom
NO_SPREAD = 1e-12  # a variable's centred sum of squares is at most this share of the raw one: it counts as constant
SUMS_BYTES = 1 << 32  # upper bound on the memory of the sums over the samples of pairs, unless a device has less
BYTES_OF_PAIR = 96  # upper bound on the memory of the six sums of a pair and of what is computed from them


@dataclasses.dataclass(frozen=True, eq=False)
class PairwiseProblem(ArrayProblem):
    """A Gaussian problem in which each pair of variables has its own sample size. That of a test (`sample_size`) is the
    smallest of its pairs' sizes, or their harmonic mean, rounded down."""

    treatment: ClassVar[str] = "pairwise"

    sizes: np.ndarray | None = None  # (p, p) int32, symmetric: samples that have both variables, >= `LEAST_SAMPLES`
    sample_size: str = parameter("smallest", one_of("smallest", "harmonic-mean"))

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        correlations: str = "host",
        names: Sequence[str] | None = None,
        backend: Backend | None = None,
        **parameters: Any,
    ) -> Self:
        """Make a problem from samples in rows and variables in columns, an array, a DataFrame or a `RowStream`, with
        NaN for a missing value. If a variable is constant over the samples of a pair, the correlation of the pair is
        zero. The parameters are those of `GaussianProblem.from_data`, and `sample_size`. Correlations are computed on
        the backend, or by NumPy if it is None; their last bits depend on it. InvalidProblem is raised if the shape is
        wrong, a value is infinite, two variables have fewer than `LEAST_SAMPLES` samples in common, or a parameter is
        invalid."""
        if isinstance(data, RowStream):
            stream, names = data, variable_names(names, data.shape[1])
        else:
            values, names = as_matrix(data, names)
            stream = RowStream.of(values)
        if (infinite := stream.statistics.first_infinite) is not None:
            raise InvalidProblem(
                f"data has an infinite value in row {infinite[0]}, column {names[infinite[1]]!r}; impute it first"
            )
        if correlations != "host":
            raise InvalidProblem(
                f"correlations is {correlations!r}; with missing='pairwise' they are made where the search runs: leave "
                "it out"
            )
        cls.checked(stream.shape[0], **parameters)  # before the correlations, which take long
        correlation, sizes = pairwise_correlations(stream, backend)
        few = np.argwhere(np.triu(sizes < LEAST_SAMPLES))
        if len(few):
            i, j = few[0]
            both = repr(names[i]) if i == j else f"{names[i]!r} and {names[j]!r}"
            raise InvalidProblem(
                f"{both} have {sizes[i, j]} sample(s) in common, the first of {len(few):,} "
                f"pair(s) with fewer than {LEAST_SAMPLES}, which a test needs; leave out the variables with the most "
                "missing values, or impute them"
            )
        for array in (correlation, sizes):
            array.setflags(write=False)
        return cls(
            names=names,
            correlation=correlation,
            sizes=sizes,
            constant=name_constants(names, stream.statistics.constant),
            **cls.checked(int(sizes.max()), **parameters),
        )

    def outline(self) -> dict[str, Any]:
        off_diagonal = self.sizes[~np.eye(self.n_variables, dtype=bool)]
        least = int(off_diagonal.min(initial=self.n_samples))
        remark = f"at least {least:,} of each pair of variables; {self.remark({'sample_size': self.sample_size})}"
        return {**super().outline(), "missing": "pairwise", "least_samples_of_a_pair": least, "remark": remark}

    @classmethod
    def remark(cls, parameters: Mapping[str, Any]) -> str:
        rule = parameters.get("sample_size", "smallest")
        kind = "the smallest" if rule == "smallest" else "the harmonic mean"
        return f"the sample size of a test is {kind} of its pairs' numbers of samples"

    def critical_of_sizes(self, level: int) -> np.ndarray:
        """Return (n_samples + 1,) critical r^2 by size; -1, below every r^2, for sizes without degrees of freedom."""
        from scipy import special

        freedom = np.arange(self.n_samples + 1) - self.spent(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            thresholds = -special.ndtri(self.alpha / 2) / np.sqrt(freedom)
            critical = np.minimum(np.tanh(thresholds) ** 2, np.nextafter(1.0, 0.0))
        return np.where(freedom > 0, critical, -1.0)

    def p_values(self, r_squared: np.ndarray, sizes: np.ndarray, level: int) -> np.ndarray:
        """Return two-sided p-values of squared partial correlations with their sample sizes at a level. A test without
        degrees of freedom, or with an undefined correlation (infinite), has p-value zero."""
        from scipy import special

        freedom = sizes - self.spent(level)
        with np.errstate(divide="ignore"):
            z = np.arctanh(np.minimum(np.sqrt(r_squared), 1.0)) * np.sqrt(np.maximum(freedom, 0))
        return np.where((freedom > 0) & (r_squared <= 1), 2 * special.ndtr(-z), 0.0)

    def tests(self, xp: Any = np) -> Tests:
        correlation, of_pairs = xp.asarray(self.correlation), xp.asarray(self.sizes)
        critical_of = functools.lru_cache(1)(lambda level: xp.asarray(self.critical_of_sizes(level)))

        def test(pairs: Any, sets: Any, p_values: bool) -> Outcome:
            level = sets.shape[1]
            sizes = self._sizes_of_tests(xp, of_pairs, xp.concatenate([sets, pairs], axis=1))
            critical = critical_of(level)[sizes]
            h = quick_residuals(self, correlation, pairs, sets, xp)
            defined = h.defined(self.residual_tolerance)
            variances = xp.where(defined, h.ii * h.jj, 1.0)
            r_squared = xp.where(defined, h.ij * h.ij / variances, np.inf)
            p = effects = None
            if p_values:
                p = self.p_values(to_host(r_squared), to_host(sizes), level)
                effects = to_host(xp.where(defined, h.ij / xp.sqrt(variances), np.nan))
            return Outcome(r_squared <= critical, ~defined | (critical < 0), h.near_singular, p, effects)

        return test

    def _sizes_of_tests(self, xp: Any, of_pairs: Any, variables: Any) -> Any:
        """Return the (k,) sample sizes of tests of (k, c) variables, from those of pairs."""
        count = variables.shape[1]
        first, *others = (
            of_pairs[variables[:, a], variables[:, b]] for a, b in itertools.combinations(range(count), 2)
        )
        if self.sample_size == "smallest":
            return functools.reduce(xp.minimum, others, first)
        mean = (1 + len(others)) / sum((1.0 / sizes for sizes in others), 1.0 / first)
        return xp.floor(mean * (1 + 1e-12)).astype(np.int64)  # The mean of 60, 60 and 60 stays 60 despite rounding.


def pairwise_correlations(stream: RowStream, backend: Backend | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return (p, p) Pearson correlations of columns with missing values, by masked matrix products on the backend or
    NumPy, and (p, p) int32 sample sizes. Each correlation is computed from the samples that have both variables, and
    zero if a column is constant over them; the matrix is exactly symmetric. Variables are taken in panels, whose sums
    fit into `SUMS_BYTES` and the free memory of the device. All rows of a stream are read once for each panel."""
    p = stream.shape[1]
    correlation, counts = allocation.new_array((p, p)), allocation.new_array((p, p), np.int32)
    free = SUMS_BYTES if backend is None else min(SUMS_BYTES, (backend.memory_limit - backend.memory_used) // 2)
    with contextlib.nullcontext(np) if backend is None else backend.array_library() as xp:
        for columns in mapped_arrays.pieces(p, max(1, min(p, free // (BYTES_OF_PAIR * p)))):
            rest = slice(columns.start, p)
            r, sizes = _panel(xp, stream, columns)
            width = len(r)
            r[:, :width] = np.triu(r[:, :width], 1) + np.triu(r[:, :width], 1).T + np.eye(width)
            correlation[columns, rest], counts[columns, rest] = r, sizes
            correlation[rest, columns], counts[rest, columns] = r.T, sizes.T
    return correlation, counts


def _panel(xp: Any, stream: RowStream, columns: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlations of the columns of a panel with these and all following columns, and the sample sizes."""
    shape = columns.stop - columns.start, stream.shape[1] - columns.start
    # The following sums run over the samples that have both columns i and j: the number of samples, the sums and the
    # sums of squares of i and of j, and the sum of products.
    sums = [xp.zeros(shape) for _ in range(6)]
    for rows in stream.chunks():
        values = stream.scaled(rows, xp)[:, columns.start :]
        held = ~xp.isnan(values)
        values = xp.where(held, values, 0.0)
        held, squares = held.astype(np.float64), values * values
        own = [array[:, : shape[0]].T for array in (held, values, squares)]
        for total, left, right in zip(
            sums,
            (own[0], own[1], own[0], own[2], own[0], own[1]),
            (held, held, values, held, squares, values),
            strict=True,
        ):
            total += left @ right
    sizes, of_i, of_j, squares_i, squares_j, products = sums
    count = xp.maximum(sizes, 1.0)
    spread_i, spread_j = squares_i - of_i * of_i / count, squares_j - of_j * of_j / count
    defined = (spread_i > NO_SPREAD * squares_i) & (spread_j > NO_SPREAD * squares_j)
    root = xp.sqrt(xp.where(defined, spread_i * spread_j, 1.0))
    correlation = xp.clip(xp.where(defined, (products - of_i * of_j / count) / root, 0.0), -1.0, 1.0)
    return to_host(correlation), to_host(sizes).astype(np.int32)


METHOD = array_method(
    PairwiseProblem,
    source="cuPC, Algorithm 1 and section 4.3, with pairwise-complete correlations",
    summary="missing values: each pair's own samples",
)
