"""The PAG as a result, its files, the command line, background knowledge, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import PAG, BackgroundKnowledge, IndependenceOracle, InvalidParameter, InvalidProblem, fci
from gpupc_impl.cli import main
from gpupc_impl.core.result import InvalidSkeleton
from gpupc_impl.latent import possible_d_sep
from tests.golden.test_latent_pags import linear_gaussian

NAMES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def pag():
    """a o-> b <-> c <-o d: b and c have a hidden cause."""
    graph = np.zeros((5, 5), bool)
    graph[0, 1] = graph[4, 1] = graph[4, 2] = graph[3, 2] = True
    return fci(IndependenceOracle.from_graph(graph, hidden=[4], names=NAMES))


@pytest.fixture(scope="module")
def values():
    return pd.DataFrame(linear_gaussian(12, hidden=3), columns=[f"g{k}" for k in range(12)])


def test_conversions(pag):
    expected = [["a", "b", "circle", "arrow"], ["b", "c", "arrow", "arrow"], ["d", "c", "circle", "arrow"]]
    assert pag.to_frame().values.tolist() == expected
    amat = pag.to_pcalg_amat()
    assert (amat.loc["a", "b"], amat.loc["b", "a"], amat.loc["b", "c"], amat.loc["a", "c"]) == (2, 1, 2, 0)
    graph = pag.to_networkx()
    assert graph.edges["a", "b"] == {"mark": "arrow", "kind": "circle-arrow"}
    assert graph.edges["b", "a"]["mark"] == "circle"
    assert "v0 -> v1 [dir=both, arrowtail=odot, arrowhead=normal];" in pag.to_dot()
    assert "v1 -> v2 [dir=both];" in pag.to_dot()
    assert sorted(str(edge) for edge in pag.to_causal_learn().get_graph_edges()) == ["a o-> b", "b <-> c", "d o-> c"]


def test_pictures(pag, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    assert "4 variables, 3 edges" in pag.plot().get_title()
    assert "RFCI" in pag.summary()
    assert "PAG" in pag._repr_html_()
    pag.report(tmp_path / "page.html")
    assert "o→" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["csv", "graphml", "gml", "dot", "json"])
def test_graphs_are_written(pag, tmp_path, suffix):
    pag.save(tmp_path / f"pag.{suffix}")
    assert (tmp_path / f"pag.{suffix}").stat().st_size > 50


def test_a_file_holds_everything(values, tmp_path):
    found = fci(values, 0.2, algorithm="fci")
    found.save(tmp_path / "pag.npz")
    again = PAG.load(tmp_path / "pag.npz")
    assert again == found
    assert (again.names, again.algorithm, again.removed) == (found.names, "fci", found.removed)
    assert np.array_equal(again.conflicts, found.conflicts)
    found.skeleton.save(tmp_path / "skeleton.npz")
    with pytest.raises(InvalidSkeleton, match=r"skeleton\.npz holds no PAG"):
        PAG.load(tmp_path / "skeleton.npz")


def test_marks_of_other_edges_are_refused(pag):
    edges, marks = np.vstack([pag.edges, [[2, 3]]]), np.vstack([pag.edge_marks, pag.edge_marks[:1]])
    for wrong in (edges, np.vstack([pag.edges[:1], edges[:-1]])):
        with pytest.raises(ValueError, match="an edge occurs twice, or is not in the skeleton"):
            PAG(wrong, marks, pag.conflicts, pag.skeleton, "rfci", {}).check()


def test_command_line(values, tmp_path, capsys):
    values.to_csv(tmp_path / "data.csv", index=False)
    out = tmp_path / "pag.csv"
    assert main(["fci", str(tmp_path / "data.csv"), "--algorithm", "fci", "--output", str(out)]) == 0
    assert "algorithm: FCI, 0 edges of the skeleton removed" in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_csv(out), fci(values, algorithm="fci").to_frame(), check_dtype=False)
    assert main(["fci", str(tmp_path / "data.csv"), "--max-path-length", "0"]) == 2
    assert "max_path_length is 0; it must be a whole number of at least 1" in capsys.readouterr().err


def test_known_directions_are_kept(values):
    free = fci(values)
    i, j = (int(k) for k in free.edges[0])
    for cause, effect in ((i, j), (j, i)):
        known = fci(values, knowledge=BackgroundKnowledge(required_directions=[(cause, effect)]))
        assert (known.marks[effect, cause], known.marks[cause, effect]) == (3, 2)
        known = fci(values, knowledge=BackgroundKnowledge(forbidden_directions=[(cause, effect)]))
        assert known.marks[effect, cause] == 2


def test_tiers_are_arrows_at_later_variables(values):
    later = [f"g{k}" for k in range(6, 12)]
    tiers = BackgroundKnowledge(tiers=[[f"g{k}" for k in range(6)], later])
    found = fci(values, knowledge=tiers, algorithm="fci")
    i, j = np.nonzero(found.adjacency[:6, 6:])
    assert len(i)
    assert (found.marks[i, j + 6] == 2).all()


def test_forbidden_edges_are_left_out_and_required_ones_kept(values):
    free = fci(values)
    i, j = (int(k) for k in free.edges[0])
    absent = next((a, b) for a in range(12) for b in range(a + 1, 12) if not free.adjacency[a, b])
    for algorithm in ("rfci", "fci"):
        stated = BackgroundKnowledge(forbidden_edges=[(i, j)], required_edges=[absent])
        found = fci(values, knowledge=stated, algorithm=algorithm)
        assert not found.adjacency[i, j]
        assert found.adjacency[absent]


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({"tiers": [["g2"], ["g0"]]}, "g2 is in an earlier tier"),
        ({"forbidden_directions": [("g0", "g2")]}, "g0 -> g2 is forbidden"),
    ],
)
def test_causes_of_causes_contradict_what_is_no_cause(values, later, said):
    """`pc` has no fault to find, since the statements are about different edges."""
    chain = BackgroundKnowledge(required_directions=[("g0", "g1"), ("g1", "g2")], **later)
    with pytest.raises(InvalidProblem, match=f"g0 -> g1 -> g2 is required, so g0 is a cause of g2; but {said}"):
        fci(values, knowledge=chain)


@pytest.mark.parametrize(
    ("error", "said", "arguments"),
    [
        (InvalidParameter, "algorithm is 'pc'; choose one of: rfci, fci", {"algorithm": "pc"}),
        (InvalidParameter, "max_path_length is 0; it must be a whole", {"max_path_length": 0}),
        (InvalidParameter, "max_possible_d_sep is for algorithm='fci'", {"max_possible_d_sep": 2}),
    ],
)
def test_bad_arguments_are_named(values, error, said, arguments):
    with pytest.raises(error, match=said):
        fci(values, **arguments)


def test_two_variables_are_too_few(values):
    with pytest.raises(InvalidProblem, match=r"2 variable\(s\); FCI needs at least 3"):
        fci(values.iloc[:, :2])


def test_a_scan_of_too_many_sets_is_refused_before_it_begins(values, monkeypatch):
    monkeypatch.setattr(possible_d_sep, "MOST_SETS", 3)
    wide = pd.DataFrame(linear_gaussian(60, hidden=10))
    with pytest.raises(InvalidProblem, match=r"FCI would test [\d,]+ sets, more than 3: .*max_possible_d_sep=1"):
        fci(wide, algorithm="fci")


@pytest.mark.parametrize("family", ["discrete", "gaussian", "kernel", "mixed", "nonlinear", "regression"])
@pytest.mark.parametrize("algorithm", ["rfci", "fci"])
def test_every_family(family, algorithm):
    """a -> c <- b and c -> d, by each family's tests."""
    rng = np.random.default_rng(3)
    a, b, noise, more = rng.normal(size=(4, 300))
    c = a + b + 0.5 * noise
    table = pd.DataFrame({"a": a, "b": b, "c": c, "d": c + 2 * more})
    if family == "discrete":
        table = (table > 0).astype(str)
    options = {"permutations": 100, "k_cmi": 20} if family in ("mixed", "nonlinear") else {}
    found = fci(table, 0.01, family=family, algorithm=algorithm, max_level=1, **options)
    assert found.adjacency[2, [0, 1, 3]].all()
    assert found.marks[0, 2] == found.marks[1, 2] == 2
