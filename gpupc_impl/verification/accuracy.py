"""How far a result is from the true graph, where it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpupc_impl.core.orientation import CPDAG, equivalence_class
from gpupc_impl.core.result import Skeleton


def dag_of_edges(edges: Iterable[Sequence[int]], p: int) -> np.ndarray:
    """(p, p) bool, [i, j] for i -> j, from pairs [i, j]."""
    dag = np.zeros((p, p), bool)
    pairs = np.array(list(edges), np.int64).reshape(-1, 2)
    dag[pairs[:, 0], pairs[:, 1]] = True
    return dag


def skeleton_differences(skeleton: Skeleton, dag: np.ndarray) -> tuple[int, int]:
    """How many edges of the true skeleton are missing, and how many edges were found that it does not have.

    Their sum is the structural Hamming distance of the two skeletons. A DAG and its CPDAG have the same skeleton.
    """
    true = dag | dag.T
    missing, extra = true & ~skeleton.adjacency, skeleton.adjacency & ~true
    return int(np.count_nonzero(missing)) // 2, int(np.count_nonzero(extra)) // 2


def structural_hamming_distance(cpdag: CPDAG, dag: np.ndarray) -> int:
    """The number of pairs of variables on which a CPDAG and the true one disagree, in an edge or its direction.

    The definition of Tsamardinos et al. (2006): edges to add or remove, and directions to add, remove or reverse, each
    counted once. Conflicts count as undirected edges.
    """
    directed, undirected = equivalence_class(dag)
    differs = (cpdag.directed != directed) | (cpdag.undirected != undirected)
    return int(np.count_nonzero(np.triu(differs | differs.T)))
