"""Measures how far a result is from the true graph, if that is known."""

from collections.abc import Iterable, Sequence

import numpy as np

from gpupc_impl.core.orientation import CPDAG, equivalence_class
from gpupc_impl.core.result import Skeleton


def dag_of_edges(edges: Iterable[Sequence[int]], p: int) -> np.ndarray:
    """Return a DAG as a (p, p) bool matrix, [i, j] for i -> j, from pairs [i, j]."""
    dag = np.zeros((p, p), bool)
    pairs = np.array(list(edges), np.int64).reshape(-1, 2)
    dag[pairs[:, 0], pairs[:, 1]] = True
    return dag


def skeleton_differences(skeleton: Skeleton, dag: np.ndarray) -> tuple[int, int]:
    """Count the edges of the true skeleton that are missing, and the edges of the result that the true skeleton lacks;
    together they are the structural Hamming distance of the skeletons."""
    true = dag | dag.T
    missing, extra = true & ~skeleton.adjacency, skeleton.adjacency & ~true
    return int(np.count_nonzero(missing)) // 2, int(np.count_nonzero(extra)) // 2


def with_arrows(skeleton: Skeleton, arrows: Iterable[Sequence[int]]) -> CPDAG:
    """Return a CPDAG with another program's arrows [i, j]; ValueError is raised where the skeleton has no edge."""
    directed = dag_of_edges(arrows, len(skeleton.names))
    if (directed & ~skeleton.adjacency).any():
        i, j = np.argwhere(directed & ~skeleton.adjacency)[0]
        raise ValueError(f"{skeleton.names[i]} -> {skeleton.names[j]} is an arrow, and the skeleton has no such edge")
    undirected = skeleton.adjacency & ~(directed | directed.T)
    return CPDAG(directed, undirected, np.empty((0, 2), np.int64), skeleton)


def structural_hamming_distance(cpdag: CPDAG, network: np.ndarray) -> int:
    """Count the pairs of variables on which a CPDAG and that of the true network disagree, in an edge or its direction.

    This is the structural Hamming distance of Tsamardinos et al. (2006), which counts edges to add or remove and
    directions to add, remove or reverse, each once. Conflicts count as undirected edges. A network with cycles, such as
    some of genes, has no CPDAG, so that only edges are compared.
    """
    from scipy.sparse.csgraph import connected_components

    if connected_components(network, connection="strong")[0] < len(network):
        return sum(skeleton_differences(cpdag.skeleton, network))
    directed, undirected = equivalence_class(network)
    differs = (cpdag.directed != directed) | (cpdag.undirected != undirected)
    return int(np.count_nonzero(np.triu(differs | differs.T)))
