"""A yardstick that shares nothing with the methods: a sample of an answer is tested from the samples by other code.

Methods of a family, and the retest of its certificates, take their threshold from the same problem, so that an error in
it would be in all of them. Here SciPy's distributions make the threshold from alpha, NumPy's least squares the partial
correlations and regressions, and SciPy's contingency tables the statistics; nothing of a family is called. Edges that
were removed must be separated by their sets, and kept edges must not be separated by sets of neighbours of one end.

Tests of which rounding errors may decide are left out: those near the threshold, and those almost without residual
variance. The families that draw random numbers have no yardstick: no library draws the same ones, and those libraries
are so slow that only a few tests would fit, which find no wrong threshold.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton

TESTS_AT_MOST = 200  # the upper bound on the removed edges and on the kept edges that are tested

NEAR = 1e-6  # the distance from a threshold, and the share of residual variance, below which no test is made

MAX_CELLS = 1 << 22  # the upper bound on the cells of a table that is counted
MAX_BYTES = 1 << 28  # the upper bound on the size of a data set that is read again

Test = tuple[int, int, tuple[int, ...]]


def yardstick(problem: Problem, skeleton: Skeleton, samples: np.ndarray | None = None) -> tuple[int, list[str]]:
    """Test a sample of an answer; returns the number of tests, and a sentence for each with which it disagrees.
    `samples` are (n, p) those of Gaussian data, in the order of the problem's variables. Without them the problem's
    correlations are tested, as those of made-up samples that have them."""
    kinds = {"GaussianProblem": _gaussian, "DiscreteProblem": _discrete, "RegressionProblem": _regression}
    ratio_of = kinds.get(type(problem).__name__)
    if ratio_of is None or not problem.decided_by_tests or problem.n_variables < 2:
        return 0, []
    if problem.fixed is not None or problem.tiers is not None:
        return 0, []  # What background knowledge decides, no test does.
    made, faults = 0, []
    for expected, tests in (True, _removed(skeleton)), (False, _kept(skeleton)):
        for i, j, members in tests:
            if (ratio := ratio_of(problem, samples, i, j, members)) is None or abs(ratio - 1) < NEAR:
                continue
            made += 1
            if (ratio <= 1) != expected:
                names = ", ".join(problem.names[k] for k in members)
                says = "separates" if ratio <= 1 else "does not separate"
                given = f"{problem.names[i]} - {problem.names[j]} given {{{names}}}"
                faults.append(f"{given}: it {says}, since the statistic is {ratio:.6g} times its critical value")
    return made, faults


def read_samples(path: Path) -> np.ndarray | None:
    """Return a data set's values; None without a file, as for an experiment's graphs, or if it is large."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None
    with open_arrays(path) as stored:
        return np.array(stored["values"]) if "values" in stored else None


def _removed(skeleton: Skeleton) -> Iterator[Test]:
    """Yield removed pairs with their sets: half of them removed at level 0, if there are as many."""
    rng, p = np.random.default_rng(0), len(skeleton.names)
    listed = skeleton.sepsets.pairs
    with_set = listed[rng.choice(len(listed), min(TESTS_AT_MOST // 2, len(listed)), replace=False)].tolist()
    drawn = np.unique(np.sort(rng.integers(0, p, (TESTS_AT_MOST, 2)), axis=1), axis=0)
    without_set = [(i, j) for i, j in drawn.tolist() if i != j and not skeleton.adjacency[i, j]]
    for i, j in with_set + without_set[: TESTS_AT_MOST // 2]:
        yield i, j, tuple(skeleton.sepsets[i, j])


def _kept(skeleton: Skeleton) -> Iterator[Test]:
    """Yield kept edges with sets of neighbours of one end, which the search has tested: a neighbour in the final graph
    was one at all levels."""
    rng, edges = np.random.default_rng(1), np.argwhere(np.triu(skeleton.adjacency))
    for i, j in edges[rng.permutation(len(edges))[:TESTS_AT_MOST]].tolist():
        drawn: set[tuple[int, ...]] = set()
        for _ in range(max(TESTS_AT_MOST // len(edges), 1)):
            end, other = (i, j) if rng.random() < 0.5 else (j, i)
            others = np.setdiff1d(np.flatnonzero(skeleton.adjacency[end]), [other])
            size = int(rng.integers(0, min(len(others), skeleton.levels_run - 1) + 1))
            drawn.add(tuple(sorted(rng.permutation(others)[:size].tolist())))
        yield from ((i, j, members) for members in drawn)


def _gaussian(problem: Any, samples: np.ndarray | None, i: int, j: int, members: tuple[int, ...]) -> float | None:
    """Return |z| over its critical value, by Fisher's z of the partial correlation, which is that of the residuals of
    two regressions; None if rounding errors may decide."""
    variables = [i, j, *members]
    if samples is None or samples.shape != (problem.n_samples, problem.n_variables):
        samples = problem.samples
    if samples is None:
        values, vectors = np.linalg.eigh(np.asarray(problem.correlation[np.ix_(variables, variables)], np.float64))
        columns = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    else:
        columns = samples[:, variables] - samples[:, variables].mean(axis=0)
    ends, given = columns[:, :2], columns[:, 2:]
    rest = ends - given @ np.linalg.lstsq(given, ends, rcond=None)[0] if members else ends
    left, before = (rest**2).sum(axis=0), (ends**2).sum(axis=0)
    if (left <= NEAR * before).any():
        return None
    r = min(abs(float(rest[:, 0] @ rest[:, 1]) / float(np.sqrt(left.prod()))), 1.0)
    if 1 - r < NEAR:
        return None
    freedom = problem.n_samples - (problem.df_convention == "cupc") - len(members) - 3
    return float(np.arctanh(r) * np.sqrt(freedom) / scipy.stats.norm.isf(problem.alpha / 2))


def _discrete(problem: Any, _: np.ndarray | None, i: int, j: int, members: tuple[int, ...]) -> float | None:
    """Return Pearson's chi-square or G-square of the tables of all strata over its critical value; None for a table
    that is too large or has no freedom."""
    variables = [*members, i, j]
    sizes = [int(problem.categories[k]) for k in variables]
    if np.prod(sizes, dtype=np.float64) > MAX_CELLS:
        return None
    cells = np.ravel_multi_index(tuple(np.asarray(problem.codes[variables], np.int64)), sizes)
    tables = np.bincount(cells, minlength=int(np.prod(sizes))).reshape(-1, *sizes[-2:])
    statistic, freedom = 0.0, 0
    for table in tables[tables.any(axis=(1, 2))]:
        occurring = table[table.any(axis=1)][:, table.any(axis=0)]
        if min(occurring.shape) > 1:
            expected = scipy.stats.contingency.expected_freq(occurring)
            power = "pearson" if problem.test == "chi-square" else "log-likelihood"
            statistic += scipy.stats.power_divergence(occurring.ravel(), expected.ravel(), lambda_=power).statistic
            freedom += (occurring.shape[0] - 1) * (occurring.shape[1] - 1)
    if problem.df_rule == "full":
        freedom = (sizes[-2] - 1) * (sizes[-1] - 1) * len(tables)
    return float(statistic / scipy.stats.chi2.isf(problem.alpha, freedom)) if freedom else None


def _regression(problem: Any, _: np.ndarray | None, i: int, j: int, members: tuple[int, ...]) -> float | None:
    """Return the F statistic of nested least squares over its critical value; None if neither variable is a number, or
    if rounding may decide."""
    n, (response, other) = problem.n_samples, sorted((i, j), key=lambda k: problem.categories[k])
    if problem.categories[response] or np.ptp(problem.values[[i, j]], axis=1).min() == 0:
        return None

    def terms(k: int) -> np.ndarray:
        """Return a variable of numbers, or indicators of all categories but one."""
        values, categories = problem.values[k], problem.categories[k]
        return (values[:, None] == np.arange(1, categories)) * 1.0 if categories else values

    smaller = np.column_stack([np.ones(n), *map(terms, members)])
    larger = np.column_stack([smaller, terms(other)])
    y, (added, left) = problem.values[response], (larger.shape[1] - smaller.shape[1], n - larger.shape[1])
    before, after = (((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).sum() for x in (smaller, larger))
    if left < 1 or after <= NEAR * n:
        return None
    return float((before - after) / added / (after / left) / scipy.stats.f.isf(problem.alpha, added, left))
