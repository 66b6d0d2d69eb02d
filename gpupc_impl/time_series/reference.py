"""The phases of PCMCI and PCMCI+ written plainly: test after test, in the order of the papers' algorithms. They share
with the batches what follows the tests, such as the orientation of links, but no loops, conditions or decisions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents
from gpupc_impl.time_series.phases import LaggedPhase, Skeleton, Triple


def outcome(test: LaggedTest, x: int, j: int, conditions: Iterable[int]) -> tuple[float, float]:
    """Return the value and the p-value of the test of a column X and variable j now, given columns."""
    columns = [column for column in dict.fromkeys(conditions) if column not in (x, j)]
    one = (np.array([each], np.int32) for each in (x, j, columns))
    values, p_values = test.run(Batch(*one))
    return float(values[0]), float(p_values[0])


def lagged_phase(
    test: LaggedTest, alpha: float, tau_min: int, max_conds_dim: int, max_combinations: int, keeps_outcomes: bool
) -> LaggedPhase:
    """Algorithm S1; see `phases.lagged_phase`."""
    n, tau_max = test.series.n_variables, test.series.tau_max
    p_values, strengths, tests = np.ones((n, (tau_max + 1) * n)), np.zeros((n, (tau_max + 1) * n)), 0
    parents: list[list[int]] = []
    for j in range(n):
        remaining = [lag * n + i for i in range(n) for lag in range(tau_min, tau_max + 1)]
        least = dict.fromkeys(remaining, np.inf)
        size = 0
        while len(remaining) > size and size <= max_conds_dim:
            for x in remaining:
                sets = itertools.combinations([other for other in remaining if other != x], size)
                for given in itertools.islice(sets, max_combinations):
                    value, p_value = outcome(test, x, j, given)
                    tests += 1
                    least[x] = min(least[x], abs(value))
                    if p_value > alpha:
                        p_values[j, x], strengths[j, x] = p_value, value
                        del least[x]
                        break
            remaining = sorted(least, key=lambda x: -least[x])
            size += 1
        parents.append(remaining)
    return LaggedPhase(Parents.from_lists(parents), p_values, strengths, tests)


def mci_conditions(test: LaggedTest, x: int, j: int, parents: Parents) -> list[int]:
    """Return the first parents of j, and those of X as many steps earlier as X is."""
    n = test.series.n_variables
    most = parents.most_of_lagged_source if x >= n else parents.most_of_source
    return [*parents.of(j)[: parents.most_of_target], *(column + x // n * n for column in parents.of(x % n)[:most])]


def mci(test: LaggedTest, parents: Parents, tau_min: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Algorithm S3; see `phases.mci`."""
    n, tau_max = test.series.n_variables, test.series.tau_max
    p_values, strengths, tests = np.ones((n, (tau_max + 1) * n)), np.zeros((n, (tau_max + 1) * n)), 0
    for j, x in np.ndindex(p_values.shape):
        if x >= tau_min * n and x != j:
            strengths[j, x], p_values[j, x] = outcome(test, x, j, mci_conditions(test, x, j, parents))
            tests += 1
    return p_values, strengths, tests


def skeleton(test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, max_conds_dim: int) -> Skeleton:
    """Algorithm 2 of PCMCI+; see `phases.skeleton`."""
    n, found = len(linked), Skeleton(linked)
    linked, least, p_values = found.linked, found.least, found.p_values
    for size in range(max_conds_dim + 1):
        neighbours = [sorted(np.flatnonzero(linked[j, :n]).tolist(), key=lambda v: -least[j, v]) for j in range(n)]
        pairs = [(x, j) for x, j in np.argwhere(linked.T).tolist() if len(neighbours[j]) - (x < n) >= size]
        if not pairs:
            break
        for x, j in pairs:
            others = [v for v in neighbours[j] if v != x]
            for given in itertools.combinations(others, size) if linked[j, x] else ():
                value, p_value = outcome(test, x, j, [*given, *mci_conditions(test, x, j, parents)])
                found.tests += 1
                least[j, x] = min(least[j, x], abs(value))
                if p_value >= p_values[j, x]:
                    p_values[j, x], found.strengths[j, x] = p_value, value
                if p_value > alpha:
                    linked[j, x] = False
                    found.separations[x % n, x // n, j] = given
                    if x < n:
                        linked[x, j], p_values[x, j] = False, p_values[j, x]
                        found.separations[j, 0, x] = given
                    break
    return found


def votes(
    test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, triples: Iterable[Triple]
) -> tuple[dict[Triple, tuple[int, int]], int]:
    n, found, tests = len(linked), {}, 0
    for i, lag, k, j in triples:
        x, sets = lag * n + i, set()
        for v in (i, j) if lag == 0 else (j,):
            neighbours = np.flatnonzero(linked[v, :n]).tolist()
            for size in range(len(neighbours) + 1):
                sets |= set(itertools.combinations(neighbours, size))
        conditions = mci_conditions(test, x, j, parents)
        separating = [given for given in sets if outcome(test, x, j, [*given, *conditions])[1] > alpha]
        found[i, lag, k, j] = len(separating), sum(k in given for given in separating)
        tests += len(sets)
    return found, tests
