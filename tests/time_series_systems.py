"""Random linear systems of time series for tests."""

import numpy as np

LONGEST = 40.0
"""A system whose values grow beyond this is drawn again."""


def random_series(seed: int, n: int, tau_max: int, steps: int) -> np.ndarray:
    """Return (steps, n) values of a stable linear system with Gaussian noise, autocorrelation, lagged and
    contemporaneous links; the columns are in no causal order."""
    rng = np.random.default_rng(seed)
    while True:
        lagged = np.where(rng.random((tau_max, n, n)) < 1.2 / (n * tau_max), rng.uniform(-0.6, 0.6, (tau_max, n, n)), 0)
        lagged[0, np.arange(n), np.arange(n)] = rng.uniform(0.1, 0.7, n)
        now = np.triu(rng.random((n, n)) < 1.5 / n, 1) * rng.uniform(0.2, 0.7, (n, n))
        mixed = np.linalg.inv(np.eye(n) - now.T)
        values = rng.normal(size=(steps + 100, n))
        for t in range(tau_max, len(values)):
            past = sum(lagged[lag].T @ values[t - lag - 1] for lag in range(tau_max))
            values[t] = np.clip(mixed @ (values[t] + past), -1e6, 1e6)
        if np.abs(values).max() < LONGEST:
            return values[100:, rng.permutation(n)]
