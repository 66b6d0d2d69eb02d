"""What must hold of the graphs that a perfect oracle leads to, and examples from the literature."""

import itertools

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, IndependenceOracle, fci
from gpupc_impl.core.pag import ARROW, CIRCLE, TAIL
from gpupc_impl.latent.inference import Inference, find_pag
from gpupc_impl.reporting.true_pag import true_pag
from tests.latent_graphs import SelectedOracle, confounded

REMOVED_BY_FCI = 187
"""The seed of a graph in which only subsets of Possible-D-SEP separate the ends of an edge."""


def of_arrows(arrows, hidden=0):
    """The oracle of "a>b" between letters, of which the last ones are hidden."""
    letters = sorted(set("".join(arrows)) - {">", " "})
    graph = np.zeros((len(letters),) * 2, bool)
    for arrow in arrows.split():
        graph[letters.index(arrow[0]), letters.index(arrow[2])] = True
    first = len(letters) - hidden
    return IndependenceOracle.from_graph(graph, hidden=range(first, len(letters)), names=letters[:first])


def edges(pag):
    """The edges as text: a mark beside each name."""
    left, right = {"circle": "o", "arrow": "<", "tail": "-"}, {"circle": "o", "arrow": ">", "tail": "-"}
    rows = pag.to_frame().itertuples(index=False)
    return sorted(f"{row.source}{left[row.mark_source]}-{right[row.mark_target]}{row.target}" for row in rows)


def adjacent(oracle):
    """The adjacencies of the maximal ancestral graph: i and j whose ancestors do not separate them (Richardson and
    Spirtes 2002, theorem 4.2)."""
    ancestors, p = oracle.ancestral(), len(oracle.names)
    result = np.zeros((p, p), bool)
    for i, j in itertools.combinations(range(p), 2):
        members = [k for k in np.flatnonzero(ancestors[:, i] | ancestors[:, j]) if k not in (i, j)]
        separated = oracle.separated(np.array([[i, j]]), np.array([members], np.int64).reshape(1, -1))
        result[i, j] = result[j, i] = not separated[0]
    return result


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1000), marks=pytest.mark.slow)])
def test_marks_are_true_and_edges_are_those_of_the_ancestral_graph(seeds):
    removed = {"fci": 0, "rfci": 0}
    for seed in seeds:
        graph, p = confounded(seed)
        oracle = IndependenceOracle.from_graph(graph, hidden=range(p, len(graph)))
        found = {algorithm: fci(oracle, algorithm=algorithm) for algorithm in removed}
        for algorithm, pag in found.items():
            removed[algorithm] += len(pag.removed)
            assert not len(pag.conflicts)
            i, j = np.nonzero(pag.marks == ARROW)
            assert not oracle.ancestral()[j, i].any()
            i, j = np.nonzero(pag.marks == TAIL)
            assert oracle.ancestral()[j, i].all()
            for (a, b), members in pag.removed.items():
                assert oracle.separated(np.array([[a, b]]), np.array([members], np.int64).reshape(1, -1))[0]
        assert np.array_equal(found["fci"].adjacency, adjacent(oracle))
        true = true_pag(oracle)
        assert np.array_equal(found["fci"].marks[true.source, true.target], true.marks)
        assert len(true.marks) == found["fci"].adjacency.sum()
        assert not (found["fci"].adjacency & ~found["rfci"].adjacency).any()
    assert removed["fci"] >= (len(seeds) > 100)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
def test_what_is_known_to_be_true_leaves_marks_true(seed, algorithm):
    """Knowledge adds marks, takes none back, and no false mark follows from it."""
    graph, p = confounded(seed)
    oracle = IndependenceOracle.from_graph(graph, hidden=range(p, len(graph)))
    order = np.argsort(oracle.ancestral().sum(axis=0), kind="stable").tolist()  # ancestors come before descendants
    required = np.argwhere(graph[:p, :p]).tolist()[::2]
    free, skeleton = fci(oracle, algorithm=algorithm).marks, oracle.skeleton()
    for stated in ({"tiers": [order[: p // 2], order[p // 2 :]]}, {"required_directions": required}):
        knowledge = BackgroundKnowledge(**stated)
        known = find_pag(skeleton, oracle, Inference(algorithm), knowledge=knowledge, tests=oracle.tests()).marks
        assert np.array_equal(known[free > CIRCLE], free[free > CIRCLE])
        i, j = np.nonzero(known == ARROW)
        assert not oracle.ancestral()[j, i].any()
        i, j = np.nonzero(known == TAIL)
        assert oracle.ancestral()[j, i].all()


def test_a_ring_of_selected_pairs_is_undirected():
    """R5 to R7: four independent variables, of which each two neighbours cause a variable that decides which samples
    are in the data, and a chain that leads away."""
    graph = np.zeros((10, 10), bool)
    for k in range(4):
        graph[k, 6 + k] = graph[(k + 1) % 4, 6 + k] = True
    graph[0, 4] = graph[4, 5] = True
    found = fci(SelectedOracle.of(graph, hidden=0, selected=4), algorithm="fci")
    ring = ["V0---V1", "V0---V3", "V1---V2", "V2---V3"]
    assert edges(found) == sorted([*ring, "V0--oV4", "V4--oV5"])


def test_a_hidden_cause_between_two_colliders():
    assert edges(fci(of_arrows("a>b z>b z>c d>c", hidden=1))) == ["ao->b", "b<->c", "do->c"]


def test_a_discriminating_path_orients_both_ways():
    """Richardson and Spirtes (2002), figure 5: d is a collider on the path a, b, d, c if it has a common cause with
    c, and none if it is a cause of c."""
    arrow = "a>b y>b y>d b>c d>c"
    assert "d-->c" in edges(fci(of_arrows(arrow, hidden=1), algorithm="fci"))
    both = "a>b y>b y>d b>c z>d z>c"
    assert "c<->d" in edges(fci(of_arrows(both, hidden=2), algorithm="fci"))


def test_an_edge_that_possible_d_sep_removes():
    """Found by search: no neighbours of the edge's ends separate them, and nothing that RFCI tests does."""
    graph, p = confounded(REMOVED_BY_FCI)
    oracle = IndependenceOracle.from_graph(graph, hidden=range(p, len(graph)))
    pag, kept = fci(oracle, algorithm="fci"), fci(oracle, algorithm="rfci")
    ((edge, members),) = pag.removed.items()
    assert kept.n_edges == pag.n_edges + 1
    assert kept.adjacency[edge]
    assert fci(oracle, algorithm="fci", max_possible_d_sep=len(members)) == pag
    assert fci(oracle, algorithm="fci", max_possible_d_sep=len(members) - 1) == kept


@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
def test_without_hidden_causes_arrows_of_a_chain_stay_open(algorithm):
    assert edges(fci(of_arrows("a>b b>c"), algorithm=algorithm)) == ["ao-ob", "bo-oc"]
    assert edges(fci(of_arrows("a>c b>c c>d"), algorithm=algorithm)) == ["ao->c", "bo->c", "c-->d"]
