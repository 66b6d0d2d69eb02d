"""Generates time series with lagged and contemporaneous linear links."""

import itertools

import numpy as np

from datasets.dataset import Dataset
from datasets.generate import check_number, check_whole, generated

WARM_UP = 200  # the steps before the first that is kept


def linear_series(p: int, n: int, tau_max: int, links: float, seed: int) -> Dataset:
    """Generate a stationary series: V_j(t) = a_j V_j(t - 1) + sum of c V_i(t - lag) + N, with N standard normal.

    Links between variables, on average `links` to each, follow a random order of these, so that the system is stable.
    a_j is uniform in [0.2, 0.6], the magnitude of c in [0.2, 0.4] with either sign, and the lag in 0, ..., `tau_max`.
    """
    check_whole(1, p=p, n=n, tau_max=tau_max)
    check_whole(0, seed=seed)
    check_number(0, p, links=links)
    rng = np.random.Generator(np.random.PCG64(seed))
    series = np.empty((p, n + WARM_UP))
    order = rng.permutation(p)
    for at, j in enumerate(order):
        row = rng.standard_normal(n + WARM_UP)
        for i in rng.choice(order[:at], min(rng.poisson(links), at), replace=False):
            lag = int(rng.integers(0, tau_max + 1))
            row[lag:] += rng.choice((-1, 1)) * rng.uniform(0.2, 0.4) * series[i, : n + WARM_UP - lag]
        memory = rng.uniform(0.2, 0.6)
        series[j] = list(itertools.accumulate(row.tolist(), lambda before, value, a=memory: a * before + value))
    source = f"linear series, {p=}, {n=}, {tau_max=}, {links=}, {seed=}"
    return generated("time_series", np.ascontiguousarray(series[:, WARM_UP:].T), source)
