"""Repeats the decisions of a Gaussian search one by one, with our test and with those of other programs.

The tests of other programs are implemented here as formulas, following their sources: pcalg 2.7's C++
(IndepTestGauss::test), causal-learn's FisherZ and the published kernels of cuPC-S. `workflow.pages.numerics` makes
tables of the decisions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from mpmath import mp, mpf
from numba import njit

from baselines._fisher_z import add_member, new_factor, residuals_by_pseudo_inverse
from baselines._graph import neighbour_lists, neighbours_without, next_combination
from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE, GaussianProblem

PCALG_LARGEST = 0.9999999
"""pcalg replaces any larger |r|, and NaN, by this value."""

ILL_CONDITIONED = 1e-6
"""If a pivot of Cholesky's factorization is smaller, the emulation of pcalg computes the pseudo-inverse as well."""

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def margins(correlation, starts, neighbours, edges, level, limits, bounds, listed):
    """Perform all tests of a level >= 1 in canonical order, and record how near they are to their threshold.

    Args:
        limits: as in baselines/_fisher_z.py.
        bounds: (k,) ascending; tests with |r^2 / critical - 1| below each of them are counted.
        listed: (n, 2 + level) int64, filled with the i, j, S of the first n tests below the largest of the bounds.

    Returns:
        the (k,) counts, the number of tests, the number of tests that are listed, the largest residual variance that
        counts as zero, and the smallest that does not.
    """
    critical, tolerance, near_pivot, no_pivot = limits
    counts = np.zeros(len(bounds), np.int64)
    candidates, members = np.empty(len(correlation), np.int32), np.empty(level, np.int32)
    factor = new_factor(level)
    tests = n_listed = 0
    below, above = -np.inf, np.inf
    for e in range(len(edges)):
        i, j = edges[e]
        separated = False
        for row, other in ((i, j), (j, i)):
            n = neighbours_without(starts, neighbours, row, other, np.empty(0, np.int32), candidates)
            if separated or n < level:
                continue
            chosen = np.arange(level)
            changed, singular = 0, level
            while changed >= 0:
                for t in range(changed, level):
                    members[t] = candidates[chosen[t]]
                if singular >= changed:
                    singular = level
                    for t in range(changed, level):
                        if not add_member(correlation, i, j, members, t, factor, near_pivot):
                            singular = t
                            break
                if singular < level:
                    h11, h12, h22 = residuals_by_pseudo_inverse(correlation, i, j, members, no_pivot)
                else:
                    h11, h12, h22 = factor.h[level, 0], factor.h[level, 1], factor.h[level, 2]
                tests += 1
                variance = min(h11, h22)
                if variance <= tolerance:
                    below = max(below, variance)
                else:
                    above = min(above, variance)
                    margin = abs(h12 * h12 / (critical * (h11 * h22)) - 1.0)
                    if margin < bounds[-1]:
                        for k in range(len(bounds)):
                            counts[k] += margin < bounds[k]
                        if n_listed < len(listed):
                            listed[n_listed, 0], listed[n_listed, 1] = i, j
                            for t in range(level):
                                listed[n_listed, 2 + t] = members[t]
                            n_listed += 1
                    if h12 * h12 <= critical * (h11 * h22):
                        separated = True
                        break
                changed = next_combination(chosen, n)
    return counts, tests, n_listed, below, above


@_compiled
def pcalg_level(correlation, starts, neighbours, edges, level, threshold):
    """Return the separating sets, (k, level), of edges at a level >= 1 by pcalg's test; -1 if an edge stays."""
    sets = np.full((len(edges), level), -1, np.int32)
    candidates, members = np.empty(len(correlation), np.int32), np.empty(level, np.int32)
    factor = new_factor(level)
    for e in range(len(edges)):
        i, j = edges[e]
        for row, other in ((i, j), (j, i)):
            n = neighbours_without(starts, neighbours, row, other, np.empty(0, np.int32), candidates)
            if sets[e, 0] >= 0 or n < level:
                continue
            chosen, changed = np.arange(level), 0
            while changed >= 0:
                for t in range(level):
                    members[t] = candidates[chosen[t]]
                if pcalg_z(pcalg_r(correlation, i, j, members, factor)) <= threshold:
                    sets[e] = members
                    break
                changed = next_combination(chosen, n)
    return sets


@_compiled
def pcalg_r(correlation, i, j, members, factor):
    """Return the partial correlation as in pcalg: by recursion given one variable, by the pseudo-inverse given more.

    If no pivot is small, Cholesky's factorization gives the same result within rounding, in less time.
    """
    level = len(members)
    if level == 1:
        k = members[0]
        r_ik, r_jk = correlation[i, k], correlation[j, k]
        return (correlation[i, j] - r_ik * r_jk) / np.sqrt((1 - r_jk * r_jk) * (1 - r_ik * r_ik))
    sound = True
    for t in range(level):
        sound = sound and add_member(correlation, i, j, members, t, factor, ILL_CONDITIONED)
    h11, h12, h22 = factor.h[level, 0], factor.h[level, 1], factor.h[level, 2]
    if sound and min(h11, h22) > ILL_CONDITIONED:
        return h12 / np.sqrt(h11 * h22)
    variables = np.empty(level + 2, np.int64)
    variables[0], variables[1], variables[2:] = i, j, members
    part = np.empty((level + 2, level + 2))
    for a in range(level + 2):
        for b in range(level + 2):
            part[a, b] = correlation[variables[a], variables[b]]
    inverse = np.linalg.pinv(part, (level + 2) * np.finfo(np.float64).eps)
    return -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1])


@_compiled
def pcalg_z(r):
    size = abs(r)
    if not size < PCALG_LARGEST:
        size = PCALG_LARGEST
    return 0.5 * np.log1p(2 * size / (1 - size))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A skeleton, (p, p) bool, and the separating sets of the pairs i < j that were removed at levels from 1 on."""

    adjacency: np.ndarray
    sets: Mapping[tuple[int, int], tuple[int, ...]]

    def linked(self, a: int, b: int, level: int) -> bool:
        """Return whether the edge existed at the start of a level."""
        return bool(self.adjacency[a, b]) or len(self.sets.get((min(a, b), max(a, b)), ())) >= level


def pcalg_answer(correlation: np.ndarray, n_samples: int, alpha: float) -> Answer:
    """Return the answer of pcalg's stable search with its Gaussian test."""
    problem = GaussianProblem.from_correlation(correlation, n_samples=n_samples, alpha=alpha)
    adjacent = correlation**2 > problem.critical_r_squared(0)
    np.fill_diagonal(adjacent, False)
    separating_sets, level = {}, 1
    while adjacent.sum(axis=1).max() > level and problem.obstacle(level) is None:
        starts, neighbours, edges = neighbour_lists(adjacent)
        sets = pcalg_level(correlation, starts, neighbours, edges, level, problem.threshold(level))
        removed = sets[:, 0] >= 0
        i, j = edges[removed].T
        adjacent[i, j] = adjacent[j, i] = False
        removed_pairs = map(tuple, edges[removed].tolist())
        separating_sets |= dict(zip(removed_pairs, map(tuple, sets[removed].tolist()), strict=True))
        level += 1
    return Answer(adjacent, separating_sets)


def why_they_differ(problem: GaussianProblem, one: Answer, other: Answer, i: int, j: int) -> str:
    """Return the reason why only one of two answers removed a pair i < j.

    Returns:
        ``"no variance"``: an endpoint has no variance left given the set, so rounding errors decided; ``"follows"``:
        the other answer had removed an edge to a member of the set earlier, so this difference follows from another; or
        ``"unexplained"``.
    """
    members = one.sets.get((i, j), ())
    h = canonical.residuals(problem.correlation, i, j, sorted(members), problem.pivot_tolerance)
    if min(h.ii, h.jj) <= RESIDUAL_TOLERANCE:
        return "no variance"
    had = [all(other.linked(end, s, len(members)) for s in members) for end in (i, j)]
    return "unexplained" if any(had) else "follows"


def correlations_of_r(values: np.ndarray) -> np.ndarray:
    """Return the correlations of (m, p) samples as R's ``cor`` does, with sums in extended precision."""
    samples = values.astype(np.longdouble)
    means = samples.mean(axis=0)
    means += (samples - means).mean(axis=0)
    centred = samples - means.astype(np.float64)
    covariance = np.array([(column[:, None] * centred).sum(axis=0) / (len(values) - 1) for column in centred.T])
    covariance = covariance.astype(np.float64)
    deviations = np.sqrt(np.diagonal(covariance))
    correlation = np.clip(covariance / np.outer(deviations, deviations), -1.0, 1.0)
    correlation = np.triu(correlation, 1) + np.triu(correlation, 1).T
    np.fill_diagonal(correlation, 1.0)
    return correlation


# --- one decision, by every program ----------------------------------------------------------------------------------


def by_ours(problem: GaussianProblem, i: int, j: int, members: Sequence[int]) -> bool:
    h = canonical.residuals(problem.correlation, i, j, members, problem.pivot_tolerance)
    critical = problem.critical_r_squared(len(members))
    return min(h.ii, h.jj) > problem.residual_tolerance and h.ij * h.ij <= critical * (h.ii * h.jj)


def by_pcalg(problem: GaussianProblem, i: int, j: int, members: Sequence[int]) -> bool:
    r = problem.correlation[i, j]
    if members:
        r = pcalg_r(problem.correlation, i, j, np.array(members, np.int32), _new_factor(len(members)))
    return bool(pcalg_z(r) <= problem.threshold(len(members)))


@_compiled
def _new_factor(level):
    return new_factor(level)


def by_causal_learn(problem: GaussianProblem, i: int, j: int, members: Sequence[int]) -> bool:
    """Apply the package's own test, which raises `ValueError` if the matrix is singular."""
    from causallearn.utils.cit import FisherZ

    # Only the number of columns of these data is used.
    test = FisherZ(np.arange(2.0 * problem.n_variables).reshape(2, -1))
    test.correlation_matrix, test.sample_size = problem.correlation, problem.degrees_of_freedom(0) + 3
    return bool(test(i, j, tuple(members)) > problem.alpha)


def by_cupc(problem: GaussianProblem, i: int, j: int, members: Sequence[int]) -> bool:
    """Apply cuPC's test with the thresholds of the problem; the published program uses those of the next level."""
    ends, set_members, c = [i, j], list(members), problem.correlation
    cross, h = c[np.ix_(ends, set_members)], c[np.ix_(ends, ends)]
    if set_members:
        h = h - cross @ np.linalg.pinv(c[np.ix_(set_members, set_members)]) @ cross.T
    with np.errstate(all="ignore"):
        r = h[0, 1] / np.sqrt(np.abs(h[0, 0] * h[1, 1]))
        return bool(0.5 * np.abs(np.log(np.abs((1 + r) / (1 - r)))) < problem.threshold(len(members)))


def in_fifty_digits(problem: GaussianProblem, i: int, j: int, members: Sequence[int]) -> bool:
    """Compare the p-value in 50 digits with alpha; the correlations of S must be regular."""
    freedom = problem.degrees_of_freedom(len(members))
    with mp.workdps(50):
        part = mp.matrix(problem.correlation[np.ix_((i, j, *members), (i, j, *members))].tolist())
        inverse = part**-1
        r = -inverse[0, 1] / mp.sqrt(inverse[0, 0] * inverse[1, 1])
        two_sided = mp.erfc(abs(mp.atanh(r)) * mp.sqrt(mpf(freedom) / 2))
        return bool(two_sided >= mpf(problem.alpha))


PROGRAMS: dict[str, Callable[..., bool]] = {
    "ours": by_ours,
    "pcalg": by_pcalg,
    "causal-learn": by_causal_learn,
    "cuPC": by_cupc,
    "50 digits": in_fifty_digits,
}
"""Functions that return whether S separates i and j by the arithmetic of each program."""


def limits_of(problem: GaussianProblem, level: int) -> tuple[float, float, float, float]:
    tolerances = problem.residual_tolerance, problem.pivot_tolerance, PSEUDO_INVERSE_TOLERANCE
    return problem.critical_r_squared(level), *tolerances
