"""PC1, the lagged phase of PCMCI and PCMCI+ (Runge et al. 2019, Algorithm S1; Runge 2020, Algorithm 1).

For each variable Y, the lagged variables are candidates for parents. Round p tests each candidate given the p strongest
others, and removes it if the two are independent; candidates are then sorted by the least absolute value of their
statistic so far. A round makes the tests of all variables in one batch.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents
from gpupc_impl.time_series.parameters import NO_LIMIT

Score = Callable[[int, list[int]], float]
"""The criterion of a variable and the columns of its parents; the least is best."""


@dataclasses.dataclass(frozen=True, eq=False)
class LaggedPhase:
    """What PC1 found.

    Attributes:
        parents: the remaining candidates.
        p_values: (N, N, tau_max + 1): the largest p-value of each link, 1 where there was no test.
        strengths: (N, N, tau_max + 1): the statistic with that p-value, 0 where there was no test.
        tests: the number of tests.
    """

    parents: Parents
    p_values: np.ndarray
    strengths: np.ndarray
    tests: int


def lagged_phase(
    test: LaggedTest,
    alpha: float,
    *,
    tau_min: int = 1,
    max_conds_dim: int = NO_LIMIT,
    max_combinations: int = 1,
) -> LaggedPhase:
    """Find a superset of the lagged parents of every variable at one significance level.

    Args:
        tau_min: the smallest lag of a candidate, at least 1.
        max_conds_dim: the largest number of conditions.
        max_combinations: how many sets of conditions a round tries for a candidate, in lexicographic order.
    """
    n, tau_max = test.series.n_variables, test.series.tau_max
    shape = (n, n, tau_max + 1)
    p_values, strengths, tests = np.full(shape, -1.0), np.zeros(shape), 0
    # The candidates of all variables, by variable; those of a variable are ordered by strength. `rank` is their order
    # at first, which decides between equal strengths.
    lags = np.arange(tau_min, tau_max + 1)
    rank = np.tile(np.arange(n * len(lags)), n)
    source, lag = np.divmod(rank, max(len(lags), 1))
    lag = lag + tau_min
    target = np.repeat(np.arange(n), n * len(lags))
    least = np.full(len(rank), np.inf)
    for size in range(max_conds_dim + 1):
        counts = np.bincount(target, minlength=n)
        starts = np.concatenate(([0], np.cumsum(counts)))
        active = counts[target] > size
        if not active.any():
            break
        place = np.arange(len(target)) - starts[target]  # the place among the candidates of its variable
        columns = lag * n + source
        removed = np.zeros(len(target), bool)
        for combination in range(min(max_combinations, math.comb(int(counts.max()) - 1, size))):
            positions, exists = _positions(counts, size, combination)
            tested = np.flatnonzero(active & ~removed & exists[target])
            if not len(tested):
                break
            chosen = positions[target[tested]]
            chosen += chosen >= place[tested, None]
            sets = columns[starts[target[tested], None] + chosen]
            at = source[tested], target[tested], lag[tested]
            outcomes = test.run(
                Batch(*(each.astype(np.int32) for each in (at[0], at[2], at[1])), sets.astype(np.int32))
            )
            tests += len(tested)
            least[tested] = np.minimum(least[tested], np.abs(outcomes.values))
            larger = outcomes.p_values > p_values[at]
            p_values[at] = np.where(larger, outcomes.p_values, p_values[at])
            strengths[at] = np.where(larger, outcomes.values, strengths[at])
            removed[tested] = ~(outcomes.p_values <= alpha)
        order = np.lexsort((rank, -least, target))
        order = order[~removed[order]]
        source, lag, target, rank, least = (each[order] for each in (source, lag, target, rank, least))
    counts = np.bincount(target, minlength=n)
    parents = Parents(np.concatenate(([0], np.cumsum(counts))), (lag * n + source).astype(np.int32))
    p_values[p_values < 0] = 1.0
    return LaggedPhase(parents, p_values, strengths, tests)


def _positions(counts: np.ndarray, size: int, combination: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the combination with this number, in lexicographic order, of `size` of the other candidates.

    Args:
        counts: (N,) numbers of candidates.

    Returns:
        (N, size) places among the others, and (N,) bool: whether there are so many combinations.
    """
    positions, exists = np.zeros((len(counts), size), np.int64), np.zeros(len(counts), bool)
    for count in np.unique(counts).tolist():
        if count > size and combination < math.comb(count - 1, size):
            these = counts == count
            positions[these] = nth_combination(count - 1, size, combination)
            exists[these] = True
    return positions, exists


def nth_combination(n: int, size: int, number: int) -> list[int]:
    """Return the members of a combination of 0 to n - 1 by its number in lexicographic order, from 0 on."""
    chosen = []
    for member in range(n):
        if len(chosen) == size:
            break
        beginning_here = math.comb(n - member - 1, size - len(chosen) - 1)
        if number < beginning_here:
            chosen.append(member)
        else:
            number -= beginning_here
    return chosen


def chosen_by_score(phases: Sequence[LaggedPhase], levels: Sequence[float], score: Score) -> tuple[LaggedPhase, list]:
    """Choose, for each variable, the phase whose parents have the least score; the first of several.

    Returns:
        The phase that is put together from these, and the level of each variable.
    """
    n = len(phases[0].p_values)
    scores = np.array([[score(j, phase.parents.of(j)) for j in range(n)] for phase in phases])
    best = scores.argmin(axis=0).tolist()
    lists = [phases[k].parents.of(j) for j, k in enumerate(best)]
    columns = np.array(list(itertools.chain.from_iterable(lists)), np.int32)
    starts = np.concatenate(([0], np.cumsum([len(each) for each in lists])))
    p_values, strengths = (
        np.stack([getattr(phases[k], name)[:, j] for j, k in enumerate(best)], axis=1)
        for name in ("p_values", "strengths")
    )
    tests = sum(phase.tests for phase in phases)
    return LaggedPhase(Parents(starts, columns), p_values, strengths, tests), [levels[k] for k in best]
