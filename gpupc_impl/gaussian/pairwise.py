"""Gaussian data with missing values, where the correlation of two variables is computed from the samples that have
both.

pandas' ``DataFrame.corr`` and R's ``use="pairwise.complete.obs"`` compute the same matrix. The test of Vi and Vj given
S is Fisher's z (cuPC, section 4.3) with the smallest sample size among all pairs of variables in {Vi, Vj} and S, since
every correlation in the test is computed from at least that many samples. The correlation matrix need not be positive
definite; the rules for near-singular sets and undefined tests are those of every Gaussian test (`RESIDUAL_TOLERANCE`).

`METHOD` solves such a problem. The other methods have one critical value for each level and refuse it.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import scipy

from gpupc_impl.core import watching
from gpupc_impl.core.pc_stable import MAX_SETS, GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.problem import InvalidProblem, as_matrix, name_constants
from gpupc_impl.core.registry import Method, Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_sets
from gpupc_impl.gaussian.partial_correlation import eliminate
from gpupc_impl.gaussian.problem import GaussianProblem, gaussian_parameters
from gpupc_impl.gaussian.retest import pseudo_inverse_products

LEAST_SAMPLES = 4
"""The lower bound on the samples of a pair; with this many, a test of level 0 has one degree of freedom."""

NO_SPREAD = 1e-12
"""A variable is constant over the samples of a pair if its sum of squares about the mean is at most this share of its
sum of squares about zero."""

TESTS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False)
class PairwiseProblem(GaussianProblem):
    """A Gaussian problem in which each pair of variables has its own sample size.

    Attributes:
        sizes: (p, p) int32, symmetric: the number of samples that have both variables, at least `LEAST_SAMPLES`.
    """

    sizes: np.ndarray | None = None

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        correlations: str = "host",
        names: Sequence[str] | None = None,
        **parameters: Any,
    ) -> Self:
        """Make a problem from samples in rows and variables in columns, with NaN for a missing value.

        If a variable is constant over the samples of a pair, the correlation of the pair is zero. The parameters are
        those of `GaussianProblem.from_data`.

        Raises:
            InvalidProblem: the shape is wrong, a value is infinite, two variables have fewer than `LEAST_SAMPLES`
                samples in common, or a parameter is invalid.
        """
        values, names = as_matrix(data, names)
        if np.isinf(values).any():
            row, column = np.argwhere(np.isinf(values))[0]
            raise InvalidProblem(f"data has an infinite value in row {row}, column {names[column]!r}; impute it first")
        if correlations != "host":
            raise InvalidProblem(
                f"correlations is {correlations!r}; with missing='pairwise' they are made here: leave it out"
            )
        correlation, sizes = pairwise_correlations(values)
        few = np.argwhere(np.triu(sizes < LEAST_SAMPLES))
        if len(few):
            i, j = few[0]
            both = repr(names[i]) if i == j else f"{names[i]!r} and {names[j]!r}"
            raise InvalidProblem(
                f"{both} have {sizes[i, j]} sample(s) in common, the first of {len(few):,} "
                f"pair(s) with fewer than {LEAST_SAMPLES}, which a test needs; leave out the variables with the most "
                "missing values, or impute them"
            )
        constant = np.nanmax(values, axis=0) == np.nanmin(values, axis=0)
        for array in (correlation, sizes):
            array.setflags(write=False)
        return cls(
            names=names,
            correlation=correlation,
            sizes=sizes,
            constant=name_constants(names, constant),
            **gaussian_parameters(int(sizes.max()), **parameters),
        )

    def check(self) -> None:
        super().check()
        p, sizes = self.n_variables, self.sizes
        if not isinstance(sizes, np.ndarray) or sizes.dtype != np.int32 or sizes.shape != (p, p):
            raise InvalidProblem(f"its sample sizes are {getattr(sizes, 'dtype', None)} {np.shape(sizes)}")
        if not np.array_equal(sizes, sizes.T) or sizes.min() < LEAST_SAMPLES or sizes.max() != self.n_samples:
            raise InvalidProblem("its sample sizes are not symmetric, or out of range")

    def outline(self) -> dict[str, Any]:
        off_diagonal = self.sizes[~np.eye(self.n_variables, dtype=bool)]
        least = int(off_diagonal.min(initial=self.n_samples))
        return {**super().outline(), "missing": "pairwise", "least_samples_of_a_pair": least}

    @property
    def fingerprint(self) -> str:
        """The SHA-256 digest of everything that changes the answer, which the names do not."""
        return hashlib.sha256(super().fingerprint.encode() + self.sizes.tobytes()).hexdigest()

    def obstacle(self, level: int) -> str | None:
        if self.n_samples > self._spent(level):
            return None
        return (
            f"no degrees of freedom: no pair has more than {self.n_samples} samples, of which level {level} takes all"
        )

    def _spent(self, level: int) -> int:
        """Return the number that is subtracted from the sample size to get the degrees of freedom of a level."""
        return level + 3 + (self.df_convention == "cupc")

    def critical_of_sizes(self, level: int) -> np.ndarray:
        """Return (n_samples + 1,) critical r^2 by sample size; -1, which no r^2 is below, for sizes without degrees of
        freedom."""
        freedom = np.arange(self.n_samples + 1) - self._spent(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            thresholds = -scipy.special.ndtri(self.alpha / 2) / np.sqrt(freedom)
            critical = np.minimum(np.tanh(thresholds) ** 2, np.nextafter(1.0, 0.0))
        return np.where(freedom > 0, critical, -1.0)

    def p_values(self, r_squared: np.ndarray, sizes: np.ndarray, level: int) -> np.ndarray:
        """Return two-sided p-values of squared partial correlations with their sample sizes at a level.

        A test without degrees of freedom, or with an undefined correlation (infinite), has p-value zero.
        """
        freedom = sizes - self._spent(level)
        with np.errstate(divide="ignore"):
            z = np.arctanh(np.minimum(np.sqrt(r_squared.astype(np.float64)), 1.0)) * np.sqrt(np.maximum(freedom, 0))
        return np.where((freedom > 0) & (r_squared <= 1), 2 * scipy.special.ndtr(-z), 0.0)

    # --- functions for methods with one sample size, which refuse ----------------------------------------------------

    def _refuse(self) -> NoReturn:
        raise InvalidProblem(
            "the problem's pairs of variables have a sample size each (missing='pairwise'), which this method does not "
            f"know; leave method out (it is {METHOD.name!r}), or say missing='drop-rows'"
        )

    def degrees_of_freedom(self, level: int) -> int:
        self._refuse()

    def threshold(self, level: int) -> float:
        self._refuse()

    def critical_r_squared(self, level: int) -> float:
        self._refuse()

    def save(self, path: str | Path) -> None:
        raise InvalidProblem(f"{Path(path).name}: a problem with missing='pairwise' is made of its data; save those")


def pairwise_correlations(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Pearson correlations of the columns of an (m, p) float64 matrix; NaN marks a missing value.

    Each correlation is computed from the samples that have both variables.

    Returns:
        (p, p) correlations, exactly symmetric and zero if a column is constant over the samples of the pair; and (p, p)
        int32 sample sizes.
    """
    held = ~np.isnan(values)
    filled = np.where(held, values, 0.0)
    scale = np.abs(filled).max(axis=0)
    filled /= np.where(scale > 0, scale, 1.0)
    filled -= filled.sum(axis=0) / np.maximum(held.sum(axis=0), 1)
    filled[~held] = 0.0
    weights = held.astype(np.float64)
    sizes = weights.T @ weights
    # The entries (i, j) are the sum and the sum of squares of column i over the samples that have both variables.
    sums, squares = filled.T @ weights, (filled**2).T @ weights
    count = np.maximum(sizes, 1.0)
    spread = squares - sums**2 / count
    defined = spread > NO_SPREAD * squares
    defined &= defined.T
    products = filled.T @ filled - sums * sums.T / count
    correlation = np.where(defined, products / np.sqrt(np.where(defined, spread * spread.T, 1.0)), 0.0)
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0, out=correlation), sizes.astype(np.int32)


def solve_pairwise(problem: GaussianProblem, run: Run) -> Skeleton:
    """Solve a `PairwiseProblem` by PC-stable with canonical separating sets; other problems raise InvalidProblem."""
    if not isinstance(problem, PairwiseProblem):
        raise InvalidProblem(f"method {METHOD.name!r} is for missing='pairwise'; leave method out")
    return pc_stable(problem, PairwiseSearch(problem, run.pmax), facts=dict(run.facts), progress=run.progress)


METHOD = Method(
    name="pairwise",
    family="gaussian",
    backends=("cpu",),
    source="cuPC, Algorithm 1 and section 4.3, with pairwise-complete correlations",
    summary="missing values: each pair's own samples (NumPy; not one of the methods that are compared)",
    tiers=True,
    solve=solve_pairwise,
    module=__name__,
)
"""The method for a `PairwiseProblem`, which is not in the registry because no other method solves such a problem."""


class PairwiseSearch(GraphSearch):
    """A search in a `PairwiseProblem`."""

    def run_level(self, level: int) -> LevelOutcome:
        """Run a level, `TESTS_AT_ONCE` tests at a time: several edges, each with its next sets in canonical order."""
        critical = self.problem.critical_of_sizes(level)
        rows = _Rows(self.adjacent, level)
        pairs = self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).astype(np.int32)
        sets = np.full((len(pairs), level), -1, np.int32)
        separated, done = np.zeros(len(pairs), bool), np.zeros(len(pairs), np.int64)
        totals = rows.count(pairs).sum(axis=1)
        tests = undefined = singular = 0
        while len(open_edges := np.flatnonzero(~separated & (done < totals))):
            open_edges = open_edges[:TESTS_AT_ONCE]
            counts = np.minimum(totals[open_edges] - done[open_edges], max(1, TESTS_AT_ONCE // len(open_edges)))
            edge = np.repeat(open_edges, counts)
            rank = done[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
            members = rows.sets(pairs[edge], rank)
            allowed = allowed_sets(self.problem.tiers, pairs[edge], members)
            edge, members = edge[allowed], members[allowed]
            r_squared, sizes, pseudo = self._statistics(pairs[edge], members)
            tests += len(edge)
            singular += int(pseudo.sum())
            undefined += int((np.isinf(r_squared) | (critical[sizes] < 0)).sum())
            separates = np.flatnonzero(r_squared <= critical[sizes])
            first = separates[np.unique(edge[separates], return_index=True)[1]]
            separated[edge[first]], sets[edge[first]] = True, members[first]
            done[open_edges] += counts
            watching.advance(tests, int(totals.sum()), "possible tests")
            if self.largest_p is not None:
                self._record(pairs[edge], self.problem.p_values(r_squared, sizes, level), first)
        i, j = pairs[separated].T
        self.adjacent[i, j] = self.adjacent[j, i] = False
        degrees = self.adjacent.sum(axis=1)
        return LevelOutcome(
            edges=int(degrees.sum()) // 2,
            max_degree=self.problem.most_tested_degree(degrees),
            tests=tests,
            pairs=pairs[separated] if level else None,
            sets=sets[separated] if level else None,
            undefined=undefined,
            pseudo_inverses=singular,
        )

    def _record(self, pairs: np.ndarray, p_values: np.ndarray, first: np.ndarray) -> None:
        """Record the largest p-value of each pair, and for a removed pair the p-value given its separating set."""
        i, j = pairs.T
        np.fmax.at(self.largest_p, (i, j), p_values)
        self.largest_p[i[first], j[first]] = p_values[first]
        self.largest_p[j, i] = self.largest_p[i, j]

    def _statistics(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Test (k, 2) pairs given (k, l) sets (cuPC, Equation 5).

        Returns:
            (k,) squared partial correlations, infinite if undefined; (k,) sample sizes; and (k,) bool that tells
            whether the conditioning matrix took its pseudo-inverse.
        """
        problem, level = self.problem, sets.shape[1]
        variables = np.concatenate([sets, pairs], axis=1)
        block = variables[:, :, None], variables[:, None, :]
        sizes = problem.sizes[block].min(axis=(1, 2))
        original = problem.correlation[block]
        with np.errstate(divide="ignore", invalid="ignore"):
            left, smallest = eliminate(original.copy(), level)
            pseudo = (smallest <= problem.pivot_tolerance) & (level > 1)
            for k in np.flatnonzero(pseudo):
                explained = pseudo_inverse_products(original[k, :level, :level], original[k, :level, level:])
                left[k] = original[k, level:, level:] - explained
            r_squared = left[:, 0, 1] ** 2 / (left[:, 0, 0] * left[:, 1, 1])
        defined = np.minimum(left[:, 0, 0], left[:, 1, 1]) > problem.residual_tolerance
        return np.where(defined, r_squared, np.inf), sizes, pseudo


class _Rows:
    """The neighbours of each variable at the start of a level, and their subsets by rank."""

    def __init__(self, adjacent: np.ndarray, level: int):
        self.level = level
        self.before = np.cumsum(adjacent, axis=1) - 1  # The entry (i, j) is the position of Vj in the row of Vi.
        self.degrees = adjacent.sum(axis=1)
        self.starts = np.cumsum(self.degrees) - self.degrees
        self.neighbours = np.nonzero(adjacent)[1].astype(np.int32)
        longest = max(int(self.degrees.max()), level)
        table = [[min(math.comb(n, k), MAX_SETS) for n in range(longest + 1)] for k in range(level + 1)]
        self.binomials = np.array(table, np.int64)

    def count(self, pairs: np.ndarray) -> np.ndarray:
        """Return (k, 2) numbers of sets from either end of (k, 2) pairs; the empty set counts for the first end."""
        if self.level == 0:
            return np.tile([1, 0], (len(pairs), 1))
        return self.binomials[self.level, self.degrees[pairs] - 1]

    def sets(self, pairs: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return the (k, level) sets of these ranks; ranks number the sets from the first end in lexicographic order,
        then those from the second end."""
        counts = self.count(pairs)[:, 0]
        second = ranks >= counts
        ranks = ranks - np.where(second, counts, 0)
        owner, other = np.where(second[:, None], pairs[:, ::-1], pairs).T
        n = self.degrees[owner] - 1
        members = np.empty((len(pairs), self.level), np.int32)
        left = self.binomials[self.level, n] - 1 - ranks
        skipped = self.before[owner, other]
        for t in range(self.level):  # The loop decodes ranks by the combinatorial number system (Knuth, 7.2.1.3).
            size = self.level - t
            place = np.searchsorted(self.binomials[size], left, side="right") - 1
            left = left - self.binomials[size, place]
            position = n - 1 - place
            members[:, t] = self.neighbours[self.starts[owner] + position + (position >= skipped)]
        return members
