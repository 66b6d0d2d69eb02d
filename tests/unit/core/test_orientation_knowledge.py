"""Orientation with background knowledge, conflicts by choice, v-structures by votes: against brute force, against
extensions found by Dor and Tarsi's algorithm, against causal-learn."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import CPDAG, BackgroundKnowledge, GaussianProblem, IndependenceOracle, orient, pc, skeleton
from gpupc_impl.core import colliders, orientation
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import InvalidParameter, Method
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian.retest import Retest
from tests.graphs import linear_samples, make_skeleton, random_dag, skeletons


def arrows(matrix):
    return set(map(tuple, np.argwhere(matrix).tolist()))


def ancestors(dag):
    """(p, p) bool: [i, j] where a directed path leads from i to j, or i is j."""
    reach = dag | np.eye(len(dag), dtype=bool)
    for k in range(len(dag)):
        reach |= np.outer(reach[:, k], reach[k])
    return reach


def v_structures(dag, adjacency=None):
    """Of a DAG, or of the arrows of a partly directed graph."""
    adjacency = dag | dag.T if adjacency is None else adjacency
    return {
        (i, k, j)
        for k in range(len(dag))
        for i, j in itertools.combinations(np.flatnonzero(dag[:, k]).tolist(), 2)
        if not adjacency[i, j]
    }


def true_skeleton(dag):
    """The skeleton of a DAG, with the parents of the later of two variables as their separating set."""
    p, adjacency, before = len(dag), dag | dag.T, ancestors(dag)
    sets = {
        (i, j): np.flatnonzero(dag[:, i if before[j, i] else j]).tolist()
        for i, j in itertools.combinations(range(p), 2)
        if not adjacency[i, j]
    }
    return make_skeleton(p, np.argwhere(np.triu(adjacency)).tolist(), sets)


def true_knowledge(dag, rng, gaps=False):
    """True statements about a DAG, of every kind."""
    p, edges = len(dag), np.argwhere(dag)
    depth = ancestors(dag).sum(axis=0)
    chosen = [edges[rng.random(len(edges)) < share] for share in (0.1, 0.15, 0.15)]
    nowhere = np.argwhere(np.triu(~(dag | dag.T), 1))
    with_tier = rng.random(p) < 0.3
    early, late = (np.flatnonzero(with_tier & part) for part in (depth <= np.median(depth), depth > np.median(depth)))
    return BackgroundKnowledge(
        required_edges=chosen[0],
        required_directions=chosen[1],
        forbidden_directions=chosen[2][:, ::-1],
        forbidden_edges=nowhere[rng.random(len(nowhere)) < 0.2] if gaps else (),
        tiers=[early, late] if rng.random() < 0.5 else (),
    )


def known_arrows(dag, knowledge):
    """What the statements say of the DAG's own edges."""
    tier = {k: number for number, group in enumerate(knowledge.tiers) for k in group}
    return {
        (i, j)
        for i, j in arrows(dag)
        if (i, j) in knowledge.required_directions
        or (j, i) in knowledge.forbidden_directions
        or tier.get(i, np.inf) < tier.get(j, -np.inf)
    }


def shared_by_all_extensions(dag, known):
    """The arrows that all DAGs of the class share which agree with what is known, found among all orders."""
    adjacency, colliders_, shared = dag | dag.T, v_structures(dag), None
    for order in itertools.permutations(range(len(dag))):
        place = np.argsort(order)
        other = adjacency & (place[:, None] < place)
        if all(other[arrow] for arrow in known) and v_structures(other) == colliders_:
            shared = other if shared is None else shared & other
    return arrows(shared)


@given(st.integers(2, 5), st.floats(0.2, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_rules_are_complete(p, density, seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(p, density, rng)
    knowledge = true_knowledge(dag, rng)
    found = orient(true_skeleton(dag), knowledge=knowledge)
    assert arrows(found.directed) == shared_by_all_extensions(dag, known_arrows(dag, knowledge))
    assert len(found.conflicts) == 0


def test_rule_4():
    """d -> c -> b, a - b, a - c, a - d, and b and d not adjacent: a -> b, which rules 1 to 3 do not see."""
    a, b, c, d = range(4)
    dag = np.zeros((4, 4), bool)
    for arrow in ((d, c), (c, b), (a, b), (a, c), (a, d)):
        dag[arrow] = True
    found = orient(true_skeleton(dag), knowledge=BackgroundKnowledge(required_directions=[(d, c), (c, b)]))
    assert arrows(found.directed) == {(d, c), (c, b), (a, b)}


def causallearn_graph(found):
    """causal-learn's graph and nodes of a skeleton, and its separating sets."""
    from causallearn.graph.GraphClass import CausalGraph

    graph = CausalGraph(len(found.names))
    nodes = graph.G.nodes
    for i, j in itertools.combinations(range(len(nodes)), 2):
        if not found.adjacency[i, j]:
            graph.G.remove_edge(graph.G.get_edge(nodes[i], nodes[j]))
            graph.sepset[i, j] = graph.sepset[j, i] = [found.sepsets[i, j]]
    return graph, nodes


@given(st.integers(2, 8), st.floats(0.2, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_agrees_with_causallearn_but_for_rule_4(p, density, seed):
    """Its Meek has rules 1 to 3, which are not complete with knowledge."""
    from causallearn.graph.Edge import Edge
    from causallearn.graph.Endpoint import Endpoint
    from causallearn.utils.PCUtils.Meek import meek
    from causallearn.utils.PCUtils.UCSepset import uc_sepset

    rng = np.random.default_rng(seed)
    dag = random_dag(p, density, rng)
    knowledge, truth = true_knowledge(dag, rng), true_skeleton(dag)
    graph, nodes = causallearn_graph(truth)
    for i, j in known_arrows(dag, knowledge):
        graph.G.remove_edge(graph.G.get_edge(nodes[i], nodes[j]))
        graph.G.add_edge(Edge(nodes[i], nodes[j], Endpoint.TAIL, Endpoint.ARROW))
    ends = meek(uc_sepset(graph, 2)).G.graph
    theirs = arrows((ends == -1) & (ends.T == 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orientation, "_rule_4", lambda graph, x, y: [])
        assert arrows(orient(truth, knowledge=knowledge).directed) == theirs


FACTS = {"name": "oracle", "family": "oracle", "backends": ("cpu",), "source": "", "summary": ""}
ORACLE = Method(**FACTS, solve=lambda problem, run: problem.skeleton())


def extension(directed, undirected):
    """A DAG with the skeleton and the v-structures of a partly directed graph, or None (Dor and Tarsi 1992)."""
    p, left = len(directed), np.ones(len(directed), bool)
    directed, undirected = directed.copy(), undirected.copy()
    dag = directed.copy()
    for _ in range(p):
        for x in np.flatnonzero(left):
            near = left & (directed[:, x] | undirected[x])
            others = near & undirected[x]
            is_sink = not (directed[x] & left).any()
            joined = directed | directed.T | undirected | np.eye(p, dtype=bool)
            if is_sink and joined[np.ix_(others, near)].all():
                dag[undirected[x] & left, x] = True
                left[x] = False
                break
        else:
            return None
    return dag


def directions_left(dag, known):
    """The arrows of all DAGs of the class that agree with what is known, each found by extending the graph with it."""
    directed, undirected = map(np.copy, orientation.equivalence_class(dag))

    def with_arrows(some):
        more, less = directed.copy(), undirected.copy()
        for arrow in some:
            more[arrow], less[arrow], less[arrow[::-1]] = True, False, False
        return more, less

    def possible(some):
        more, less = with_arrows(some)
        if (more & more.T).any() or v_structures(more, dag | dag.T) != v_structures(dag):
            return False
        found = extension(more, less)
        return found is not None and v_structures(found) == v_structures(dag)

    return {(i, j) for i, j in arrows(dag | dag.T) if possible([*known, (i, j)])}


def check_against_the_true_dag(seed, largest):
    """Searches with an oracle find the CPDAG of the DAG, and with knowledge all that follows from both."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(3, largest + 1))
    dag = random_dag(p, min(1, rng.uniform(1, 3) / p), rng)
    free = IndependenceOracle.from_graph(dag)
    plain = orient(solve(free, ORACLE, None))
    directed, undirected = orientation.equivalence_class(dag)
    assert np.array_equal(plain.directed, directed)
    assert np.array_equal(plain.undirected, undirected)
    knowledge = true_knowledge(dag, rng, gaps=True)
    problem = with_knowledge(free, knowledge)
    found = solve(problem, ORACLE, None)
    assert np.array_equal(found.adjacency, dag | dag.T)
    left = directions_left(dag, known_arrows(dag, knowledge))
    expected = {(i, j) for i, j in left if (j, i) not in left}
    standard = orient(found, knowledge=knowledge)
    assert arrows(standard.directed) <= expected
    assert len(standard.conflicts) == 0
    if not len(standard.ambiguous):  # no forbidden edge is between the ends of a triple
        assert arrows(standard.directed) == expected
    for v_rule in ("conservative", "majority"):
        tested = orient(found, problem=problem, knowledge=knowledge, v_structures=v_rule)
        assert arrows(tested.directed) == expected
        assert len(tested.ambiguous) == len(tested.conflicts) == 0


def test_oracles_give_the_class_of_the_dag_and_what_knowledge_adds(monkeypatch):
    monkeypatch.setattr(colliders, "open_tests", IndependenceOracle.tests)
    for seed in range(25):
        check_against_the_true_dag(seed, 14)


@given(skeletons())
@settings(max_examples=80, deadline=None)
def test_conflicting_v_structures_are_those_of_causallearn(found):
    """Its choices of the same meaning, before Meek's rules: ``uc_priority`` 2 and 1."""
    from causallearn.utils.PCUtils.UCSepset import uc_sepset

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orientation, "complete", lambda graph, with_rule_4: None)
        first, both = (orient(found, conflicts=conflicts) for conflicts in ("priority", "bidirected"))
    for ours, priority in ((first, 2), (both, 1)):
        graph, _ = causallearn_graph(found)
        ends = uc_sepset(graph, priority).G.graph
        assert arrows(ours.directed) == arrows((ends == -1) & (ends.T == 1))
        assert arrows(np.triu((ends == 1) & (ends.T == 1))) == set(map(tuple, ours.conflicts.tolist()))
        assert np.array_equal(ours.to_causallearn().graph, ends)


@given(skeletons())
@settings(max_examples=80, deadline=None)
def test_priority_leaves_no_conflict_and_bidirected_is_relaxed(found):
    first = orient(found, conflicts="priority")
    assert len(first.conflicts) == 0
    assert not (first.directed & first.directed.T).any()
    assert np.array_equal(first.directed | first.directed.T | first.undirected, found.adjacency)
    relaxed, both = orient(found), orient(found, conflicts="bidirected")
    assert relaxed == both
    assert np.array_equal(relaxed.conflicts, both.conflicts)
    kinds = set(both.to_frame()["kind"])
    assert ("bidirected" in kinds) == (len(both.conflicts) > 0)
    assert "conflict" not in kinds


@given(skeletons(), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_what_is_known_stands(found, seed):
    rng = np.random.default_rng(seed)
    edges = found.edges[rng.random(len(found.edges)) < 0.4]
    for conflicts in orientation.CONFLICTS:
        oriented = orient(found, knowledge=BackgroundKnowledge(required_directions=edges), conflicts=conflicts)
        assert oriented.directed[tuple(edges.T)].all()


def test_a_v_structure_against_knowledge_is_dropped_whole():
    found = make_skeleton(3, [(0, 1), (1, 2)])
    assert arrows(orient(found).directed) == {(0, 1), (2, 1)}
    known = orient(found, knowledge=BackgroundKnowledge(forbidden_directions=[(0, 1)]))
    assert arrows(known.directed) == {(1, 0)}


def votes_word_by_word(found, problem):
    """pcalg's pc.cons.intern: for every unshielded triple, in how many separating sets its middle is, and how many."""
    retest, p, adjacency = Retest(problem), len(found.names), found.adjacency
    votes = {}
    for i, k, j in itertools.permutations(range(p), 3):
        if i < j and adjacency[i, k] and adjacency[k, j] and not adjacency[i, j]:
            held = []
            for end in (i, j):
                near = np.flatnonzero(adjacency[end]).tolist()
                for size in range(len(near) + 1):
                    for members in itertools.combinations(near, size):
                        ratio = retest.ratios(np.array([[i, j]]), np.array([members], int).reshape(1, -1))[0][0]
                        held += [k in members] if ratio <= 1 else []
            votes[i, k, j] = sum(held), len(held)
    return votes


@pytest.fixture(scope="module")
def noisy():
    """A problem of few samples, whose triples are not all clear."""
    problem = GaussianProblem.from_data(linear_samples(9, 60, 0.4, 4, least=0.2), alpha=0.05)
    return problem, skeleton(problem)


@pytest.mark.parametrize("v_rule", ["conservative", "majority"])
def test_votes_are_those_of_pcalg(noisy, v_rule):
    problem, found = noisy
    colliding, ambiguous = set(), set()
    for triple, (members, separating) in votes_word_by_word(found, problem).items():
        half = members / separating if separating else None
        if half is None or (0 < half < 1 if v_rule == "conservative" else half == 0.5):
            ambiguous.add(triple)
        elif half < 0.5:
            colliding.add(triple)
    (judged,) = colliders.judged_triples(found, v_rule, problem)
    assert set(map(tuple, judged.colliders.tolist())) == colliding
    assert set(map(tuple, judged.ambiguous.tolist())) == ambiguous
    assert ambiguous or v_rule == "majority"
    assert colliding
    oriented = orient(found, problem=problem, v_structures=v_rule)
    assert set(map(tuple, oriented.ambiguous.tolist())) == ambiguous
    assert pc(problem, v_structures=v_rule) == oriented


def test_max_level_bounds_the_sets_and_too_many_are_left_out(noisy, monkeypatch):
    problem, found = noisy
    monkeypatch.setattr(colliders, "MAX_TESTS", 5)
    with pytest.warns(UserWarning, match=r"at most 1 neighbours: .* \d+ tests, more than 5, since V\d has \d neigh"):
        orient(found, problem=problem, v_structures="majority")
    orient(found, problem=dataclasses.replace(problem, max_level=0), v_structures="majority")


def test_no_rule_takes_an_ambiguous_triple_for_either():
    """0 -> 1 - 2 with a forbidden edge between 0 and 2, of which no set tells."""
    found = make_skeleton(3, [(0, 1), (1, 2)], names="abc")
    found = dataclasses.replace(found, sepsets=found.sepsets.with_gaps(np.array([[0, 2]], np.int32)))
    knowledge = BackgroundKnowledge(forbidden_edges=[("a", "c")], required_directions=[("a", "b")])
    oriented = orient(found, knowledge=knowledge)
    assert oriented.ambiguous.tolist() == [[0, 1, 2]]
    assert arrows(oriented.directed) == {(0, 1)}


def test_choices_are_named():
    found = true_skeleton(np.zeros((2, 2), bool))
    with pytest.raises(InvalidParameter, match="conflicts is 'rand'; choose one of: relaxed, priority, bidirected"):
        orient(found, conflicts="rand")
    with pytest.raises(InvalidParameter, match="v_structures is 'cpc'; choose one of: auto, standard, conserv"):
        pc(np.eye(3), v_structures="cpc")
    with pytest.raises(InvalidProblem, match=r"needs the problem; give it as orient\(..., problem=...\)"):
        orient(found, v_structures="conservative")


def test_files_keep_bidirected_edges_ambiguous_triples_and_gaps(tmp_path):
    chain = make_skeleton(5, [(0, 1), (1, 2), (2, 3), (3, 4)], names="abcde")
    chain = dataclasses.replace(chain, sepsets=chain.sepsets.with_gaps(np.array([[2, 4]], np.int32)))
    found = orient(chain, conflicts="bidirected")
    assert len(found.conflicts) == len(found.ambiguous) == 1
    found.save(tmp_path / "graph.npz")
    loaded = CPDAG.load(tmp_path / "graph.npz")
    assert loaded.to_frame().equals(found.to_frame())
    assert np.array_equal(loaded.ambiguous, found.ambiguous)
    assert loaded.skeleton == found.skeleton
    assert (2, 4) not in loaded.skeleton.sepsets
    assert not loaded.skeleton.adjacency_at(0)[2, 4]
