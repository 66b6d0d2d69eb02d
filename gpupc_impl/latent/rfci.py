"""RFCI's tests of edges (Colombo, Maathuis, Kalisch and Richardson 2012, Learning high-dimensional directed acyclic
graphs with latent and selection variables, section 3), in rounds. A round makes all tests on one graph, then removes
all edges found independent. In the paper each removal changes later tests (docs/design/latent.md)."""

import numpy as np

from gpupc_impl.core.pairs import find
from gpupc_impl.latent.mixed_graph import MixedGraph
from gpupc_impl.latent.paths import DiscriminatingPaths
from gpupc_impl.latent.separations import Questions, Separations


class EdgeTests:
    """Tests of edges given subsets of the separating sets of other pairs; none is made twice."""

    def __init__(self, separations: Separations):
        self._separations, self._triples = separations, np.empty(0, np.int64)
        self._path_edges: set[tuple[int, ...]] = set()

    def prune_triples(self, graph: MixedGraph) -> MixedGraph:
        """Test the edges of unshielded triples until all are dependent (section 3, Algorithm 3.2 without the
        orientations): those of x, y, z given the separating set of x and z without y."""
        p = graph.n_variables
        while True:
            keys = graph.unshielded @ [p * p, p, 1]
            _, tested = find(self._triples, keys)
            x, y, z = graph.unshielded[~tested].T
            self._triples = np.sort(np.concatenate([self._triples, keys[~tested]]))
            sets = self._separations.of(np.stack([x, z], axis=1)).allowed(None, but=y)
            both = np.concatenate([np.stack([x, y], axis=1), np.stack([z, y], axis=1)])
            starts = np.concatenate([sets.starts, sets.starts[-1] + sets.starts[1:]])
            questions = Questions(both, starts, np.concatenate([sets.candidates, sets.candidates]))
            removed = self._separations.search(questions.where(self._separated(questions)))
            if not len(removed):
                return graph
            graph = graph.without(removed)

    def prune_paths(self, paths: list[DiscriminatingPaths]) -> np.ndarray:
        """Test the edges of discriminating paths given all subsets of the separating sets of the paths' ends (Lemma
        3.2); returns the (k, 2) edges that were found independent, whose sets are recorded."""
        rows = {(path.t, path.c, *edge) for path in paths for edge in path.edges} - self._path_edges
        self._path_edges |= rows
        listed = np.array(sorted(rows), np.int64).reshape(-1, 4)
        sets = self._separations.of(listed[:, :2])
        return self._separations.search(Questions(listed[:, 2:], sets.starts, sets.candidates))

    def _separated(self, questions: Questions) -> np.ndarray:
        """Return which of the whole lists separate their pairs."""
        tests, problem = self._separations.tests, self._separations.problem
        allowed = questions.allowed(problem.tiers)
        sizes = np.diff(allowed.starts)
        possible = (sizes == np.diff(questions.starts)) & (sizes > 0)  # No edge is independent given the empty set.
        result = np.zeros(len(questions.pairs), bool)
        for size in np.unique(sizes[possible]).tolist():
            if problem.obstacle(size) is None:
                some = possible & (sizes == size)
                subsets = allowed.where(some).subsets(size)
                result[some] = np.isfinite(tests.dependences(subsets, 0, subsets.total))
        return result
