"""What tests of method `distributed` share: samples, the answer of an in-core method, and a comparison."""

import numpy as np
import scipy.stats

from gpupc_impl import GaussianProblem, skeleton
from gpupc_impl.distributed.correlations import fixed_order_correlation, fixed_order_problem
from tests.graphs import linear_samples


def sample(seed, p: int, m: int, degree: float, copies: int = 0) -> np.ndarray:
    """(m, p) samples of a linear model of that mean degree; copies are columns near or equal to another.

    Args:
        seed: a number, or a generator.
    """
    rng = np.random.default_rng(seed)
    data = linear_samples(p, m, degree / p, rng, least=0.2)
    for noise in rng.choice([0.0, 1e-9, 1e-7, 1e-3], size=copies):
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * rng.standard_normal(m)
    return data[:, rng.permutation(p)]


def alpha_at(r, samples, level):
    """The significance level whose critical correlation is r."""
    return float(2 * scipy.stats.norm.sf(np.arctanh(abs(r)) * np.sqrt(samples - level - 3)))


def near_threshold(rng, x):
    """A significance level at which a correlation, or a partial correlation given one variable, is the critical one, or
    off it by very little."""
    m, p = x.shape
    level = int(rng.integers(2)) if p > 2 and m > 5 else 0
    i, j, *k = rng.choice(p, 2 + level, replace=False)
    c = fixed_order_correlation(x)
    r = c[i, j]
    if k:
        r = (r - c[i, k[0]] * c[j, k[0]]) / np.sqrt(max(1e-9, (1 - c[i, k[0]] ** 2) * (1 - c[j, k[0]] ** 2)))
    off_by = rng.choice([0.0, 1e-16, 1e-15, 1e-14, 1e-12, 1e-9, 1e-7]) * rng.choice([-1, 1])
    return alpha_at(np.clip(abs(r) + off_by, 0.01, 0.9), m, level)


def in_core(data, alpha, knowledge=None, **options):
    problem = fixed_order_problem(data, alpha=alpha, **options)
    return skeleton(problem, method="pair-scan", backend="host", knowledge=knowledge)


def search(data, alpha=0.05, **options):
    """The answer of method `distributed` on this machine; a problem has an alpha of its own."""
    options |= {} if isinstance(data, GaussianProblem) else {"alpha": alpha, "transpose": False}
    return skeleton(data, method="distributed", backend="host", **options)


def assert_same(result, expected):
    assert np.array_equal(result.adjacency, expected.adjacency)
    assert result.sepsets == expected.sepsets
    assert result.edges_per_level == expected.edges_per_level
    assert result.stopped_because == expected.stopped_because
