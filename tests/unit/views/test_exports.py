"""Files of other programs, read back by other programs' readers; pcalg's matrix."""

import json

import networkx as nx
import numpy as np
import pytest

from gpupc_impl import CPDAG
from gpupc_impl.views.exports import CannotWrite
from tests.unit.views.conftest import CONFLICTS, DIRECTED, NAMES, UNDIRECTED, cpdag_of, skeleton_of_names

READERS = {
    ".graphml": nx.read_graphml,
    ".gml": nx.read_gml,
    ".json": lambda path: nx.node_link_graph(json.loads(path.read_text(encoding="utf-8")), edges="edges"),
}


def test_pcalgs_coding(skeleton, cpdag):
    """a -> b: amat[a, b] = 0 and amat[b, a] = 1; a - b: both 1 (pcalg's manual, amatType)."""
    amat = cpdag.to_pcalg_amat()
    assert tuple(amat.index) == tuple(amat.columns) == NAMES
    ones = {(b, a) for a, b in DIRECTED}
    ones |= {edge for a, b in UNDIRECTED + CONFLICTS for edge in ((a, b), (b, a))}
    assert set(map(tuple, np.argwhere(amat.to_numpy() == 1).tolist())) == ones
    assert amat.to_numpy().sum() == len(ones)
    assert np.array_equal(skeleton.to_pcalg_amat(), skeleton.adjacency)


@pytest.mark.parametrize("suffix", READERS)
def test_networkx_reads_what_was_written(result, suffix, tmp_path):
    path = tmp_path / f"graph{suffix}"
    result.save(path)
    found, meant = READERS[suffix](path), result.to_networkx()
    assert list(found.nodes) == list(NAMES)
    assert found.is_directed() == isinstance(result, CPDAG)
    kinds = [{edge: graph.edges[edge].get("kind") for edge in meant.edges} for graph in (found, meant)]
    assert kinds[0] == kinds[1]
    assert found.number_of_edges() == meant.number_of_edges()


def test_json_holds_the_facts(cpdag, tmp_path):
    cpdag.save(tmp_path / "graph.json")
    assert json.loads((tmp_path / "graph.json").read_text())["graph"] == cpdag.skeleton.facts


def test_a_named_matrix_of_directions(cpdag):
    ones = {*DIRECTED, *(edge for a, b in UNDIRECTED + CONFLICTS for edge in ((a, b), (b, a)))}
    assert set(map(tuple, np.argwhere(cpdag.to_adjacency()).tolist())) == ones


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_pictures(result, suffix, begin, tmp_path):
    for path in (one := tmp_path / f"one{suffix}", two := tmp_path / f"two{suffix}"):
        result.save(path)
    assert one.read_bytes().startswith(begin)
    assert one.read_bytes() == two.read_bytes()


def test_dot(result, tmp_path):
    pydot = pytest.importorskip("pydot")
    result.save(tmp_path / "graph.dot")
    (graph,) = pydot.graph_from_dot_data((tmp_path / "graph.dot").read_text(encoding="utf-8"))
    shown = [node.get_label() for node in graph.get_nodes() if node.get_name() != "node"]
    assert [unescaped(label) for label in shown] == list(NAMES)
    arrows = isinstance(result, CPDAG)
    assert graph.get_type() == ("digraph" if arrows else "graph")
    looks = {
        (int(edge.get_source()[1:]), int(edge.get_destination()[1:])): (edge.get("dir"), edge.get("style"))
        for edge in graph.get_edges()
    }
    lines = dict.fromkeys(UNDIRECTED, ("none", None)) | dict.fromkeys(CONFLICTS, ("none", "dashed"))
    meant = dict.fromkeys(DIRECTED, (None, None)) | lines
    if arrows:
        assert looks == meant
    else:
        assert looks == {tuple(sorted(edge)): (None, None) for edge in meant}


def unescaped(label):
    """The text that Graphviz shows for a label (its escString)."""
    text, characters = "", iter(label[1:-1])
    for character in characters:
        text += {"n": "\n"}.get(following := next(characters), following) if character == "\\" else character
    return text


def test_a_name_that_xml_cannot_hold(tmp_path):
    skeleton = skeleton_of_names(["bell\x07", *NAMES[1:]])
    for result in (skeleton, cpdag_of(skeleton)):
        with pytest.raises(CannotWrite, match=r"variable 'bell\\x07' has the character '\\x07', which XML cannot hold"):
            result.save(tmp_path / "graph.graphml")
        for suffix in (".gml", ".json"):
            result.save(tmp_path / f"graph{suffix}")
            assert "bell\x07" in READERS[suffix](tmp_path / f"graph{suffix}")
