"""How many rows share a conditioning set: counted in blocks as by brute force, and drawn."""

import itertools
import json
from collections import Counter
from math import comb

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl.core.result import SeparatingSets, Skeleton
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
    adjacency = edges_to_adjacency(list(itertools.combinations(range(6), 2)), 7)
    sets = SeparatingSets.from_levels(adjacency, [])
    found = Skeleton(adjacency, sets, tuple("abcdefg"), (1, 1, 1), (15, 15, 15), (0.0, 0.0, 0.0), 3, "made up")
    paths = [tmp_path / "unverified.json", tmp_path / "verified.json"]
    for path in paths:
        path.write_text(json.dumps({"setting": path.stem, "dataset": {"name": "walk"}}))
    found.save(tmp_path / "verified.npz")
    statuses = {"unverified": "unexplained", "verified": "equal"}
    verification = [{"setting": name, "status": status} for name, status in statuses.items()]
    rows = sharing.count_sharing(paths, verification, "file")
    assert {row["rows"]: row["sets"] for row in rows} == brute_force(adjacency)
    assert {row["setting"] for row in rows} == {"verified"}
    assert sharing.count_sharing(paths, verification[:1], "file") == []


def lines(dataset, kind, histogram):
    """A histogram as it comes back from its CSV."""
    return [
        dict(zip(sharing.COLUMNS, (dataset, kind, "cupc-s", str(rows), str(sets)), strict=True))
        for rows, sets in histogram.items()
    ]


SEVERAL = [
    *lines("genes", "file", {1: 500, 2: 60, 40: 35, 41: 5}),
    *lines("fewer-genes", "file", {1: 5, 2: 6}),
    *lines("made-up", "generated", {1: 10, 300: 10_000}),
    *lines("nothing-shared", "file", {1: 10_000}),
]


def test_percent_is_of_the_sets_in_more_than_one_row():
    genes = sharing.load(SEVERAL)[0]
    assert genes.redundant == 100
    assert genes.percent_within(1, 40) == 95
    assert genes.percent_within(41, 100) == 5


def test_the_figure_shows_the_measured_data_with_most_sets():
    assert sharing.largest(sharing.load(SEVERAL)).dataset == "genes"
    assert sharing.largest(sharing.load([row for row in SEVERAL if row["kind"] != "file"])).dataset == "made-up"
    assert "nothing-shared" not in {found.dataset for found in sharing.load(SEVERAL)}
    figure = cupc_figures.cupc_fig9(SEVERAL, REPORTED).figure
    axes = figure.axes[0]
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    assert any(bar.get_x() + bar.get_width() == 40.5 for bar in axes.patches)
    assert axes.get_title("left") == "genes\nlevel 2: 100 redundant sets"
    assert "95.0% here" in axes.texts[0].get_text()
    assert "about 95% in the paper" in axes.texts[0].get_text()
    plt.close(figure)


@pytest.mark.parametrize(("beyond", "share"), [(0, "100%"), (1, "> 99.9%"), (60, "99.9%"), (5_000, "95.2%")])
def test_only_an_exact_share_is_shown_as_100_percent(beyond, share):
    found = lines("genes", "file", {2: 100_000, **({41: beyond} if beyond else {})})
    axes = cupc_figures.cupc_fig9(found, REPORTED).figure.axes[0]
    assert f"\n{share} here" in axes.texts[0].get_text()
    assert axes.get_xlabel().startswith("rows of A'$_G$ that share a set")
    plt.close(axes.figure)


def test_without_any_shared_set_the_figure_says_so():
    figure = cupc_figures.cupc_fig9([], REPORTED).figure
    assert "no data set" in figure.axes[0].texts[0].get_text()
    plt.close(figure)
