"""Summaries, notebooks and pages: what they say, and that no name is taken for markup."""

import base64
import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gpupc_impl import CPDAG, SeparatingSets, Skeleton, pc
from tests.graphs import edges_to_adjacency
from tests.unit.views.conftest import NAMES

TAGS = set(
    re.findall(
        r"\w+",
        "html head meta title style body h1 h2 p table thead tbody tr th td img div section details summary script",
    )
)


class Page(HTMLParser):
    """Tags, the texts of cells, and what pictures hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.titles, self.pictures, self.open = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img":
            kind, _, content = dict(attributes)["src"].partition(",")
            assert kind == "data:image/svg+xml;base64"
            self.pictures.append(ElementTree.fromstring(base64.b64decode(content)))
        if tag == "td":
            self.cells.append("")
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, text):
        if "td" in self.open:
            self.cells[-1] += text
        if "h2" in self.open:
            self.titles.append(text)


def test_summary(result):
    text = result.summary()
    assert repr(text) == str(text)  # as Python's prompt shows it
    lines = text.splitlines()
    assert lines[:4] == ["variables: 10", "samples: 1,234", "method: cupc-s on host, alpha 0.01", "edges: 7"]
    directions = "directions: 4 directed, 3 undirected (1 of them in conflict)"
    assert (directions in lines) == isinstance(result, CPDAG)
    assert f"neighbours: 1.40 on average, at most 3 ({NAMES[1]!r}); 2 without any" in lines
    assert "    1           7     12    0.250" in lines
    assert lines[-1] == "seconds: 0.75 in levels"


def test_in_a_notebook(result):
    page = Page(result._repr_html_())
    assert "script" not in page.tags
    assert len(page.pictures) == 1
    assert page.tags.count("b") == 1  # the title, and no name
    assert NAMES[3] in page.cells


def test_report(result, tmp_path):
    reading = {"data": "cells <1>.csv", "table": "1,234 rows", "test": "gaussian test (as requested)"}
    if isinstance(result, CPDAG):
        result = dataclasses.replace(result, skeleton=dataclasses.replace(result.skeleton, reading=reading))
    else:
        result = dataclasses.replace(result, reading=reading)
    open_before = plt.get_fignums()  # An earlier test, such as an example of the docs, may have left figures open.
    result.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert set(page.tags) <= TAGS
    assert not re.search(r"(src|href)=\"(?!data:)|https?:|@import|url\(", text)
    places = [text.index(part) for part in ("<img", "What was read", "What was found", ">Edges<", "<details>")]
    assert places == sorted(places)
    assert len(page.pictures) == 3
    assert not {"Hubs"} & set(page.titles)
    for name in NAMES[:8]:
        assert name in page.cells
    for fact in (*reading.values(), "gaussian", "0.01", "1234", "64", "host"):
        assert fact in page.cells
    assert "for the sake of the &lt;test&gt;" in text
    assert plt.get_fignums() == open_before
    result.report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()


@pytest.fixture(scope="module")
def searched():
    """a -> c <- b, and d; with missing values in a table of both kinds."""
    rng = np.random.default_rng(1)
    a, b, noise, d = rng.normal(size=(4, 300))
    frame = pd.DataFrame({"a": a, "b": b, "c": a + b + noise / 2, "d": d})
    frame.loc[3, "a"] = np.nan
    with pytest.warns(UserWarning, match="1 of 300 samples"):
        return pc(frame, 0.01, missing="drop-rows", method="stable-serial")


def test_a_report_shows_what_was_read_and_the_strengths(searched, tmp_path):
    searched.report(tmp_path / "page.html")
    cells = Page((tmp_path / "page.html").read_text(encoding="utf-8")).cells
    assert "300 rows, 4 columns (4 of numbers, 0 of categories), 1 rows dropped" in cells
    assert "gaussian test (the family of method stable-serial)" in cells
    tests = searched.strengths()
    first = cells.index("→")
    strongest = tests.iloc[0]
    assert cells[first - 1 : first + 4] == [
        strongest.source,
        "→",
        strongest.target,
        f"{strongest.p_value:.3g}",
        f"{strongest.partial_correlation:.3g}",
    ]


def test_a_report_that_would_take_long_has_no_strengths(searched, tmp_path, monkeypatch):
    monkeypatch.setattr("gpupc_impl.views.text.TESTS_REPEATED", 1)
    searched.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "p-value</th>" not in text
    assert "strengths() makes them" in text


def test_a_report_of_a_large_graph_names_hubs_and_components(tmp_path):
    star, chains = [(0, k) for k in range(1, 80)], [(k, k + 1) for k in range(100, 200, 2)]
    adjacency = edges_to_adjacency(star + chains, 220)
    names = tuple(f"gene{k}" for k in range(220))
    result = Skeleton(adjacency, SeparatingSets.from_levels(adjacency, []), names, (1,), (1,), (0.1,), 1, "complete")
    result.report(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert {"Hubs", "Largest of 51 components"} <= set(page.titles)
    hub = max(k for k, cell in enumerate(page.cells) if cell == "gene0")
    assert page.cells[hub + 1] == "79"
    assert "gene100, gene101" in page.cells


def test_without_an_edge_there_is_a_page(tmp_path):
    adjacency = np.zeros((3, 3), bool)
    result = Skeleton(adjacency, SeparatingSets.from_levels(adjacency, []), tuple("abc"), (3,), (0,), (0.1,), 1, "done")
    result.report(tmp_path / "page.html")
    assert "There is no edge." in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "variables" in result._repr_html_()
