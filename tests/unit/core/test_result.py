"""Results: separating sets as a mapping, the skeleton's conversions and files."""

import dataclasses
import itertools
import json
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import SeparatingSets, Skeleton
from gpupc_impl.core import pairs as pairs_module
from gpupc_impl.core.result import InvalidSkeleton
from tests.graphs import edges_to_adjacency

NAMES = ("alpha", "β", "c d", 'quote"s, comma', "e")
EDGES = [(0, 1), (1, 2), (3, 1)]
# Pairs removed at level 2 come before some of level 1, and in no order within a level.
REMOVED = [(np.array([(0, 2), (2, 3)]), np.array([[1], [1]])), (np.array([(0, 3)]), np.array([[1, 4]]))]
SETS = {(0, 2): (1,), (0, 3): (1, 4), (0, 4): (), (1, 4): (), (2, 3): (1,), (2, 4): (), (3, 4): ()}


def make_sets(removed=REMOVED):
    return SeparatingSets.from_levels(edges_to_adjacency(EDGES, 5), removed)


@pytest.fixture
def skeleton():
    pmax = np.full((5, 5), np.nan)
    pmax[0, 2] = pmax[2, 0] = 0.25
    sets, per_level = make_sets(), ((10, 6, 3), (6, 4, 3), (0.5, 0.25, 0.125))
    why = "complete: no variable has the 4 neighbours that a test of level 3 needs"
    facts = {"method": "cupc-s", "params": {"theta": 64}, "problem": {"max_level": None}}
    more = {"pmax": pmax, "undefined_tests": 1, "pseudo_inverses": 2, "facts": facts}
    return Skeleton(sets._adjacency, sets, NAMES, *per_level, 3, why, **more)


def test_is_a_mapping_of_every_pair_that_is_not_an_edge():
    sets = make_sets()
    assert dict(sets) == SETS
    assert list(sets) == sorted(SETS)
    assert len(sets) == len(SETS)
    assert list(sets.items()) == sorted(SETS.items())
    assert repr(sets) == "SeparatingSets(7 pairs, 3 of them with members)"


def test_a_pair_may_be_given_in_either_order():
    assert make_sets()[3, 0] == (1, 4)
    assert make_sets()[np.int64(4), np.int32(0)] == ()


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 2), (0, 5), (-1, 2)])
def test_an_edge_and_a_pair_that_does_not_exist_have_no_set(pair):
    sets = make_sets()
    assert pair not in sets
    assert sets.get(pair) is None
    with pytest.raises(KeyError):
        sets[pair]


def test_from_levels_stores_pairs_in_ascending_order_whatever_order_they_come_in():
    shuffled = [(pairs[::-1], members[::-1]) for pairs, members in REMOVED]
    for sets in (make_sets(), make_sets(shuffled), make_sets(shuffled[::-1])):
        assert sets.pairs.tolist() == [[0, 2], [0, 3], [2, 3]]
        assert sets.offsets.tolist() == [0, 1, 3, 4]
        assert sets.members.tolist() == [1, 1, 4, 1]
        assert sets.sizes().tolist() == [1, 2, 1]
        assert sets == make_sets()
        assert sets.sha256 == make_sets().sha256


def test_a_pair_may_be_given_by_names(skeleton):
    assert skeleton.sepsets["β", "e"] == ()
    assert skeleton.sepsets[NAMES[3], "alpha"] == ("β", "e")
    assert {tuple(map(NAMES.index, skeleton.sepsets[NAMES[i], NAMES[j]])) for i, j in SETS} == set(SETS.values())
    for pair in (("alpha", "β"), ("alpha", "nobody"), ("alpha", "alpha")):
        with pytest.raises(KeyError):
            skeleton.sepsets[pair]
    renamed = dataclasses.replace(skeleton, names=("v", "w", "x", "y", "z"))
    assert renamed.sepsets["v", "y"] == ("w", "z")
    assert skeleton.sepsets["alpha", NAMES[3]] == ("β", "e")


def test_levels_that_removed_nothing():
    nothing = (np.empty((0, 2), int), np.empty((0, 3), int))
    assert make_sets([*REMOVED, nothing]) == make_sets()
    assert set(make_sets([]).values()) == {()}
    assert make_sets([]) == make_sets([nothing])


def test_equality():
    sets = make_sets()
    assert sets == SETS
    assert sets != {**SETS, (3, 4): (1,)}
    assert sets != make_sets(REMOVED[:1])
    other = SeparatingSets.from_levels(edges_to_adjacency([*EDGES, (3, 4)], 5), REMOVED)
    assert sets != other
    assert make_sets(REMOVED[:1]).sha256 != sets.sha256


@given(st.integers(2, 12), st.sampled_from([1, 3, pairs_module.PAIRS_AT_ONCE]), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_any_sets_come_back(p, at_once, random):
    """Also where pairs are taken a few at a time, as billions are."""
    wanted = {
        pair: tuple(sorted(random.sample([k for k in range(p) if k not in pair], random.randint(0, p - 2))))
        for pair in itertools.combinations(range(p), 2)
        if random.random() < 0.7
    }
    edges = [pair for pair in itertools.combinations(range(p), 2) if pair not in wanted]
    levels = {}
    for pair in random.sample(sorted(wanted), len(wanted)):
        if wanted[pair]:
            pairs, members = levels.setdefault(len(wanted[pair]), ([], []))
            pairs.append(pair)
            members.append(wanted[pair])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_module, "PAIRS_AT_ONCE", at_once)
        assert dict(SeparatingSets.from_levels(edges_to_adjacency(edges, p), levels.values())) == wanted


def test_edges(skeleton):
    assert skeleton.n_edges == 3
    assert skeleton.edges.tolist() == [[0, 1], [1, 2], [1, 3]]
    assert repr(skeleton) == "Skeleton(5 variables, 3 edges, 3 levels, cupc-s)"
    assert np.array_equal(edges_to_adjacency(skeleton.edges, 5), skeleton.adjacency)
    assert not edges_to_adjacency([], 3).any()


def test_equality_and_digest_are_of_labelled_edges(skeleton):
    def changed(**changes):
        return Skeleton(**{**{name: getattr(skeleton, name) for name in skeleton.__dataclass_fields__}, **changes})

    assert changed(facts={}, seconds_per_level=(1, 2, 3), tests_per_level=(1, 1, 1)) == skeleton
    assert changed(sepsets=make_sets(REMOVED[:1])) != skeleton
    moved = edges_to_adjacency([(0, 1), (1, 2), (3, 4)], 5)  # isomorphic to no relabelling that counts
    assert changed(adjacency=moved) != skeleton
    assert changed(adjacency=moved).sha256 != skeleton.sha256
    assert skeleton != "a graph"


def test_what_differs_is_said(skeleton):
    assert skeleton.difference(skeleton) == ""
    adjacency = edges_to_adjacency([(0, 1), (1, 2), (3, 4)], 5)
    removed = [(np.array([(0, 2), (2, 3)]), np.array([[1], [1]])), (np.array([(0, 3)]), np.array([[1, 2]]))]
    other = dataclasses.replace(skeleton, adjacency=adjacency, sepsets=SeparatingSets.from_levels(adjacency, removed))
    edges = f"2 differing edges: β - {NAMES[3]} only in the first, {NAMES[3]} - e only in the second"
    sets = f"1 differing separating sets: alpha - {NAMES[3]} given {{β, e}}, and in the second given {{β, c d}}"
    assert skeleton.difference(other) == f"{edges}; {sets}"
    assert skeleton.difference(other, sets=False) == edges
    complete = dataclasses.replace(skeleton, adjacency=~np.eye(5, dtype=bool))
    assert skeleton.difference(complete).endswith(", ...")


def test_a_named_matrix(skeleton):
    frame = skeleton.to_adjacency()
    assert tuple(frame.index) == tuple(frame.columns) == NAMES
    assert np.array_equal(frame, skeleton.adjacency)


def test_the_graph_at_a_level_is_rebuilt_from_the_sets(skeleton):
    at = [[tuple(pair) for pair in np.argwhere(np.triu(skeleton.adjacency_at(level)))] for level in range(5)]
    kept = [(0, 1), (1, 2), (1, 3)]
    assert at[0] == list(itertools.combinations(range(5), 2))
    assert at[1] == sorted([*kept, (0, 2), (0, 3), (2, 3)])
    assert at[2] == sorted([*kept, (0, 3)])
    assert at[3] == at[4] == kept
    assert np.array_equal(skeleton.adjacency_at(2), skeleton.adjacency_at(2).T)
    with pytest.raises(ValueError, match="level must be at least 0, not -1"):
        skeleton.adjacency_at(-1)


def test_npz_round_trip(skeleton, tmp_path):
    skeleton.save(tmp_path / "graph.npz")
    loaded = Skeleton.load(tmp_path / "graph.npz")
    assert loaded == skeleton
    for name in skeleton.__dataclass_fields__:
        if name in ("adjacency", "pmax"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(skeleton, name))
        else:
            assert getattr(loaded, name) == getattr(skeleton, name)
    with np.load(tmp_path / "graph.npz") as stored:
        assert {"adjacency", "names", "sepset_pairs", "run"} <= set(stored)


def _altered(name, value):
    """Change one value of a stored array, or replace the array by what a function of it returns."""
    return lambda arrays: arrays.update({name: value(arrays[name])})


def _at(*places, value):
    def change(array):
        array = array.copy()
        for place in places:
            array[place] = value
        return array

    return change


ALTERED = {
    "asymmetric": (_altered("adjacency", _at((0, 1), value=False)), "its adjacency is not symmetric: [0, 1]"),
    "self-loop": (_altered("adjacency", _at((0, 0), value=True)), "1 variable(s) adjacent to themselves"),
    "text": (_altered("adjacency", lambda array: array.astype("U5")), "its adjacency is <U5"),
    "cut": (_altered("adjacency", lambda array: array[:-1]), "it must be an array of bool of shape"),
    "no edge": (_altered("adjacency", np.zeros_like), "edges, and it has 0"),
    "equal names": (_altered("names", lambda array: np.array(["a"] * len(array))), "the same name"),
    "member out of range": (_altered("sepset_members", _at(0, value=99)), "99 is no variable, of"),
    "own member": (_altered("sepset_members", lambda array: array * 0), "has itself in its separating set"),
    "long": (_altered("sepset_members", lambda array: array.astype(np.int64)), "sepsets.members must be an array of"),
    "offsets": (_altered("sepset_offsets", lambda array: array[:-1]), "offsets; one more than pairs"),
    "pair out of range": (_altered("sepset_pairs", _at((-1, 1), value=99)), "is no pair i < j of"),
    "gap of an edge": (
        lambda arrays: arrays.update(sepset_gaps=np.argwhere(arrays["adjacency"])[:1].astype(np.int32)),
        "is an edge, and is forbidden",
    ),
    "p-value": (_altered("pmax", _at((0, 1), value=2.0)), "its pmax has a number that is no p-value"),
    "seconds": (_altered("seconds_per_level", lambda array: array * np.nan), "seconds_per_level is (nan"),
    "levels": (_altered("tests_per_level", lambda array: array[:-1]), "level(s), and levels_run is"),
    "reason": (
        _altered("run", lambda run: json.dumps({**json.loads(str(run)), "stopped_because": None})),
        "stopped_because is None",
    ),
    "facts": (
        _altered("run", lambda run: json.dumps({**json.loads(str(run)), "facts": {"problem": 1}})),
        "facts['problem'] is 1",
    ),
}


@pytest.mark.parametrize("name", ALTERED)
def test_a_file_that_no_search_can_have_written_is_refused(name, tmp_path):
    from gpupc_impl import skeleton

    data = np.random.default_rng(0).normal(size=(100, 5)).cumsum(axis=1)
    skeleton(data, method="stable-serial", pmax=True).save(tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as stored:
        arrays = dict(stored)
    assert len(arrays["sepset_members"])
    alter, message = ALTERED[name]
    alter(arrays)
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(InvalidSkeleton, match=rf"graph\.npz .*{re.escape(message)}.*; make it again"):
        Skeleton.load(tmp_path / "graph.npz")


def test_graphml_and_networkx(skeleton, tmp_path):
    skeleton.save(tmp_path / "graph.graphml")
    for graph in (skeleton.to_networkx(), nx.read_graphml(tmp_path / "graph.graphml")):
        assert not graph.is_directed()
        assert tuple(graph) == NAMES
        assert {frozenset(edge) for edge in graph.edges} == {frozenset((NAMES[i], NAMES[j])) for i, j in EDGES}


def test_causallearn(skeleton):
    graph = skeleton.to_causallearn()
    assert tuple(graph.get_node_names()) == NAMES
    assert np.array_equal(graph.graph == -1, skeleton.adjacency)
    assert not (graph.graph == 1).any()


def test_another_suffix_is_an_error(skeleton, tmp_path):
    said = r"cannot write 'graph\.txt': the suffix must be one of \.npz, \.csv, \.graphml"
    with pytest.raises(ValueError, match=said):
        skeleton.save(tmp_path / "graph.txt")
