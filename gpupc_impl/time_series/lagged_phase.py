"""PC1, the lagged phase of PCMCI and PCMCI+ (Runge et al. 2019, Algorithm S1; Runge 2020, Algorithm 1).

For each variable Y, the lagged variables are candidates for parents. Round p tests each candidate given the p strongest
others, and removes it if the two are independent; candidates are then sorted by the least absolute value of their
statistic so far. A round makes the tests of all variables in one batch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents

Score = Callable[[int, list[int]], float]
"""The criterion of a variable and the columns of its parents; the least is best."""


@dataclasses.dataclass(frozen=True, eq=False)
class LaggedPhase:
    """What PC1 found.

    Attributes:
        parents: the remaining candidates.
        p_values, strengths: (N, N, tau_max + 1): of the test that removed a link; 1 and 0 where none did.
        tests: the number of tests.
    """

    parents: Parents
    p_values: np.ndarray
    strengths: np.ndarray
    tests: int


def lagged_phase(
    test: LaggedTest, alpha: float, tau_min: int, max_conds_dim: int, max_combinations: int
) -> LaggedPhase:
    """Find a superset of the lagged parents of every variable at one significance level.

    Args:
        tau_min: the smallest lag of a candidate, at least 1.
        max_conds_dim: the largest number of conditions.
        max_combinations: how many sets of conditions a round tries for a candidate, in lexicographic order.
    """
    n, tau_max = test.series.n_variables, test.series.tau_max
    shape = (n, n, tau_max + 1)
    p_values, strengths, tests = np.ones(shape), np.zeros(shape), 0
    # A row for each variable: its candidates as columns, by variable and lag, which is their order if equally strong.
    lags = np.arange(tau_min, tau_max + 1)
    every = (lags * n + np.arange(n)[:, None]).astype(np.int32).ravel()
    columns = np.tile(every, (n, 1))
    least, remain = np.full(columns.shape, np.inf), np.ones(columns.shape, bool)
    for size in itertools.count():
        order = np.argsort(np.where(remain, -least, np.inf), axis=1, kind="stable")
        candidates, counts = np.take_along_axis(columns, order, axis=1), remain.sum(axis=1)
        if size > max_conds_dim or counts.max() <= size:
            break
        own = np.empty(order.shape, np.int32)
        np.put_along_axis(own, order, np.arange(order.shape[1], dtype=np.int32)[None], axis=1)
        sets = {count: itertools.combinations(range(count - 1), size) for count in np.unique(counts[counts > size])}
        for _ in range(max_combinations):
            places, exists = np.zeros((n, size), np.int32), np.zeros(n, bool)
            for count, of_count in sets.items():
                if (places_of_count := next(of_count, None)) is not None:
                    places[counts == count] = places_of_count
                    exists |= counts == count
            at = np.nonzero(remain & exists[:, None])
            if not len(at[0]):
                break
            target = at[0].astype(np.int32)
            lag, source = np.divmod(columns[at], np.int32(n))
            outcomes = test.run(Batch(source, lag, target, candidates, places, own[at]))
            tests += len(target)
            least[at] = np.minimum(least[at], np.abs(outcomes.values))
            gone = ~(outcomes.p_values <= alpha)
            remain[at[0][gone], at[1][gone]] = False
            link = source[gone], target[gone], lag[gone]
            p_values[link], strengths[link] = outcomes.p_values[gone], outcomes.values[gone]
        kept = np.argsort(~remain, axis=1, kind="stable")[:, : int(remain.sum(axis=1).max())]
        columns, least, remain = (np.take_along_axis(each, kept, axis=1) for each in (columns, least, remain))
    is_parent = np.arange(candidates.shape[1]) < counts[:, None]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return LaggedPhase(Parents(starts, candidates[is_parent]), p_values, strengths, tests)


def chosen_by_score(phases: Sequence[LaggedPhase], score: Score) -> tuple[Parents, list[int]]:
    """Choose, for each variable, the parents with the least score; return them and the phase that each is from."""
    n = len(phases[0].p_values)
    scores = np.array([[score(j, phase.parents.of(j)) for j in range(n)] for phase in phases])
    best = scores.argmin(axis=0).tolist()  # the first of equal ones
    return Parents.from_lists([phases[k].parents.of(j) for j, k in enumerate(best)]), best
