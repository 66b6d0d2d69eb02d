"""Summaries, notebooks and pages: what they say, and that no name is taken for markup."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import matplotlib.pyplot as plt

from gpupc_impl import CPDAG
from tests.unit.views.conftest import NAMES

TAGS = set(re.findall(r"\w+", "html head meta title style body h1 h2 p table thead tbody tr th td img"))


class Page(HTMLParser):
    """Tags, the texts of cells, and what pictures hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.pictures, self.open = [], [], [], []
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
    assert not {"b", "script"} & set(page.tags[2:])
    assert NAMES[3] in page.cells


def test_report(result, tmp_path):
    result.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert set(page.tags) <= TAGS
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert len(page.pictures) == 5
    for name in NAMES[:8]:
        assert name in page.cells
    for fact in ("gaussian", "0.01", "1234", "64", "host"):
        assert fact in page.cells
    assert "for the sake of the &lt;test&gt;" in text
    assert not plt.get_fignums()
    result.report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()
