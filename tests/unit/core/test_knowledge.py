"""Background knowledge: what it may say, and what it may not."""

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, DiscreteProblem, GaussianProblem, InvalidProblem, orient, pc, skeleton
from gpupc_impl.core.family import with_fields
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.knowledge import constraints, with_knowledge
from tests.graphs import edges_to_adjacency

NAMES = ("age", "income", "smoking", "health", "region")


def fixed(**statements):
    found = constraints(BackgroundKnowledge(**statements), NAMES).fixed
    return found.required.tolist(), found.forbidden.tolist()


def arrows(edges, **statements):
    given = constraints(BackgroundKnowledge(**statements), NAMES)
    return given.directed(edges_to_adjacency(edges, len(NAMES))).tolist()


def test_edges_by_name_and_by_index_are_sorted_and_counted_once():
    statements = {"required_edges": [("income", "age"), (0, 1), ["age", np.int64(1)]]}
    statements["forbidden_edges"] = np.array([[4, 2]])
    assert fixed(**statements) == ([[0, 1]], [[2, 4]])
    assert hash(BackgroundKnowledge(**statements))


def test_a_required_direction_requires_the_edge():
    assert fixed(required_directions=[("health", "age")]) == ([[0, 3]], [])
    assert arrows([(0, 3)], required_directions=[("health", "age")]) == [[3, 0]]


def test_forbidding_both_directions_forbids_the_edge():
    both = [("age", "health"), ("health", "age")]
    assert fixed(forbidden_directions=both) == ([], [[0, 3]])
    tiers = [["age"], ["health"]]
    assert fixed(forbidden_directions=[("age", "health")], tiers=tiers) == ([], [[0, 3]])
    assert arrows([], forbidden_directions=both) == []


def test_a_forbidden_direction_orients_an_edge_that_is_there():
    assert arrows([(0, 3)], forbidden_directions=[("age", "health")]) == [[3, 0]]
    assert arrows([], forbidden_directions=[("age", "health")]) == []


def test_tiers_orient_edges_between_them_and_no_others():
    tiers = [["age", "region"], ["income"]]
    edges = [(0, 1), (0, 4), (1, 4), (1, 2)]
    assert arrows(edges, tiers=tiers) == [[0, 1], [4, 1]]


AI, IA, IH = ("age", "income"), ("income", "age"), ("income", "health")
AH, HA, HI = ("age", "health"), ("health", "age"), ("health", "income")
CIRCLE = {"required_directions": [AI], "required_edges": [IH, AH], "forbidden_directions": [HI]}


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ({"required_edges": [AI], "forbidden_edges": [IA]}, "edge between age and income is required and forbidden"),
        ({"required_directions": [AI, IA]}, "age -> income and income -> age are both required"),
        ({"required_directions": [AI], "forbidden_directions": [AI]}, "age -> income is required and forbidden"),
        (
            {"required_directions": [HA], "tiers": [["age"], ["smoking", "health"]]},
            "health -> age is required, but age is in tier 1, before health in tier 2",
        ),
        (
            {"required_edges": [AH], "forbidden_directions": [AH, HA]},
            "edge between age and health is required, but both its directions are forbidden",
        ),
        (
            {"required_directions": [AI, IH, HA]},
            "in a circle, (age -> income -> health -> age|income -> health -> age -> income|health -> age -> income)",
        ),
        ({**CIRCLE, "tiers": [["health"], ["age"]]}, "in a circle"),
        ({"tiers": [["age"], ["income"], ["age"]]}, "age is in tier 1 and in tier 3"),
        ({"required_edges": ["age"]}, "list of variables"),
    ],
)
def test_contradictions_are_named_at_once(statements, message):
    with pytest.raises(InvalidProblem, match=message):
        BackgroundKnowledge(**statements)


def test_contradictions_between_names_and_indexes_are_named_with_the_data():
    knowledge = BackgroundKnowledge(required_edges=[("age", "income")], forbidden_edges=[(0, 1)])
    with pytest.raises(InvalidProblem, match="edge between age and income is required and forbidden"):
        constraints(knowledge, NAMES)


def test_an_edge_of_no_direction_may_close_a_circle_of_forbidden_ones():
    """Three forbidden directions only say that not all three edges are there."""
    forbidden = [("income", "age"), ("health", "income"), ("age", "health")]
    assert fixed(forbidden_directions=forbidden) == ([], [])


@pytest.mark.parametrize(
    ("variable", "message"),
    [("incme", "'incme', which the data do not have; near it: income"), (7, "indexes go from 0 to 4")],
)
def test_unknown_variables_are_named_with_those_near_them(variable, message):
    with pytest.raises(InvalidProblem, match=message):
        constraints(BackgroundKnowledge(forbidden_edges=[("age", variable)]), NAMES)


def test_a_number_that_is_a_name_and_an_index_is_ambiguous():
    with pytest.raises(InvalidProblem, match="give the name as text"):
        constraints(BackgroundKnowledge(forbidden_edges=[(0, 1)]), ("1", "2", "3"))
    stated = constraints(BackgroundKnowledge(forbidden_edges=[("1", "2")]), ("1", "2", "3"))
    assert stated.fixed.forbidden.tolist() == [[0, 1]]


def test_yaml(tmp_path):
    path = tmp_path / "known.yaml"
    path.write_text("forbidden_edges:\n- [age, income]\nrequired_directions: [[smoking, health]]\ntiers:\n- [age, 4]\n")
    assert BackgroundKnowledge.from_file(path) == BackgroundKnowledge(
        forbidden_edges=[("age", "income")], required_directions=[("smoking", "health")], tiers=[("age", 4)]
    )
    path.write_text("tiers:\n")
    assert BackgroundKnowledge.from_file(path) == BackgroundKnowledge()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "known.yaml holds no keys; it may have: required_edges"),
        ("edges: []", "key 'edges'; it may have: required_edges"),
        ("tiers: [[no]]", "in quotes"),
        ("tiers: {", "not a YAML file"),
        ("required_edges: [[a, b]]\nforbidden_edges: [[b, a]]", "known.yaml: .*between a and b"),
    ],
)
def test_bad_yaml(tmp_path, text, message):
    path = tmp_path / "known.yaml"
    path.write_text(text)
    with pytest.raises(InvalidProblem, match=message):
        BackgroundKnowledge.from_file(path)


def test_causallearns_object_is_taken_as_it_is():
    from causallearn.graph.GraphNode import GraphNode
    from causallearn.utils.PCUtils.BackgroundKnowledge import BackgroundKnowledge as Theirs

    node = {name: GraphNode(name) for name in NAMES}
    theirs = Theirs()
    theirs.add_required_by_node(node["smoking"], node["health"])
    theirs.add_forbidden_by_node(node["region"], node["age"]).add_forbidden_by_node(node["age"], node["region"])
    theirs.add_forbidden_by_pattern("inc.*", "(age|smoking)")
    theirs.add_node_to_tier(node["age"], 0).add_node_to_tier(node["income"], 1).add_node_to_tier(node["health"], 1)
    theirs.forbid_within_tier(1)
    ours = constraints(theirs, NAMES)
    assert ours.fixed == FixedPairs(np.array([[2, 3]]), np.array([[0, 4], [1, 3]]))
    everything = ~np.eye(5, dtype=bool)
    everything[tuple(ours.fixed.forbidden.T)] = everything[tuple(ours.fixed.forbidden.T[::-1])] = False
    stated = set(map(tuple, ours.directed(everything).tolist()))
    for i in range(5):
        for j in np.flatnonzero(everything[i]).tolist():
            banned = theirs.is_forbidden(node[NAMES[j]], node[NAMES[i]])
            required = theirs.is_required(node[NAMES[i]], node[NAMES[j]])
            assert ((i, j) in stated) == (banned or required), (i, j)
    data = np.random.default_rng(0).standard_normal((50, 5))
    assert skeleton(data, names=NAMES, knowledge=theirs).adjacency[2, 3]


def test_a_ready_problem_takes_knowledge_once():
    data = np.random.default_rng(0).integers(0, 2, (60, 3))
    problem = DiscreteProblem.from_data(data)
    knowledge = BackgroundKnowledge(required_edges=[(0, 1)])
    found = skeleton(problem, knowledge=knowledge)
    assert found.adjacency[0, 1]
    assert skeleton(with_knowledge(problem, knowledge), knowledge=knowledge) == found
    with pytest.raises(InvalidProblem, match="already"):
        skeleton(with_knowledge(problem, knowledge), knowledge=BackgroundKnowledge(required_edges=[(0, 2)]))
    assert with_knowledge(problem, BackgroundKnowledge(tiers=[[0], [1]])) is problem


def test_knowledge_changes_the_fingerprint_and_computes_no_correlations():
    values = np.random.default_rng(0).normal(size=(50, 4))
    problem = GaussianProblem.from_data(values, correlations="device")
    before = problem.fingerprint
    changed = with_knowledge(problem, BackgroundKnowledge(forbidden_edges=[(0, 1)]))
    assert "correlation" not in vars(problem).keys() | vars(changed).keys()
    assert problem.fixed is None
    assert problem.fingerprint == before != changed.fingerprint
    assert with_fields(problem, alpha=0.2).fingerprint not in (before, changed.fingerprint)


def test_a_workload_is_no_search():
    data = np.random.default_rng(0).integers(0, 2, (60, 3))
    problem = DiscreteProblem.from_data(data, tests_per_edge=2, decay=0.5)
    with pytest.raises(InvalidProblem, match="workload"):
        with_knowledge(problem, BackgroundKnowledge(required_edges=[(0, 1)]))


def test_pc_uses_it_for_edges_and_directions():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(500)
    data = np.stack([a, a + rng.standard_normal(500), rng.standard_normal(500)], axis=1)
    knowledge = BackgroundKnowledge(required_edges=[("V0", "V2")], tiers=[["V1"], ["V0"]])
    found = pc(data, knowledge=knowledge, v_structures="standard")
    assert found.to_frame().values.tolist() == [["V1", "V0", "directed"], ["V2", "V0", "directed"]]
    assert found.skeleton.sepsets[1, 2] == ()
    with pytest.raises(InvalidProblem, match="no required edge between V0 and V2; find it with the same knowledge"):
        orient(skeleton(data), knowledge=knowledge)
