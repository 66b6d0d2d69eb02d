"""Graphs for tests."""

from collections.abc import Sequence

import numpy as np

from gpupc_impl.core.pairs import connect


def edges_to_adjacency(edges: Sequence[Sequence[int]] | np.ndarray, n_variables: int) -> np.ndarray:
    """The (p, p) bool adjacency matrix with (k, 2) edges."""
    adjacency = np.zeros((n_variables, n_variables), dtype=bool)
    connect(adjacency, np.asarray(edges).reshape(-1, 2))
    return adjacency
