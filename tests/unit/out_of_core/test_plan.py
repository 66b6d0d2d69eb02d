"""Plans of the block-based search: what they take is what is allocated, and what they move is what moves."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.engine.graph import binomial_table
from gpupc_impl.out_of_core import _plan, _row_groups
from gpupc_impl.out_of_core._gathered import unrank
from gpupc_impl.out_of_core._split_rows import compositions

needs_host = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def least(p: int, max_level: int | None = None, samples: int = 1000, pmax: bool = False) -> int:
    return _plan.least_budget(p, max_level, lambda level: samples - level - 3, pmax)


@given(st.integers(1, 60_000), st.integers(0, 2**38), st.integers(1, 32768), st.booleans())
def test_a_plan_keeps_its_budget(p, budget, block_size, pmax):
    plans = [
        _plan.level_zero(p, budget, block_size),
        _plan.blocks(p, budget, block_size, pmax),
        _plan.panels(p, budget, block_size, pmax),
    ]
    for plan in plans:
        if plan is not None:
            assert plan.device_bytes <= budget
            assert 1 <= plan.rows <= p
            assert plan.columns <= block_size
    if budget >= least(p, max_level=1, pmax=pmax):
        assert plans[0] is not None
        assert plans[1] is not None


@pytest.mark.parametrize("p", [1, 2, 31, 32, 33, 1000, 55_572])
def test_least_budgets_grow_with_the_levels(p):
    budgets = [least(p, max_level) for max_level in (0, 1, 2, 3, None)]
    assert budgets == sorted(budgets)
    assert budgets[-1] < 500_000 + 64 * p
    assert least(p, samples=5) <= least(p, max_level=1)


def test_the_papers_setting():
    """TCGA in 2 GiB: the square blocks of the default size move several times what panels move in the same memory."""
    budget, p = 2 * 2**30, 55_572
    panels, blocks = _plan.panels(p, budget, 2560), _plan.blocks(p, budget, 2560)
    assert (blocks.rows, blocks.width) == (2560, 2560)
    assert blocks.device_bytes < 2**29
    sides = math.ceil(p / 2560)
    exact = sum(
        8 * min(2560, p - i * 2560) * min(2560, p - j * 2560)
        + 8 * p * (min(2560, p - i * 2560) + (min(2560, p - j * 2560) if i != j else 0))
        for i in range(sides)
        for j in range(i, sides)
    )
    assert exact < blocks.bytes_up < exact * 1.03  # the rest is the graph's bits
    assert panels.bytes_up < blocks.bytes_up / 2
    assert _plan.level_one(p, budget, 2560, "auto", False).layout == "panels"
    assert _plan.level_one(p, 16 * 2**20, 2560, "auto", False).layout == "blocks"
    assert _plan.level_one(p, budget, 2560, "blocks", False) == blocks


@needs_host
@pytest.mark.parametrize("layout", ["blocks", "panels"])
@pytest.mark.parametrize(("p", "block_size", "budget"), [(100, 2560, None), (97, 33, 600_000), (130, 64, 700_000)])
def test_a_complete_graph_moves_what_the_forecast_says(p, block_size, budget, layout):
    problem = GaussianProblem.from_correlation(np.full((p, p), 0.5) + 0.5 * np.eye(p), n_samples=1000, max_level=1)
    backend = open_backend("host", budget)
    found = solve(problem, get_method("out-of-core-block"), backend, {"block_size": block_size, "layout": layout})
    report = found.facts["out_of_core"]
    for level, forecast in zip(report["levels"], report["forecast"].values(), strict=True):
        assert level["layout"] == forecast["layout"]
        assert (level["bytes_up"], level["bytes_down"]) == (forecast["bytes_up"], forecast["bytes_down"])
        assert set(level["seconds"]) == {"extract", "transfer", "kernel", "merge"}
    expected = max(forecast["device_bytes"] for forecast in report["forecast"].values())
    assert expected - 16 * 512 < report["peak_device_bytes"] <= expected


# --- graphs and groups -----------------------------------------------------------------------------------------------


def random_graph(seed: int, p: int, density: float) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).random((p, p)) < density, 1)
    return upper | upper.T


@given(st.integers(0, 100), st.integers(1, 80), st.floats(0, 1))
def test_rows_of_a_graph(seed, p, density):
    adjacency = random_graph(seed, p, density)
    graph = _row_groups.Graph.of(adjacency, piece=7)
    assert graph.degrees.tolist() == adjacency.sum(axis=1).tolist()
    owner = np.repeat(np.arange(p), graph.degrees)
    assert np.array_equal(np.stack([owner, graph.neighbours], axis=1), np.argwhere(adjacency))
    assert np.array_equal(owner[graph.reverse], graph.neighbours)
    assert np.array_equal(graph.neighbours[graph.reverse], owner)
    assert sorted(graph.order().tolist()) == list(range(p))


@given(st.integers(0, 100), st.integers(2, 60), st.floats(0, 0.5), st.floats(1, 8), st.booleans())
def test_groups_hold_every_row_once_with_all_it_needs(seed, p, density, room, pmax):
    graph = _row_groups.Graph.of(random_graph(seed, p, density))
    rows = graph.order()[graph.degrees[graph.order()] >= 2]
    single = [_plan.cluster_bytes(len(graph.row(i)) + 1, 1, len(graph.row(i)), pmax) for i in rows]
    limit = int(room * max(single, default=1))
    batches = list(_row_groups.batches(_row_groups.clusters(graph, rows, limit, pmax), limit, pmax))
    groups = list(itertools.chain(*batches))
    assert [i for group in groups for i in group.rows] == rows.tolist()
    for group in groups:
        assert set(group.members) == {*group.rows, *(j for i in group.rows for j in graph.row(i))}
        assert group.slots == sum(len(graph.row(i)) for i in group.rows)
    for batch in batches:
        assert sum(group.nbytes(pmax) for group in batch) <= limit
    moved = sum(len(group.members) ** 2 for group in groups)
    assert moved <= sum((len(graph.row(i)) + 1) ** 2 for i in rows)


def test_rows_that_share_their_neighbours_are_gathered_together():
    adjacency = np.zeros((40, 40), bool)
    for start in (0, 10, 20, 30):  # four cliques, their variables scattered
        members = np.arange(start, start + 10) * 7 % 40
        adjacency[np.ix_(members, members)] = True
    np.fill_diagonal(adjacency, False)
    graph = _row_groups.Graph.of(adjacency)
    groups = list(_row_groups.clusters(graph, graph.order(), 10**6, False))
    assert [len(group.members) for group in groups] == [10] * 4


# --- ranks -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 12))
def test_compositions_cover_all_sets_once(n, level, piece):
    lengths = [min(piece, n - start) for start in range(0, n, piece)]
    found = list(compositions(lengths, level))
    assert len({tuple(sorted(chosen.items())) for chosen in found}) == len(found)
    sets = sum(math.prod(math.comb(lengths[b], count) for b, count in chosen.items()) for chosen in found)
    assert sets == math.comb(n, level)


@given(st.lists(st.integers(5, 14), min_size=1, max_size=5), st.integers(1, 5))
def test_ranks_are_unranked_as_the_kernels_do(sizes, level):
    for n in sizes:
        every = list(itertools.combinations(range(n), level))
        ranks = np.arange(len(every), dtype=np.uint64)
        assert unrank(ranks, np.full(len(every), n), level).tolist() == [list(members) for members in every]
    last = np.array([math.comb(n, level) - 1 for n in sizes], np.uint64)
    expected = [list(range(n - level, n)) for n in sizes]
    assert unrank(last, np.array(sizes), level).tolist() == expected


def test_ranks_near_the_largest():
    n = 100_000
    last = math.comb(n, 3) - 1
    assert int(binomial_table(n, 3)[3, n]) == last + 1
    assert unrank(np.array([0, last], np.uint64), np.array([n, n]), 3).tolist() == [[0, 1, 2], [n - 3, n - 2, n - 1]]
