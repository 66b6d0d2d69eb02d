"""MCI, the second phase of PCMCI (Runge et al. 2019, Algorithm S3): momentary conditional independence tests."""

from __future__ import annotations

import numpy as np

from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents
from gpupc_impl.time_series.parameters import Parameters


def mci(test: LaggedTest, parents: Parents, tau_min: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Test every link given the parents of both ends, with those of the source moved by its lag.

    Returns:
        (N, N, tau_max + 1) p-values, 1 where there is no test, and statistics, 0 where there is none; and the number of
        tests.
    """
    n, tau_max = test.series.n_variables, test.series.tau_max
    wanted = np.zeros((n, n, tau_max + 1), bool)
    wanted[:, :, tau_min:] = True
    wanted[np.arange(n), np.arange(n), 0] = False
    # The two tests of a contemporaneous pair are one if both ends contribute all their parents.
    is_symmetric = parents.most_of_target == parents.most_of_source and test.series.treats_ends_alike
    if is_symmetric:
        wanted[:, :, 0] = np.tril(wanted[:, :, 0])
    # Tests of a source and a lag follow each other, since they read the same correlations of its parents.
    source, lag, target = (each.astype(np.int32) for each in np.nonzero(wanted.transpose(0, 2, 1)))
    at = source, target, lag
    outcomes = test.run(Batch(source, lag, target, np.empty((len(source), 0), np.int32)), parents)
    p_values, strengths = np.ones(wanted.shape), np.zeros(wanted.shape)
    p_values[at], strengths[at] = outcomes.p_values, outcomes.values
    if is_symmetric:
        upper = np.triu_indices(n, 1)
        for matrix in (p_values, strengths):
            matrix[:, :, 0][upper] = matrix[:, :, 0].T[upper]
    return p_values, strengths, len(source)


def symmetrized(p_values: np.ndarray, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return copies in which both entries of a contemporaneous pair are those with the larger p-value.

    Of equal p-values, that of the smaller source counts.
    """
    p_values, strengths = p_values.copy(), strengths.copy()
    p, s = p_values[:, :, 0], strengths[:, :, 0]
    takes_other = np.where(np.tri(len(p), k=-1, dtype=bool), p <= p.T, p < p.T)
    p[...], s[...] = np.where(takes_other, p.T, p), np.where(takes_other, s.T, s)
    return p_values, strengths


def links(significant: np.ndarray) -> np.ndarray:
    """Return the marks of the links of PCMCI, (N, N, tau_max + 1): ``"-->"``, ``"o-o"``, ``"<--"`` and ``""``."""
    graph = np.full(significant.shape, "", "<U3")
    graph[:, :, 1:][significant[:, :, 1:]] = "-->"
    now, forward, backward = graph[:, :, 0], significant[:, :, 0], significant[:, :, 0].T
    now[forward & backward] = "o-o"
    now[forward & ~backward] = "-->"
    now[backward & ~forward] = "<--"
    return graph


def corrected(p_values: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return p-values, those of lagged links corrected for their number if that is requested."""
    if parameters.correction == "none":
        return p_values
    import scipy.stats

    p_values = p_values.copy()
    lagged = p_values[:, :, max(1, parameters.tau_min) :]
    lagged[...] = scipy.stats.false_discovery_control(lagged.ravel(), method="bh").reshape(lagged.shape)
    return p_values
