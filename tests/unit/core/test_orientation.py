"""Orientation: against the true CPDAG, against causal-learn, against the rules read word by word."""

import itertools
import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import CPDAG, Skeleton, orient
from gpupc_impl.core import colliders
from gpupc_impl.core.result import InvalidSkeleton
from tests.graphs import causallearn_cpdag, make_skeleton, random_dag, skeletons


def arrows(cpdag):
    return set(map(tuple, np.argwhere(cpdag.directed).tolist()))


def oracle_skeleton(dag):
    """The skeleton and d-separating sets that tests without error find."""
    p = dag.number_of_nodes()
    sepsets = {}
    for pair in itertools.combinations(range(p), 2):
        if not (dag.has_edge(*pair) or dag.has_edge(*pair[::-1])):
            sepsets[pair] = nx.find_minimal_d_separator(dag, {pair[0]}, {pair[1]})
            assert nx.is_d_separator(dag, {pair[0]}, {pair[1]}, sepsets[pair])
    return make_skeleton(p, dag.edges, sepsets)


@pytest.mark.parametrize(("p", "degree"), [(10, 2), (10, 6), (20, 3), (20, 8), (30, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_oracle_gives_the_cpdag_of_causallearn(p, degree, seed):
    dag = random_dag(p, degree / (p - 1), np.random.default_rng(seed))
    cpdag = orient(oracle_skeleton(nx.from_numpy_array(dag, create_using=nx.DiGraph)))
    ends = causallearn_cpdag(dag).graph
    assert np.array_equal(cpdag.directed, (ends == -1) & (ends.T == 1))
    assert not (cpdag.directed & ~dag).any()
    assert len(cpdag.conflicts) == 0
    assert not cpdag.has_directed_cycle


def orient_word_by_word(skeleton):
    """The documented rules, each read over all variables: directed arrows and conflicts."""
    p, adjacency = len(skeleton.names), skeleton.adjacency
    triples = list(itertools.permutations(range(p), 3))
    directed, conflicts = set(), set()

    def undirected(i, j):
        return adjacency[i, j] and not {(i, j), (j, i)} & (directed | conflicts)

    def state(asked):
        both = {(i, j) for i, j in asked if (j, i) in asked}
        conflicts.update(both)
        directed.update(asked - both)

    asked = set()
    for i, k, j in triples:
        if adjacency[i, k] and adjacency[k, j] and not adjacency[i, j] and k not in skeleton.sepsets[i, j]:
            asked |= {(i, k), (j, k)}
    state(asked)

    def rule_1():
        return {(b, c) for a, b, c in triples if (a, b) in directed and undirected(b, c) and not adjacency[a, c]}

    def rule_2():
        return {(a, c) for a, b, c in triples if {(a, b), (b, c)} <= directed and undirected(a, c)}

    def rule_3():
        return {
            (a, b)
            for a, b, c, d in itertools.permutations(range(p), 4)
            if {(c, b), (d, b)} <= directed and not adjacency[c, d] and all(undirected(a, x) for x in (b, c, d))
        }

    before = None
    while before != (before := (len(directed), len(conflicts))):
        for rule in (rule_1, rule_2, rule_3):
            state(rule())
    return directed, {(i, j) for i, j in conflicts if i < j}


@given(skeletons())
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_agrees_with_the_rules_read_word_by_word(skeleton):
    cpdag = orient(skeleton)
    directed, conflicts = orient_word_by_word(skeleton)
    assert arrows(cpdag) == directed
    assert list(map(tuple, cpdag.conflicts.tolist())) == sorted(conflicts)
    assert np.array_equal(cpdag.directed | cpdag.directed.T | cpdag.undirected, skeleton.adjacency)
    assert not ((cpdag.directed | cpdag.directed.T) & cpdag.undirected).any()
    assert np.array_equal(cpdag.undirected, cpdag.undirected.T)


@given(skeletons(), st.randoms(use_true_random=False))
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_does_not_depend_on_the_order_of_the_variables(skeleton, random):
    p = len(skeleton.names)
    place = list(range(p))
    random.shuffle(place)
    shuffled = make_skeleton(
        p,
        [(place[i], place[j]) for i, j in skeleton.edges],
        {tuple(sorted((place[i], place[j]))): [place[k] for k in s] for (i, j), s in skeleton.sepsets.items()},
    )
    here, there = orient(skeleton), orient(shuffled)
    assert np.array_equal(here.directed, there.directed[np.ix_(place, place)])
    assert np.array_equal(here.undirected, there.undirected[np.ix_(place, place)])
    assert len(here.conflicts) == len(there.conflicts)


def test_v_structures_without_a_conflict_can_still_make_a_cycle():
    # A triangle 0, 1, 2 whose corners are colliders with one outer neighbour each.
    edges = [(0, 1), (1, 2), (0, 2), (3, 1), (4, 2), (5, 0)]
    sepsets = {(2, 3): [1], (0, 4): [2], (1, 5): [0]}
    cpdag = orient(make_skeleton(6, edges, sepsets))
    assert len(cpdag.conflicts) == 0
    assert {(0, 1), (1, 2), (2, 0)} <= arrows(cpdag)
    assert cpdag.has_directed_cycle


def test_a_row_split_into_pieces_gives_the_same(monkeypatch):
    skeleton = make_skeleton(30, [(0, k) for k in range(1, 30)], {(3, 9): [0]})
    whole = orient(skeleton)
    monkeypatch.setattr(colliders, "MAX_TRIPLES", 40)
    assert orient(skeleton) == whole
    assert whole.n_directed == 29


def test_a_long_chain_of_rule_1_takes_seconds():
    p = 3000
    chain = [(k, k + 1) for k in range(1, p - 1)]
    sepsets = {(k, k + 2): [k + 1] for k in range(1, p - 2)} | {(0, 3): [2], (1, p - 1): [2]}
    start = time.perf_counter()
    cpdag = orient(make_skeleton(p, [(0, 2), *chain], sepsets))
    assert time.perf_counter() - start < 20
    assert cpdag.n_undirected == 0


@pytest.fixture
def mixed():
    """a -> c <- b, c -> d; e - f; g - h in conflict, between i and j."""
    names = tuple("abcdefghij")
    edges = [(0, 2), (1, 2), (2, 3), (4, 5), (6, 7), (6, 8), (7, 9)]
    return orient(make_skeleton(10, edges, {(0, 3): [2], (1, 3): [2]}, names))


ROWS = [*((*pair, "directed") for pair in ("ac", "bc", "cd")), ("e", "f", "undirected"), ("g", "h", "conflict")]
ROWS += [("i", "g", "directed"), ("j", "h", "directed")]


def test_frame(mixed):
    frame = mixed.to_frame()
    assert list(frame.columns) == ["source", "target", "kind"]
    assert list(frame.itertuples(index=False, name=None)) == ROWS
    assert (mixed.n_directed, mixed.n_undirected, len(mixed.conflicts)) == (5, 2, 1)
    assert "5 directed and 2 undirected" in repr(mixed)


def test_networkx_has_two_arcs_for_an_undirected_edge(mixed):
    graph = mixed.to_networkx()
    assert tuple(graph) == mixed.names
    assert set(graph.edges) == {(s, t) for s, t, _ in ROWS} | {(t, s) for s, t, kind in ROWS if kind != "directed"}
    assert graph.edges["f", "e"]["kind"] == "undirected"


def test_npz_round_trip_and_reading_its_skeleton(mixed, tmp_path):
    path = tmp_path / "graph.npz"
    mixed.save(path)
    loaded = CPDAG.load(path)
    assert loaded == mixed
    assert loaded.names == mixed.names
    assert np.array_equal(loaded.conflicts, mixed.conflicts)
    assert loaded.skeleton == mixed.skeleton
    assert Skeleton.load(path) == mixed.skeleton
    with np.load(path) as stored:
        assert {"adjacency", "names", "directed", "undirected", "conflicts", "sepset_members"} <= set(stored)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("directed", lambda array: array | array.T, "two kinds or two directions"),
        ("directed", lambda array: array.astype(np.int64), "its directed is int64"),
        ("undirected", lambda array: np.triu(array), "undirected is not symmetric"),
        ("undirected", np.zeros_like, "other edges than the skeleton"),
        ("conflicts", lambda array: array + 1000, "conflicts has indexes that are in disorder or no variable"),
        ("ambiguous", lambda array: np.array([[2, 1, 0]]), "ambiguous has indexes that are in disorder"),
        ("conflict_kind", lambda array: np.array("<b>"), "conflict_kind is '<b>'"),
    ],
)
def test_directions_that_no_search_can_have_written_are_refused(mixed, tmp_path, name, change, message):
    assert len(mixed.conflicts)
    mixed.save(tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "graph.npz", **{**arrays, name: change(arrays[name])})
    with pytest.raises(InvalidSkeleton, match=rf"graph\.npz .*{message}.*; make it again"):
        CPDAG.load(tmp_path / "graph.npz")


def test_equality_is_of_labelled_directions(mixed):
    assert mixed == orient(mixed.skeleton)
    assert mixed != orient(make_skeleton(10, [(0, 2)]))
    assert mixed != "a graph"
