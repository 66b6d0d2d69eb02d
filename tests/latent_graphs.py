"""Random graphs with hidden variables."""

import itertools

import numpy as np

from gpupc_impl import IndependenceOracle


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


class SelectedOracle(IndependenceOracle):
    """An oracle whose last observed variables, which have no names, are conditions of all its answers: they decide
    which samples are in the data."""

    @classmethod
    def of(cls, graph, hidden, selected):
        """Make the oracle of a graph whose last variables are hidden, and those before them selected."""
        whole = IndependenceOracle.from_graph(graph, hidden=range(len(graph) - hidden, len(graph)))
        names = whole.names[: len(whole.names) - selected]
        return cls(graph=whole.graph, observed=whole.observed, names=names, alpha=0.5, max_level=None)

    def separated(self, pairs, sets):
        selection = np.arange(len(self.names), len(self.observed))
        return super().separated(pairs, np.concatenate([sets, np.tile(selection, (len(pairs), 1))], axis=1))

    def ancestral(self):
        """Which variables are ancestors of which, or of selection."""
        ancestors, p = super().ancestral(), len(self.names)
        return ancestors[:p, :p] | ancestors[:p, p:].any(axis=1, keepdims=True)


class NoisyOracle(IndependenceOracle):
    """An oracle that errs as tests of samples do, always in the same way: every third independence is missed, and one
    of 100 is false."""

    def separated(self, pairs, sets):
        one, p = np.uint64(1), np.uint64(len(self.names))
        keys = (one << pairs.astype(np.uint64)).sum(axis=1) + ((one << sets.astype(np.uint64)).sum(axis=1) << p)
        chance = (keys * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(11)) / 2.0**53  # a hash
        return np.where(super().separated(pairs, sets), chance > 1 / 3, chance < 1 / 100)
