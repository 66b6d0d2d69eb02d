"""How far a result is from the true graph, where it is known."""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A graph beside the CPDAG of the true DAG.

    Attributes:
        shd: `structural_hamming_distance`.
        edge_precision: of the edges found, the share that the true skeleton has; None where none was found.
        edge_recall: of the true skeleton's edges, the share that was found; None where it has none.
        arrow_precision: of the arrows found, the share that the true CPDAG has in that direction; None without any.
            An arrow on an edge that the truth leaves undirected is wrong.
        arrow_recall: of the true CPDAG's arrows, the share that was found; None where it has none.
    """

    shd: int
    edge_precision: float | None
    edge_recall: float | None
    arrow_precision: float | None
    arrow_recall: float | None


def accuracy(cpdag: CPDAG, dag: np.ndarray) -> Accuracy:
    """How well a CPDAG tells the (p, p) bool true DAG's. Conflicts count as undirected edges."""
    true_arrows, _ = equivalence_class(dag)
    found = cpdag.directed | cpdag.directed.T | cpdag.undirected
    return Accuracy(
        structural_hamming_distance(cpdag, dag), *_shares(found, dag | dag.T), *_shares(cpdag.directed, true_arrows)
    )


def _shares(found: np.ndarray, true: np.ndarray) -> tuple[float | None, float | None]:
    """Precision and recall of a matrix's entries."""
    right = int(np.count_nonzero(found & true))
    return (*(right / count if (count := int(np.count_nonzero(of))) else None for of in (found, true)),)


def with_arrows(skeleton: Skeleton, arrows: Iterable[Sequence[int]]) -> CPDAG:
    """A skeleton that another program has directed, by the pairs [i, j] for i -> j; the other edges have no direction.

    Raises:
        ValueError: an arrow stands where the skeleton has no edge.
    """
    directed = dag_of_edges(arrows, len(skeleton.names))
    if (directed & ~skeleton.adjacency).any():
        i, j = np.argwhere(directed & ~skeleton.adjacency)[0]
        raise ValueError(f"{skeleton.names[i]} -> {skeleton.names[j]} is an arrow, and the skeleton has no such edge")
    undirected = skeleton.adjacency & ~(directed | directed.T)
    return CPDAG(directed, undirected, np.empty((0, 2), np.int64), skeleton)


def bootstrap_mean(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The mean of a sample, and the bounds between which the means of its resamples lie: the percentile bootstrap.

    The same numbers on every call (9,999 resamples of one seeded stream); of a single value the value.
    """
    if len(values) < 2:
        return (float(values[0]),) * 3
    from scipy.stats import bootstrap

    rng = np.random.Generator(np.random.PCG64(0))
    found = bootstrap((values,), np.mean, confidence_level=level, method="percentile", rng=rng).confidence_interval
    return float(np.mean(values)), float(found.low), float(found.high)


def structural_hamming_distance(cpdag: CPDAG, dag: np.ndarray) -> int:
    """The number of pairs of variables on which a CPDAG and the true one disagree, in an edge or its direction.

    The definition of Tsamardinos et al. (2006): edges to add or remove, and directions to add, remove or reverse, each
    counted once. Conflicts count as undirected edges.
    """
    directed, undirected = equivalence_class(dag)
    differs = (cpdag.directed != directed) | (cpdag.undirected != undirected)
    return int(np.count_nonzero(np.triu(differs | differs.T)))
