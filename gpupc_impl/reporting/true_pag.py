"""The true PAG of a known graph with hidden variables, without FCI's searches, which take hours for dense PAGs."""

import numpy as np

from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.latent.inference import orient
from gpupc_impl.latent.mixed_graph import MixedGraph
from gpupc_impl.latent.oracle import IndependenceOracle
from gpupc_impl.latent.separations import Separations


def true_pag(oracle: IndependenceOracle) -> MixedGraph:
    """Return the graph with the marks that FCI finds with this oracle."""
    skeleton = skeleton_of_pag(oracle)
    separations = Separations(skeleton, oracle.tests(), oracle, as_found=True)
    graph = MixedGraph(oracle.n_variables, skeleton.edges, skeleton.sepsets.gaps)
    orient(graph, separations)
    return graph


def skeleton_of_pag(oracle: IndependenceOracle) -> Skeleton:
    """Return the skeleton of the true PAG: if any set of observed variables separates a pair, then the observed
    ancestors of its ends do (Richardson and Spirtes, 2002)."""
    p, ancestors = oracle.n_variables, oracle.ancestral()
    pairs = np.stack(np.triu_indices(p, 1), axis=1)
    given = (ancestors[:, pairs[:, 0]] | ancestors[:, pairs[:, 1]]).T
    np.put_along_axis(given, pairs, False, axis=1)
    sizes = given.sum(axis=1)
    adjacency, levels = ~np.eye(p, dtype=bool), []
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        sets = np.nonzero(given[alike])[1].reshape(len(alike), size)
        separated = oracle.separated(pairs[alike], sets)
        levels += [(pairs[alike[separated]], sets[separated])] * (size > 0)
        adjacency[tuple(pairs[alike[separated]].T)] = False
    adjacency &= adjacency.T
    sets, of_levels = SeparatingSets.from_levels(adjacency, levels), ((), (), ())  # no level was searched
    why = "ancestors separate every pair that any set separates"
    return Skeleton(adjacency, sets, oracle.names, *of_levels, levels_run=0, stopped_because=why)
