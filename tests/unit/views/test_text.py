"""Summaries, notebooks and pages: what they say, and that no name is taken for markup."""

import dataclasses
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gpupc_impl import CPDAG, pc
from tests.graphs import make_skeleton
from tests.pages import Page
from tests.unit.views.conftest import NAMES

TAGS = "html head meta title style body h1 h2 p table thead tbody tr th td img div section details summary script"


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
    assert NAMES[3] in page.texts["td"]


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
    assert set(page.tags) <= {*re.findall(r"\w+", TAGS)}
    assert not re.search(r"(src|href)=\"(?!data:)|https?:|@import|url\(", text)
    places = [text.index(part) for part in ("<img", "What was read", "What was found", ">Edges<", "<details>")]
    assert places == sorted(places)
    assert len(page.pictures) == 3
    assert not {"Hubs"} & set(page.texts["h2"])
    for name in NAMES[:8]:
        assert name in page.texts["td"]
    for fact in (*reading.values(), "gaussian", "0.01", "1234", "64", "host"):
        assert fact in page.texts["td"]
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
    cells = Page((tmp_path / "page.html").read_text(encoding="utf-8")).texts["td"]
    assert "300 rows, 4 columns (4 of numbers, 0 of categories), 1 rows dropped" in cells
    assert "gaussian test (the family of method stable-serial)" in cells
    tests = searched.strengths()
    first, strongest = cells.index("→"), tests.iloc[0]
    assert cells[first - 1 : first + 2] == [strongest.source, "→", strongest.target]
    numbers = strongest.p_value, strongest.partial_correlation
    assert cells[first + 2 : first + 4] == [f"{number:.3g}" for number in numbers]


def test_a_report_that_would_take_long_has_no_strengths(searched, tmp_path, monkeypatch):
    monkeypatch.setattr("gpupc_impl.views.text.TESTS_REPEATED", 1)
    searched.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "p-value</th>" not in text
    assert "strengths() makes them" in text


def test_a_report_of_a_large_graph_names_hubs_and_components(tmp_path):
    star, chains = [(0, k) for k in range(1, 80)], [(k, k + 1) for k in range(100, 200, 2)]
    result = make_skeleton(220, star + chains, names=[f"gene{k}" for k in range(220)])
    result.report(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert {"Hubs", "Largest of 51 components"} <= set(page.texts["h2"])
    hub = max(k for k, cell in enumerate(page.texts["td"]) if cell == "gene0")
    assert page.texts["td"][hub + 1] == "79"
    assert "gene100, gene101" in page.texts["td"]


def test_without_an_edge_there_is_a_page(tmp_path):
    result = make_skeleton(3, [])
    result.report(tmp_path / "page.html")
    assert "There is no edge." in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "variables" in result._repr_html_()
