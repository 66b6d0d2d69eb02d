"""The table of distances to the truth, from made-up records with skeletons beside them."""

import dataclasses

import numpy as np

from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.reporting import accuracy

TRUE_EDGES = [[0, 2], [1, 2], [2, 3]]
"""A v-structure, and an arrow that follows from it: all three directions are in the CPDAG."""


def record(dataset, setting, status="ok"):
    ok = status == "ok"
    return {
        **{"setting": setting, "method": setting, "family": "gaussian", "reference": False, "backend": "cpu"},
        **{"dataset": {"name": dataset}, "status": status, "why": None if ok else "a reason"},
        "time_s": {"warm": [1.0]} if ok else {},
        "result": {} if ok else None,
    }


def true_skeleton(**facts):
    """The true graph's, with separating sets that give all directions: {} for (0, 1), {2} for the ends of chains."""
    adjacency = np.zeros((4, 4), bool)
    adjacency[*np.transpose(TRUE_EDGES)] = True
    adjacency |= adjacency.T
    sets = SeparatingSets.from_levels(adjacency, [(np.array([[0, 3], [1, 3]]), np.array([[2], [2]]))])
    return Skeleton(adjacency, sets, ("a", "b", "c", "d"), (), (), (), 0, "complete", facts=facts)


def test_each_method_is_directed_by_its_own_rules(load):
    graphs = {"g0": 100, "g1": 100, "g2": 300}
    problems = [{"name": name, "true_edges": TRUE_EDGES} for name in graphs]
    skeletons = {(name, "ours"): true_skeleton() for name in graphs}
    skeletons |= {(name, "theirs"): true_skeleton(arrows=[[0, 2], [2, 1]]) for name in graphs}
    broken = dataclasses.replace(true_skeleton(), adjacency=np.zeros((4, 4), bool))
    skeletons["g1", "ours"] = dataclasses.replace(broken, sepsets=SeparatingSets.from_levels(broken.adjacency, []))
    records = [record(name, setting) for name in graphs for setting in ("ours", "theirs")]
    records[-1] = record("g2", "theirs", status="timeout")
    table = accuracy.accuracy_table(load(records, skeletons=skeletons), problems, {"m": graphs})
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    # g0 is right; g1 has no edge: three wrong pairs, no recall, and no precision to speak of.
    assert rows["m = 100", "ours"] == [
        *("2 of 2", "1.50 [0–3.00]", "1.00 [1.00–1.00] of 1", "0.500 [0–1.00]"),
        *("1.00 [1.00–1.00] of 1", "0.500 [0–1.00]"),
    ]
    # One arrow right, one turned round, one edge left without.
    assert rows["m = 100", "theirs"][1:] == [
        *("2.00 [2.00–2.00]", "1.00 [1.00–1.00]", "1.00 [1.00–1.00]"),
        *("0.500 [0.500–0.500]", "0.333 [0.333–0.333]"),
    ]
    assert rows["m = 300", "ours"][:2] == ["1 of 1", "0 [0–0]"]
    assert rows["m = 300", "theirs"] == ["0 of 1", *["–"] * 5]
    notes = " ".join(table.notes)
    assert "ours: edges are directed by our rule" in notes
    assert "theirs: edges are directed by causal-learn" in notes
    assert "m = 100: SHD of ours minus that of theirs: -0.50 [-2.00 to +1.00]." in notes
    assert "m = 300: SHD" not in notes
    assert [(row["graph"], row["setting"], row["shd"]) for row in table.plain] == [
        *(("g0", "ours", 0), ("g1", "ours", 3), ("g0", "theirs", 2), ("g1", "theirs", 2)),
        *(("g2", "ours", 0), ("g2", "theirs", None)),
    ]


def test_a_data_set_outside_the_series_has_rows_of_its_own(load):
    problems = [{"name": "g0", "true_edges": TRUE_EDGES}, {"name": "genes", "true_edges": [*TRUE_EDGES, [3, 0]]}]
    skeletons = {(name, "ours"): true_skeleton() for name in ("g0", "genes")}
    records = [record(name, "ours") for name in ("g0", "genes")]
    table = accuracy.accuracy_table(load(records, skeletons=skeletons), problems, {"m": {"g0": 100}})
    assert [row[0] for row in table.rows] == ["m = 100", "genes"]
    assert table.rows[1][2:] == ["1 of 1", "1.00 [1.00–1.00]", "1.00 [1.00–1.00]", "0.750 [0.750–0.750]", "–", "–"]
    assert "genes: the true network has cycles, thus no CPDAG; SHD counts its edges alone." in table.notes
