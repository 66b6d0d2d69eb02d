"""Pictures: drawn without a warning for names of every kind, with what they should show in them."""

import itertools
import logging
import sys
import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.patches import FancyArrowPatch

from gpupc_impl.views.plots import MISSING, shown_name
from gpupc_impl.views.plots.graph import EXCERPT_NODES, MAX_NODES, overview
from gpupc_impl.views.plots.layout import communities, places
from tests.graphs import make_skeleton
from tests.unit.views.conftest import CONFLICTS, DIRECTED, NAMES, UNDIRECTED


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def rendered(axes, caplog):
    """The texts of a picture that is drawn, with warnings and matplotlib's messages as errors."""
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        axes.figure.canvas.draw()
    assert not caplog.records
    return [text.get_text() for text in axes.texts] + [axes.get_xlabel()] * bool(axes.get_xlabel())


def test_a_graph_of_names_of_every_kind(result, caplog):
    axes = result.plot()
    texts = rendered(axes, caplog)
    assert [shown_name(name) for name in NAMES[:8]] == texts[:8]
    assert all(name in texts[-1].replace("\n", " ") for name in map(shown_name, NAMES[8:]))
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == len(DIRECTED + UNDIRECTED + CONFLICTS)
    heads = [arrow for arrow in arrows if arrow.get_arrowstyle().__class__.__name__ == "CurveFilledB"]
    assert len(heads) == (len(DIRECTED) if hasattr(result, "directed") else 0)


@pytest.mark.parametrize("isolated", [25, 200])
def test_nothing_below_a_graph_is_cut(isolated, caplog):
    axes = make_skeleton(8 + isolated, [(k, k + 1) for k in range(7)]).plot()
    rendered(axes, caplog)
    below = axes.xaxis.label.get_window_extent()
    assert axes.get_xlabel().count("\n") > 0
    assert below.y0 >= 0
    assert below.x0 >= 0
    assert below.x1 <= axes.figure.bbox.width
    assert below.y1 <= axes.get_window_extent().y0


def test_the_overview_of_a_large_graph(caplog):
    star = [(0, k) for k in range(1, 80)] + [(k, k + 80) for k in range(1, 80)]
    axes = overview(make_skeleton(200, star))
    assert len(drawn := rendered(axes, caplog)) == EXCERPT_NODES
    assert "V0" in drawn
    assert axes.get_title() == "Around the hub V0: 50 of 200 variables"


def test_a_heatmap_of_names_of_every_kind(result, caplog):
    axes = result.heatmap()
    rendered(axes, caplog)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert sorted(labels) == sorted(shown_name(name, 16) for name in NAMES[:8])
    assert labels == [label.get_text() for label in axes.get_yticklabels()]
    cells = len(axes.collections[0].get_facecolors())
    undirected = 2 * len(UNDIRECTED + CONFLICTS)
    assert cells == undirected + (1 if hasattr(result, "directed") else 2) * len(DIRECTED)


def test_names_as_they_are_drawn():
    assert shown_name("line\nbreak\t tab") == "line break tab"
    assert shown_name("x" * 30, 10) == "xxxxxxxxx…"
    assert shown_name("\x00\ud800") == 2 * MISSING


def test_an_axis_that_is_given_is_used(result, caplog):
    _, (one, two) = plt.subplots(1, 2)
    assert result.plot(one, title="mine") is one
    assert result.heatmap(two, title="") is two
    rendered(one, caplog)
    assert one.get_title() == "mine"


def test_many_variables_are_drawn_as_a_matrix(caplog):
    chain = [(k, k + 1) for k in range(MAX_NODES)]
    axes = make_skeleton(MAX_NODES + 1, chain).plot()
    rendered(axes, caplog)
    assert len(axes.collections[0].get_facecolors()) == 2 * MAX_NODES
    assert not make_skeleton(4, chain[:3]).plot(max_nodes=4).collections
    assert make_skeleton(5, chain[:4]).plot(max_nodes=4).collections


@pytest.mark.parametrize("edges", [[], [(0, 1)]])
def test_small_graphs(edges, caplog):
    skeleton = make_skeleton(2, edges)
    rendered(skeleton.plot(), caplog)
    rendered(skeleton.heatmap(), caplog)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(2, 30), st.floats(0.5, 3), st.integers(0, 1000))
def test_boxes_do_not_cover_each_other(p, degree, seed):
    graph = nx.gnp_random_graph(p, min(1.0, degree / p), seed=seed)
    boxes = np.random.default_rng(seed).uniform((0.3, 0.2), (1.5, 0.3), (p, 2))
    arrows = list(graph.edges)[::2]
    centres, _ = places(graph, arrows, boxes)
    assert np.isfinite(centres).all()
    for i, j in itertools.combinations(range(p), 2):
        assert (np.abs(centres[i] - centres[j]) >= (boxes[i] + boxes[j]) / 2 - 1e-9).any()
    assert np.array_equal(centres, places(graph, arrows, boxes)[0])


def test_arrows_point_down_and_cross_no_box():
    chain = nx.path_graph(6, create_using=nx.DiGraph)
    chain.add_edges_from([(6, 2), (3, 7), (0, 5), (1, 4)])
    boxes = np.full((len(chain), 2), (0.5, 0.2))
    centres, routes = places(chain.to_undirected(), list(chain.edges), boxes)
    for tail, head in chain.edges:
        points = routes[min(tail, head), max(tail, head)]
        assert (np.diff(points[:, 1]) < 0).all() if tail < head else (np.diff(points[:, 1]) > 0).all()
        others = np.delete(centres, [tail, head], axis=0)
        assert (np.abs(points[1:-1, None] - others) > boxes[0] / 2).any(axis=2).all()
    cycle = places(nx.cycle_graph(4), [(0, 1), (1, 2), (2, 3), (3, 0)], boxes[:4])
    assert not cycle[1]  # it has no layers


def test_communities_hold_every_node_once():
    graph = nx.relabel_nodes(nx.ring_of_cliques(4, 5), lambda node: 3 * node)
    found = communities(graph)
    assert sorted(itertools.chain.from_iterable(found)) == sorted(graph)
    assert sorted(map(sorted, found)) == [[15 * k + 3 * m for m in range(5)] for k in range(4)]


def test_matplotlib_is_asked_for(result, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (result.plot, result.heatmap, lambda: result.report(tmp_path / "page.html")):
        with pytest.raises(ImportError, match=r"pip install matplotlib \(the extra plots\)"):
            draw()
    assert not list(tmp_path.iterdir())
    assert "<img" not in result._repr_html_()
