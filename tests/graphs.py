"""Graphs for tests, and comparisons of skeletons."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
from hypothesis import strategies as st

from gpupc_impl import SeparatingSets, Skeleton
from gpupc_impl.core.pairs import connect


def edges_to_adjacency(edges: Sequence[Sequence[int]] | np.ndarray, n_variables: int) -> np.ndarray:
    """The (p, p) bool adjacency matrix with (k, 2) edges."""
    adjacency = np.zeros((n_variables, n_variables), dtype=bool)
    connect(adjacency, np.asarray(edges).reshape(-1, 2))
    return adjacency


def random_dag(p: int, density: float, rng: np.random.Generator) -> np.ndarray:
    """(p, p) bool in a random order of the variables."""
    order = rng.permutation(p)
    return np.triu(rng.random((p, p)) < density, 1)[np.ix_(order, order)]


def causallearn_cpdag(dag: np.ndarray) -> Any:
    """The CPDAG of a DAG by causal-learn."""
    from causallearn.graph.Dag import Dag
    from causallearn.graph.GraphNode import GraphNode
    from causallearn.utils.DAG2CPDAG import dag2cpdag

    nodes = [GraphNode(f"V{k}") for k in range(len(dag))]
    graph = Dag(nodes)
    for i, j in np.argwhere(dag):
        graph.add_directed_edge(nodes[i], nodes[j])
    return dag2cpdag(graph)


def linear_samples(
    p: int, m: int = 100, density: float = 0.3, seed: int | np.random.Generator = 0, least: float = 0.3
) -> np.ndarray:
    """(m, p) samples of a linear model on a random DAG with weights from `least` to 1 (cuPC, section 5.6)."""
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.random((p, p)) < density, -1) * rng.uniform(least, 1, (p, p))
    return np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T


def chain(m: int, p: int) -> np.ndarray:
    """(m, p) samples in which each variable is the one before it and noise."""
    values = np.random.default_rng(0).normal(size=(m, p))
    values[:, 1:] += values[:, :-1]
    return values


def collider_chain(m: int) -> pandas.DataFrame:
    """Samples of a -> c <- b, c -> d."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, m))
    c = a + b + rng.normal(size=m)
    return pandas.DataFrame({"a": a, "b": b, "c": c, "d": c + rng.normal(size=m)})


def make_skeleton(
    p: int,
    edges: Iterable[Sequence[int]],
    sepsets: Mapping[tuple[int, int], Iterable[int]] | None = None,
    names: Sequence[str] | None = None,
    **fields: Any,
) -> Skeleton:
    """A skeleton with the given separating sets and fields; pairs without a set have the empty one."""
    adjacency = edges_to_adjacency(list(edges), p)
    levels: dict[int, tuple[list, list]] = {}
    for pair, members in (sepsets or {}).items():
        if len(members):
            pairs, sets = levels.setdefault(len(members), ([], []))
            pairs.append(sorted(pair))
            sets.append(sorted(members))
    sets = SeparatingSets.from_levels(adjacency, levels.values())
    made = Skeleton(adjacency, sets, tuple(names or (f"V{k}" for k in range(p))), (), (), (), 0, "complete")
    return dataclasses.replace(made, **fields)


def plain_pc_stable(problem: Any, test: Callable[[int, int, tuple[int, ...]], tuple[float, bool]]):
    """PC-stable as Algorithm 1 of cuPC and of gpuPC reads: adjacency, separating sets, tests of each level, and largest
    p-values.

    Args:
        test: gives the p-value of two variables given a set, and whether the set separates them.
    """
    p, last = problem.n_variables, problem.n_variables if problem.max_level is None else problem.max_level
    graph = ~np.eye(p, dtype=bool)
    sets, tests, pmax, level = {}, [], np.full((p, p), np.nan), 0
    while graph.sum(axis=1).max() > level and level <= last and problem.obstacle(level) is None:
        before = graph.copy()
        tests.append(0)
        for i, j in np.argwhere(np.triu(before)).tolist():
            sides = [[v for v in np.flatnonzero(before[end]).tolist() if v not in (i, j)] for end in (i, j)]
            subsets = itertools.chain(*(itertools.combinations(s, level) for s in (sides if level else sides[:1])))
            for members in subsets:
                tests[-1] += 1
                p_value, separates = test(i, j, members)
                pmax[i, j] = pmax[j, i] = np.fmax(pmax[i, j], p_value)
                if separates:
                    graph[i, j] = graph[j, i] = False
                    sets[i, j] = members
                    break
        level += 1
    return graph, sets, tuple(tests), pmax


@st.composite
def skeletons(draw):
    """Random graphs with random sets; few colliders leave the rules much to say, many contradict each other."""
    p, density, collider = draw(st.integers(2, 9)), draw(st.floats(0.2, 0.9)), draw(st.sampled_from([0.1, 0.3, 0.8]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    adjacency = edges_to_adjacency([pair for pair in itertools.combinations(range(p), 2) if rng.random() < density], p)
    sepsets = {
        (i, j): [int(k) for k in np.flatnonzero(adjacency[i] & adjacency[j]) if rng.random() > collider]
        for i, j in itertools.combinations(range(p), 2)
        if not adjacency[i, j]
    }
    return make_skeleton(p, np.argwhere(np.triu(adjacency)).tolist(), sepsets)


def assert_same(found: Skeleton, expected: Skeleton) -> None:
    """Two answers have the same edges, sets, levels and largest p-values, if these were recorded."""
    np.testing.assert_array_equal(found.adjacency, expected.adjacency)
    assert found.sepsets == expected.sepsets
    assert found.edges_per_level == expected.edges_per_level
    assert found.stopped_because == expected.stopped_because
    np.testing.assert_array_equal(found.pmax, expected.pmax)


def assert_well_formed(found: Skeleton, p: int) -> None:
    """What holds for any result: types, shapes, symmetry, and counts that fit together."""
    assert found.adjacency.shape == (p, p)
    assert found.adjacency.dtype == bool
    assert np.array_equal(found.adjacency, found.adjacency.T)
    assert not found.adjacency.diagonal().any()
    assert len(found.names) == p
    counts = (found.tests_per_level, found.edges_per_level, found.seconds_per_level)
    assert [len(count) for count in counts] == [found.levels_run] * 3
    assert all(tests > 0 for tests in found.tests_per_level)
    assert found.tests_per_level[:1] in ((), (p * (p - 1) // 2,))
    edges = (p * (p - 1) // 2, *found.edges_per_level)
    assert list(edges) == sorted(edges, reverse=True)
    assert edges[-1] == found.n_edges
    assert found.stopped_because
    assert_sets_from_neighbours(found, edges)


def assert_sets_from_neighbours(found: Skeleton, edges: tuple[int, ...]) -> None:
    """Each separating set has its level's size and lies among one endpoint's neighbours when the level began."""
    sets = found.sepsets
    p = len(found.names)
    graph = ~np.eye(p, dtype=bool)
    for level in range(found.levels_run):
        removed = [pair for pair in sets if graph[pair] and len(sets[pair]) == level]
        for i, j in removed:
            members = list(sets[i, j])
            assert members == sorted(set(members) - {i, j})
            assert graph[i, members].all() or graph[j, members].all()
        assert len(removed) == edges[level] - edges[level + 1]
        for i, j in removed:
            graph[i, j] = graph[j, i] = False
    assert np.array_equal(graph, found.adjacency)
