"""Random graphs with hidden variables."""

import itertools

import numpy as np


def confounded(seed):
    """A graph of 6 to 9 observed variables and 5 to 10 hidden causes of two of them each, and their number."""
    rng = np.random.default_rng(seed)
    p, hidden = int(rng.integers(6, 10)), int(rng.integers(5, 11))
    graph, order = np.zeros((p + hidden, p + hidden), bool), rng.permutation(p)
    for a, b in itertools.combinations(order.tolist(), 2):
        graph[a, b] = rng.random() < 1.6 / (p - 1)
    for k in range(hidden):
        graph[p + k, rng.choice(p, 2, replace=False)] = True
    return graph, p
