"""Measures how far a result is from the true graph, if that is known."""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """The accuracy of a result, compared with the CPDAG of the true DAG.

    Attributes:
        shd: `structural_hamming_distance`; of a true network with cycles, which has no CPDAG, that of the skeletons.
        edge_precision, edge_recall: the share of the result's edges that the true skeleton has, and of the true ones
            that the result has; None without any of these.
        arrow_precision, arrow_recall: the same of arrows in the same direction; None also if the true network has
            cycles. An arrow on an edge that the true CPDAG leaves undirected is wrong.
    """

    shd: int
    edge_precision: float | None
    edge_recall: float | None
    arrow_precision: float | None
    arrow_recall: float | None


def accuracy(cpdag: CPDAG, network: np.ndarray) -> Accuracy:
    """Compare a CPDAG with that of the true network, (p, p) bool. Conflicts count as undirected edges."""
    found, true = cpdag.directed | cpdag.directed.T | cpdag.undirected, network | network.T
    edges = _shares(found, true)
    if has_cycle(network):
        return Accuracy(int(np.count_nonzero(found ^ true)) // 2, *edges, None, None)
    true_arrows, _ = equivalence_class(network)
    return Accuracy(structural_hamming_distance(cpdag, network), *edges, *_shares(cpdag.directed, true_arrows))


def has_cycle(network: np.ndarray) -> bool:
    """Return whether a (p, p) bool matrix of arcs, without loops, is cyclic; some networks of genes are."""
    from scipy.sparse.csgraph import connected_components

    return connected_components(network, connection="strong")[0] < len(network)


def _shares(found: np.ndarray, true: np.ndarray) -> tuple[float | None, float | None]:
    """Return the precision and recall of a matrix's entries."""
    right = int(np.count_nonzero(found & true))
    return (*(right / count if (count := int(np.count_nonzero(of))) else None for of in (found, true)),)


def with_arrows(skeleton: Skeleton, arrows: Iterable[Sequence[int]]) -> CPDAG:
    """Return a CPDAG whose directions another program determined, as pairs [i, j] for i -> j; the other edges are
    undirected. ValueError is raised for an arrow on a pair that has no edge in the skeleton."""
    directed = dag_of_edges(arrows, len(skeleton.names))
    if (directed & ~skeleton.adjacency).any():
        i, j = np.argwhere(directed & ~skeleton.adjacency)[0]
        raise ValueError(f"{skeleton.names[i]} -> {skeleton.names[j]} is an arrow, and the skeleton has no such edge")
    undirected = skeleton.adjacency & ~(directed | directed.T)
    return CPDAG(directed, undirected, np.empty((0, 2), np.int64), skeleton)


def structural_hamming_distance(cpdag: CPDAG, dag: np.ndarray) -> int:
    """Count the pairs of variables on which a CPDAG and the true one disagree, in an edge or its direction.

    This is the structural Hamming distance of Tsamardinos et al. (2006), which counts edges to add or remove and
    directions to add, remove or reverse, each once. Conflicts count as undirected edges.
    """
    directed, undirected = equivalence_class(dag)
    differs = (cpdag.directed != directed) | (cpdag.undirected != undirected)
    return int(np.count_nonzero(np.triu(differs | differs.T)))
