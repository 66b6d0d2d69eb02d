"""How many rows share a conditioning set: counted in blocks as by brute force, and drawn."""

import csv
import itertools
import json
from collections import Counter
from math import comb

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import skeleton
from gpupc_impl.reporting import sharing
from gpupc_impl.reporting.papers import cupc_figures
from tests.graphs import edges_to_adjacency

REPORTED = [{"label": "DREAM5-Insilico", "rows_at_most": "40", "percent": "95"}]


def brute_force(adjacency):
    """Every set of every row of A'_G, listed."""
    shared = Counter()
    for row in map(np.flatnonzero, adjacency):
        if len(row) >= 3:  # two for the set, and one to test
            shared.update(itertools.combinations(row.tolist(), 2))
    counts = Counter(shared.values())
    return {rows: counts[rows] for rows in sorted(counts)}


@given(st.integers(0, 30), st.floats(0, 1), st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(deadline=None)
def test_counts_are_those_of_brute_force(p, density, seed, block):
    draws = np.random.default_rng(seed).random((p, p))
    adjacency = np.triu(draws < density, k=1)
    adjacency |= adjacency.T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "BLOCK", block)
        found = sharing.sets_by_rows(adjacency)
    assert {r: n for r, n in enumerate(found) if r and n} == brute_force(adjacency)
    degrees = np.count_nonzero(adjacency, axis=1)
    assert sum(r * n for r, n in enumerate(found)) == sum(comb(int(d), 2) for d in degrees if d > 2)
    if len(found):
        assert found.sum() == comb(p, 2)


def test_a_row_with_two_neighbours_has_no_test():
    assert sharing.sets_by_rows(edges_to_adjacency([(0, 1), (0, 2)], 4)).tolist() == [6]


def test_the_first_verified_skeleton_is_counted(tmp_path):
    draws = np.random.default_rng(0)
    data = draws.normal(size=(200, 3)) @ draws.normal(size=(3, 15)) + draws.normal(size=(200, 15))
    found = skeleton(data, alpha=0.05, method="stable-serial")
    for name in ("unverified", "verified"):
        record = {"setting": name, "dataset": {"name": "walk"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    found.save(tmp_path / "verified.npz")
    paths = [tmp_path / "unverified.json", tmp_path / "verified.json"]
    verification = [
        {"setting": "unverified", "status": "unexplained"},
        {"setting": "verified", "status": "equal"},
    ]
    rows = sharing.count_sharing(paths, verification, "file")
    assert {row["rows"]: row["sets"] for row in rows} == brute_force(found.adjacency_at(2))
    assert {row["setting"] for row in rows} == {"verified"}
    assert sharing.count_sharing(paths, verification[:1], "file") == []


def lines(dataset, kind, histogram, path):
    """A histogram as it comes back from its CSV."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(sharing.COLUMNS)
        writer.writerows((dataset, kind, "cupc-s", rows, sets) for rows, sets in histogram.items())
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def several(tmp_path):
    return [
        *lines("genes", "file", {1: 500, 2: 60, 40: 35, 41: 5}, tmp_path / "genes.csv"),
        *lines("fewer-genes", "file", {1: 5, 2: 6}, tmp_path / "fewer.csv"),
        *lines("made-up", "generated", {1: 10, 300: 10_000}, tmp_path / "made_up.csv"),
        *lines("nothing-shared", "file", {1: 10_000}, tmp_path / "nothing.csv"),
    ]


def test_percent_is_of_the_sets_in_more_than_one_row(several):
    genes = sharing.load(several)[0]
    assert (genes.redundant, genes.appearances) == (100, 500 + 120 + 1400 + 205)
    assert genes.percent_within(1, 40) == 95
    assert genes.percent_within(41, 100) == 5


def test_the_figure_shows_the_measured_data_with_most_sets(several):
    assert sharing.largest(sharing.load(several)).dataset == "genes"
    assert sharing.largest(sharing.load([row for row in several if row["kind"] != "file"])).dataset == "made-up"
    assert "nothing-shared" not in {found.dataset for found in sharing.load(several)}
    figure = cupc_figures.cupc_fig9(several, REPORTED).figure
    axes = figure.axes[0]
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    assert any(bar.get_x() + bar.get_width() == 40.5 for bar in axes.patches)
    assert axes.get_title("left") == "genes\nlevel 2: 100 redundant sets"
    assert "95.0% here" in axes.texts[0].get_text()
    assert "about 95% in the paper" in axes.texts[0].get_text()
    plt.close(figure)


@pytest.mark.parametrize(("beyond", "share"), [(0, "100%"), (1, "> 99.9%"), (60, "99.9%"), (5_000, "95.2%")])
def test_only_an_exact_share_is_shown_as_100_percent(tmp_path, beyond, share):
    found = lines("genes", "file", {2: 100_000, **({41: beyond} if beyond else {})}, tmp_path / "genes.csv")
    axes = cupc_figures.cupc_fig9(found, REPORTED).figure.axes[0]
    assert f"\n{share} here" in axes.texts[0].get_text()
    assert axes.get_xlabel().startswith("rows of A'$_G$ that share a set")
    plt.close(axes.figure)


def test_without_any_shared_set_the_figure_says_so():
    figure = cupc_figures.cupc_fig9([], REPORTED).figure
    assert "no data set" in figure.axes[0].texts[0].get_text()
    plt.close(figure)
