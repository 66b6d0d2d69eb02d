"""gpuPC and disc-cupc against a plain serial search with NumPy's statistic, in every option and launch shape."""

import collections
import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from scipy import stats

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.knowledge import BackgroundKnowledge, with_knowledge
from gpupc_impl.core.registry import InvalidParameter, get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.discrete import (
    batches,
    block_tables,
    decisions,
    declarations,
    device,
    disc_cupc,
    forecast,
    gpupc,
    memory_plan,
    planes,
    products,
)
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.retest import Retest

METHODS = ("gpupc", "disc-cupc")
SHAPES = {
    "gpupc": [{}, {"delta": 7, "gamma": 2, "beta": 1}, {"delta": 32, "gamma": 3, "beta": 2, "splits": 3}],
    "disc-cupc": [{}, {"beta": 1, "gamma": 1}, {"beta": 3, "gamma": 5}],
}


@pytest.fixture(scope="module")
def backend():
    return open_backend("host")


def sampled(seed, p=8, n=400, most=4, noise=0.4, **options):
    """A random network's samples: each variable copies a function of up to two earlier ones, or a random value."""
    rng = np.random.default_rng(seed)
    categories = rng.integers(2, most + 1, p)
    codes = np.empty((n, p), np.int64)
    for k in range(p):
        codes[:, k] = rng.integers(0, categories[k], n)
        for parent in rng.choice(k, min(k, 2), replace=False) if k else ():
            copies = rng.random(n) > noise
            codes[copies, k] = (codes[copies, parent] + parent) % categories[k]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DiscreteProblem.from_data(
            codes, categories={f"V{k}": int(count) for k, count in enumerate(categories)}, **options
        )


def serial_search(problem):
    """Adjacency and separating sets of a serial PC-stable, with the statistic of `Retest`."""
    p, retest, sets = problem.n_variables, Retest(problem), {}
    adjacency = ~np.eye(p, dtype=bool)
    level = 0
    while adjacency.sum(axis=1).max() - 1 >= level and (problem.max_level is None or level <= problem.max_level):
        start = adjacency.copy()
        for i, j in itertools.combinations(range(p), 2):
            for one, other in ((i, j), (j, i)):
                others = [int(v) for v in np.flatnonzero(start[one]) if v != other]
                for S in itertools.combinations(others, level):
                    if not adjacency[i, j]:
                        break
                    statistic, df = retest.test(i, j, np.array(S, np.int64))
                    if df == 0 or statistic <= stats.chi2.isf(problem.alpha, df):
                        adjacency[i, j] = adjacency[j, i] = False
                        sets[i, j] = S
        level += 1
    return adjacency, sets


def run(problem, method, backend, params=None, **options):
    return solve(problem, get_method(method), backend, params or {}, **options)


def assert_same(found, expected):
    assert found.sha256 == expected.sha256
    assert found.sepsets == expected.sepsets
    assert found.tests_per_level[0] == expected.tests_per_level[0]


OPTIONS = [
    {},
    {"df_rule": "adjusted"},
    {"test": "g-square"},
    {"test": "g-square", "df_rule": "adjusted"},
    {"alpha": 0.9},
    {"max_level": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_serial_search(backend, seed, options):
    problem = sampled(seed, **{"alpha": 0.01, **options})
    adjacency, sets = serial_search(problem)
    for method in METHODS:
        for params in SHAPES[method]:
            found = run(problem, method, backend, params)
            assert np.array_equal(found.adjacency, adjacency), (method, params)
            assert {pair: tuple(S) for pair, S in found.sepsets.items()} == sets, (method, params)
    assert sets


@pytest.mark.parametrize("most", [12, 300])
def test_large_tables_and_codes_of_16_bits(backend, most):
    problem = sampled(3, p=6, n=1000, most=12, noise=0.2, alpha=0.05, df_rule="adjusted", max_level=2)
    codes = problem.codes.astype(np.uint16 if most > 256 else np.uint8)
    codes[2] = np.random.default_rng(0).integers(0, most, 1000)
    categories = problem.categories.copy()
    categories[2] = most
    problem = dataclasses.replace(problem, codes=codes, categories=categories, max_level=1 if most > 256 else 2)
    adjacency, sets = serial_search(problem)
    for method in METHODS:
        for params in SHAPES[method][:2]:
            found = run(problem, method, backend, params)
            assert np.array_equal(found.adjacency, adjacency)
            assert {pair: tuple(S) for pair, S in found.sepsets.items()} == sets


@pytest.mark.parametrize("method", METHODS)
def test_every_way_of_counting_gives_the_same(backend, monkeypatch, method):
    """Tables are counted by samples or planes, all in shared memory, all outside, or some of either."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    assert expected.levels_run >= 3
    module = {"gpupc": memory_plan, "disc-cupc": disc_cupc}[method]
    for plane_cells, shared_cells in ((0, 4096), (1 << 30, 4096), (0, 9), (1 << 30, 9), (40, 41)):
        monkeypatch.setattr(planes, "PLANE_CELLS", {"host": plane_cells})
        monkeypatch.setattr(module, "SHARED_TABLE_CELLS", shared_cells)
        for params in SHAPES[method]:
            assert_same(run(problem, method, backend, params), expected)
    monkeypatch.undo()
    all_tables = get_method(method).params["tables"].choices
    for counting, tables in itertools.product(("samples", "bit-planes"), all_tables):
        for params in SHAPES[method]:
            assert_same(run(problem, method, backend, {**params, "counting": counting, "tables": tables}), expected)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1033])
def test_samples_are_counted_many_at_a_time(backend, n):
    """p-values have the same bits for codes of either width, for sets with more members than are loaded at once, and
    for numbers of samples that are no multiple of a step."""
    problem = sampled(7, p=8, n=n, most=3, noise=0.5, alpha=0.01, df_rule="adjusted", max_level=4)
    paper = {"counting": "samples", "tables": "global", "delta": 1}
    expected = run(problem, "gpupc", backend, paper, pmax=True)
    assert n < 1000 or expected.levels_run == 5
    for kind, delta in itertools.product((np.uint8, np.uint16), (3, 64)):
        same = dataclasses.replace(problem, codes=problem.codes.astype(kind))
        found = run(same, "gpupc", backend, {"counting": "samples", "delta": delta, "splits": 2}, pmax=True)
        assert_same(found, expected)
        np.testing.assert_array_equal(found.pmax, expected.pmax)


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(2, 90),
    n=st.integers(1, 700),
    most=st.sampled_from([2, 3, 5, 40]),
    band=st.sampled_from([products.BAND_BYTES, 50_000]),
    test=st.sampled_from(["chi-square", "g-square"]),
    plane_cells=st.sampled_from([2048, 12]),
)
def test_level_zero_by_products_of_planes(seed, p, n, most, band, test, plane_cells):
    """p-values have the same bits whether products make all pairs' tables, some, or none where a band has no memory."""
    problem = sampled(seed, p=p, n=n, most=most, alpha=0.05, max_level=0, test=test, df_rule="adjusted")
    expected = run(problem, "gpupc", open_backend("host"), {"counting": "samples"}, pmax=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(products, "BAND_BYTES", band)
        patched.setattr(planes, "PLANE_CELLS", {"host": plane_cells})
        watched = WatchedBackend()
        found = run(problem, "gpupc", watched, pmax=True)
    assert_same(found, expected)
    assert np.array_equal(found.pmax, expected.pmax, equal_nan=True)
    made = watched.launches["plane_products"]
    event(f"bands: {min(made, 2)}, other pairs: {watched.launches['gpupc_level_zero']}")
    assert made == watched.launches["decide_pairs"]
    assert made or watched.launches["gpupc_level_zero"]
    if most <= 5 and plane_cells == 2048:
        assert watched.launches["gpupc_level_zero"] == 0


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(3, 12),
    n=st.integers(1, 700),
    most=st.sampled_from([2, 3, 5, 9]),
    shape=st.sampled_from(
        [{"delta": 1}, {"delta": 5, "gamma": 3}, {"delta": 32, "gamma": 2}, {"delta": 96, "beta": 2}]
    ),
    tables=st.sampled_from(["shared", "global"]),
    test=st.sampled_from(["chi-square", "g-square"]),
    plane_cells=st.sampled_from([2048, 16]),
)
def test_level_one_from_the_tables_of_pairs(seed, p, n, most, shape, tables, test, plane_cells):
    """p-values have the same bits where tables are counted in part and completed, by one thread or by several, of which
    32 or more compute the terms of a small table in parallel."""
    problem = sampled(seed, p=p, n=n, most=most, alpha=0.05, max_level=2, test=test, df_rule="adjusted")
    expected = run(problem, "gpupc", open_backend("host"), {"counting": "samples", "delta": 1}, pmax=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planes, "PLANE_CELLS", {"host": plane_cells})
        found = run(problem, "gpupc", open_backend("host"), {**shape, "tables": tables}, pmax=True)
    assert_same(found, expected)
    assert np.array_equal(found.pmax, expected.pmax, equal_nan=True)


@pytest.mark.parametrize("room", [True, False])
def test_tables_of_pairs_are_kept_until_level_one(backend, monkeypatch, room):
    """They are kept where they take a small part of the memory, and freed after level 1."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    if not room:
        monkeypatch.setattr(products, "KEPT_SHARE", 1 << 60)
    expected, kept = run(problem, "gpupc", backend), []
    launch_level = gpupc.GpuPC.launch_level

    def watched(search, level, sides):
        kept.append(search.products.kept is not None)
        launch_level(search, level, sides)

    monkeypatch.setattr(gpupc.GpuPC, "launch_level", watched)
    assert_same(run(problem, "gpupc", backend), expected)
    assert kept == [room] + [False] * (len(kept) - 1)
    assert len(kept) >= 2


@pytest.mark.parametrize("small_cells", [4, 40, 1280])
def test_small_tables_have_blocks_of_their_own(backend, monkeypatch, small_cells):
    """On a busy GPU; no table is made twice or omitted, whatever the size up to which a table is small."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(block_tables, "SMALL_CELLS", small_cells)
    monkeypatch.setattr(block_tables, "THREADS_A_MULTIPROCESSOR", 2)
    monkeypatch.setattr(block_tables, "DEFAULTS", {"host": block_tables.DEFAULTS["cuda"]})
    watched = WatchedBackend()
    watched.multiprocessors = 1
    assert_same(run(problem, "gpupc", watched, {"batches": "no"}), expected)
    assert watched.launches["gpupc_level"] >= 2 * (expected.levels_run - 1)
    if small_cells == 40:  # less than the largest tables of level 1, more than its smallest
        assert watched.launches["gpupc_level"] > 2 * (expected.levels_run - 1)


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(4, 14),
    n=st.integers(1, 900),
    most=st.sampled_from([2, 3, 5, 9, 40]),
    test=st.sampled_from(["chi-square", "g-square"]),
    df_rule=st.sampled_from(["full", "adjusted"]),
    splits=st.sampled_from([0, 3]),
    block_an_edge=st.booleans(),
    limits=st.sampled_from([(256, 2688, 1024), (40, 2688, 1024), (1 << 20, 300, 1024), (1 << 20, 2688, 70)]),
)
def test_many_tests_are_made_at_once(seed, p, n, most, test, df_rule, splits, block_an_edge, limits):
    """p-values have the same bits whether a warp or a block makes batches, with tables of several strata or with more
    rows than a tile has, and with tables that any of the limits leaves to the other kernels."""
    problem = sampled(seed, p=p, n=n, most=most, alpha=0.01, max_level=4, test=test, df_rule=df_rule)
    expected = run(problem, "gpupc", open_backend("host"), {"counting": "samples", "delta": 1}, pmax=True)
    with pytest.MonkeyPatch.context() as patched:
        for name, limit in zip(("BATCH_CELLS", "BATCH_WORDS", "BATCH_PARTS"), limits, strict=True):
            patched.setattr(batches, name, limit)
        patched.setattr(batches, "BATCH_CELLS_IN_COMMON", limits[0])
        patched.setattr(batches, "WARPS_A_MULTIPROCESSOR", 1 << 20 if block_an_edge else 1)
        watched = WatchedBackend()
        watched.multiprocessors = 1
        found = run(problem, "gpupc", watched, {"batches": "yes", "splits": splits, "delta": 1}, pmax=True)
    assert_same(found, expected)
    assert np.array_equal(found.pmax, expected.pmax, equal_nan=True)
    batched, others = (watched.launches[name] for name in ("gpupc_batches", "gpupc_level"))
    event(f"batches: {batched > 0}, others: {others > 0}")
    if expected.levels_run > 1 and most < 40:
        assert batched == 2 * (expected.levels_run - 1)


@pytest.mark.parametrize("block_an_edge", [False, True])
@pytest.mark.parametrize("rule", [{"tests_per_edge": 5, "decay": 0.3}, "first-come", "knowledge", "many categories"])
def test_batches_keep_the_rules_of_a_search(backend, monkeypatch, block_an_edge, rule):
    """Batches in workloads, with first-come sets, with fixed edges, and with variables without planes."""
    monkeypatch.setattr(batches, "WARPS_A_MULTIPROCESSOR", 1 << 20 if block_an_edge else 1)
    workload = rule if isinstance(rule, dict) else {}
    problem = sampled(3, p=10, n=900, most=4, alpha=0.05, **workload)
    if rule == "knowledge":
        problem = with_knowledge(problem, BackgroundKnowledge(required_edges=[(0, 5)], forbidden_edges=[(2, 3)]))
    if rule == "many categories":
        codes = problem.codes.T.copy()
        codes[:, 4] = np.arange(900) % 40
        problem = DiscreteProblem.from_data(codes, alpha=0.05)
    options = {"separating_sets": "first-come"} if rule == "first-come" else {}
    expected = run(problem, "gpupc", backend, {"counting": "samples"}, **options)
    watched = WatchedBackend()
    watched.multiprocessors = 1
    found = run(problem, "gpupc", watched, {"batches": "yes", "delta": 1}, **options)
    assert found.sha256 == expected.sha256
    assert options or found.sepsets == expected.sepsets
    assert watched.launches["gpupc_batches"] == 2 * (expected.levels_run - 1) > 0
    assert watched.launches["gpupc_level"] or rule != "many categories"


def test_batches_are_for_long_rows(backend, monkeypatch):
    """Batches are made on a GPU with long rows if neither delta, gamma nor beta is set."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(block_tables, "DEFAULTS", {"host": block_tables.DEFAULTS["cuda"]})
    for length, params, made in (
        (1, {}, True),
        (100, {}, False),
        (1, {"batches": "no"}, False),
        (1, {"delta": 32}, False),
        (100, {"batches": "yes"}, True),
    ):
        monkeypatch.setattr(batches, "BATCH_RUN", length)
        watched = WatchedBackend()
        watched.multiprocessors = 1
        assert_same(run(problem, "gpupc", watched, params), expected)
        assert bool(watched.launches["gpupc_batches"]) is made


def test_no_memory_for_products_of_planes(backend, monkeypatch):
    problem = sampled(1, p=20, n=300, max_level=0)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(products, "BAND_BYTES", 100)
    watched = WatchedBackend()
    assert_same(run(problem, "gpupc", watched), expected)
    assert (watched.launches["plane_products"], watched.launches["gpupc_level_zero"]) == (0, 1)


def test_the_papers_choices_are_taken(backend):
    """Counting by samples packs no planes; with global tables only gpuPC's level 0 has tables in shared memory."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    paper = {"counting": "samples", "tables": "global"}
    for method in METHODS:
        for params, packed in (({}, 1), (paper, 0)):
            watched = WatchedBackend()
            run(problem, method, watched, params)
            assert watched.launches["pack_planes"] == packed
    found = run(problem, "gpupc", backend, paper)
    plans = found.facts["memory_plans"]
    assert plans[0]["shared_cells"] > 0
    assert all(plan["shared_cells"] == 0 and plan["scratch_bytes"] > 0 for plan in plans[1:])
    assert not any(plan["scratch_bytes"] for plan in run(problem, "gpupc", backend).facts["memory_plans"])


@pytest.mark.parametrize("method", METHODS)
def test_unclear_tests_are_decided_on_the_host(backend, monkeypatch, method):
    """Answers stay the same if only every 2^k-th critical value is tabulated, with room for a single undecided test."""
    problem = sampled(6, p=9, n=600, most=6, alpha=0.05)
    expected = run(problem, method, backend)
    table = decisions.critical_table(0.05)
    df = 2 ** np.arange(1, 63, dtype=np.uint64)
    sparse = (table[0][:3], df, stats.chi2.isf(0.05, df.astype(float)))
    monkeypatch.setattr(decisions, "LISTED_DF", 2)
    monkeypatch.setattr(decisions, "critical_table", lambda alpha: sparse)
    monkeypatch.setattr(device, "UNDECIDED_AT_FIRST", 1)
    found = run(problem, method, backend)
    assert found.sha256 == expected.sha256
    assert found.sepsets == expected.sepsets


def test_critical_values_beyond_the_listed_ones():
    listed, df, values = decisions.critical_table(0.01)
    assert listed[0] == 0
    assert np.array_equal(listed[1:], stats.chi2.isf(0.01, np.arange(1, decisions.LISTED_DF + 1)))
    assert df[0] <= decisions.LISTED_DF
    assert df[-1] == 2**62
    assert (np.diff(df.astype(np.float64)) > 0).all()
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_first_come_gives_the_same_edges(backend, method):
    problem = sampled(7, p=10, n=800, alpha=0.01)
    canonical = run(problem, method, backend)
    found = run(problem, method, backend, separating_sets="first-come")
    assert found.sha256 == canonical.sha256
    retest = Retest(problem)
    for (i, j), S in found.sepsets.items():
        statistic, df = retest.test(i, j, np.array(S, np.int64))
        assert statistic <= problem.critical_value(df)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_largest_p_values(backend, method, options):
    problem = sampled(8, p=7, n=300, alpha=0.01, **options)
    found = run(problem, method, backend, pmax=True)
    retest, expected = Retest(problem), np.full((7, 7), np.nan)
    for i, j in itertools.combinations(range(7), 2):
        if found.adjacency[i, j]:
            tests = [retest.test(i, j, np.array([], np.int64))]
            for level in range(1, found.levels_run):
                start = found.adjacency_at(level)
                for one, other in ((i, j), (j, i)):
                    others = [int(v) for v in np.flatnonzero(start[one]) if v != other]
                    tests += [retest.test(i, j, np.array(S)) for S in itertools.combinations(others, level)]
        else:
            tests = [retest.test(i, j, np.array(found.sepsets[i, j], np.int64))]
        p_values = [stats.chi2.sf(max(statistic, 0), df) if df else 1.0 for statistic, df in tests]
        expected[i, j] = expected[j, i] = max(p_values)
    np.testing.assert_allclose(found.pmax, expected, rtol=1e-9, atol=1e-300)


# --- the workload of the paper's section 4.1 -------------------------------------------------------------------------


def first_tests(problem, level, adjacency):
    """The number of tests of the workload at a level."""
    count = 0
    for i, j in np.argwhere(np.triu(adjacency)):
        sides = [int(adjacency[v].sum()) - 1 for v in (i, j)]
        available = sum(len(list(itertools.combinations(range(side), level))) for side in sides)
        count += min(problem.tests_per_edge, available)
    return count


def first_set(adjacency: np.ndarray, i: int, j: int, level: int) -> tuple[int, ...]:
    """The first set that would be tried; where neither end has enough neighbours, the variables with the smallest
    indices."""
    everybody = np.ones(len(adjacency), bool)
    choices = [np.flatnonzero(row).tolist() for row in (adjacency[i], adjacency[j], everybody)]
    others = [[v for v in choice if v not in (i, j)] for choice in choices]
    return next(tuple(choice[:level]) for choice in others if len(choice) >= level)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("tests_per_edge", "decay"), [(1, 0.5), (5, 0.3), (1000, 0.75)])
def test_workload_ignores_outcomes(backend, method, tests_per_edge, decay):
    problem = sampled(9, p=12, n=200, tests_per_edge=tests_per_edge, decay=decay)
    for params in SHAPES[method]:
        found = run(problem, method, backend, params)
        adjacency, sets = ~np.eye(12, dtype=bool), {}
        for level in range(found.levels_run):
            assert found.tests_per_level[level] == (first_tests(problem, level, adjacency) if level else 66)
            assert level <= found.facts["forecast"]["last_level"]
            edges = np.argwhere(np.triu(adjacency))
            gone = edges[~problem.decayed(edges)]
            sets |= {(i, j): first_set(adjacency, i, j, level) for i, j in gone.tolist()}
            adjacency[gone[:, 0], gone[:, 1]] = adjacency[gone[:, 1], gone[:, 0]] = False
        assert np.array_equal(found.adjacency, adjacency)
        assert dict(found.sepsets.items()) == sets
        assert found.levels_run >= 2


@pytest.mark.parametrize("decay", [0.001, 0.3, 0.5, 0.75, 0.9, 0.99])
@pytest.mark.parametrize("p", [1, 2, 3, 17, 55])
def test_a_workload_ends_when_no_variable_can_have_enough_edges(p, decay):
    problem = DiscreteProblem.from_data(np.arange(2)[:, None].repeat(p, axis=1), tests_per_edge=1, decay=decay)
    edges, level = p * (p - 1) // 2, -1
    while edges > level + 1 and level < p - 2:
        edges, level = int(problem.decayed(np.zeros((edges, 2))).sum()), level + 1
    assert forecast.last_level(problem) == max(level, 0)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_small_budget_gives_the_same_answer(backend):
    problem = sampled(10, p=7, n=2000, most=20, noise=0.2, alpha=0.05, df_rule="adjusted")
    expected = run(problem, "gpupc", backend)
    most = max(fact["scratch_bytes"] for fact in expected.facts["memory_plans"])
    assert most > 0
    limit = max(fact["largest_table"] for fact in expected.facts["memory_plans"]) + 500_000
    tight = open_backend("host", limit)
    found = run(problem, "gpupc", tight)
    assert found.sha256 == expected.sha256
    assert found.sepsets == expected.sepsets
    assert tight.memory_peak <= limit
    assert max(fact["z"] for fact in found.facts["memory_plans"]) > 1


@pytest.mark.parametrize("tables", ["shared", "in-kernel"])
def test_disc_cupc_runs_out_of_memory_where_gpupc_does_not(tables):
    problem = sampled(11, p=12, n=500, most=12, noise=0.2, alpha=0.05, df_rule="adjusted")
    limit, wide = 150_000_000, {"beta": 2, "gamma": 128, "tables": tables}
    expected = run(problem, "gpupc", open_backend("host", limit))
    assert expected.levels_run >= 2
    with pytest.raises(DeviceMemoryError):
        run(problem, "disc-cupc", open_backend("host", limit), wide)
    small_gpu = run(problem, "disc-cupc", open_backend("host", limit), {**wide, "multiprocessors": 1})
    assert small_gpu.sha256 == expected.sha256


class Heap:
    """The part of CUDA's runtime that knows the heap of kernels; a heap that is in use refuses another size."""

    CUDARuntimeError, cudaLimitMallocHeapSize = ArithmeticError, 2

    def __init__(self, size, in_use):
        self.size, self.in_use = size, in_use

    def deviceSetLimit(self, limit, size):
        if self.in_use:
            raise self.CUDARuntimeError("invalid argument")
        self.size = size

    def deviceGetLimit(self, limit):
        return self.size


@pytest.fixture
def gpu(monkeypatch):
    """Returns a host backend that has multiprocessors and a heap, as a GPU has."""

    def opened(heap, limit=None):
        backend = open_backend("host", limit)
        cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=heap))
        monkeypatch.setattr(backend, "multiprocessors", 2)
        monkeypatch.setattr(backend, "array_library", lambda: contextlib.nullcontext(cupy))
        return backend

    return opened


def test_the_heap_has_the_size_of_the_tables_of_the_last_level(gpu):
    problem, in_kernel = sampled(5, p=10, n=1500, most=5, alpha=0.05, max_level=3), {"tables": "in-kernel"}
    expected = run(problem, "disc-cupc", open_backend("host"))
    for least, limit, level in ((0, 10**9, 3), (0, 10**9, 1), (1 << 40, 10**9, 3), (1 << 40, None, 3)):
        heap = Heap(8 << 20, in_use=False)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(disc_cupc, "LEAST_HEAP_BYTES", least)
            found = run(dataclasses.replace(problem, max_level=level), "disc-cupc", gpu(heap, limit), in_kernel)
        forecast = found.facts["forecast"]
        left = forecast["memory_limit"] - forecast["resident_bytes"] - forecast["level_bytes"]
        assert heap.size == (min(forecast["table_bytes"], left) if not least else left if limit else left // 4)
        assert level < 3 or found.sha256 == expected.sha256


@pytest.mark.parametrize("refused_level", [0, 1])
def test_a_table_for_which_the_heap_has_no_room_ends_the_search(gpu, monkeypatch, refused_level):
    """More than any address space has. The heap of an earlier search keeps its size."""
    largest, tables = 1 << 60, disc_cupc.DiscCuPC._tables

    def too_large(self, level, blocks, threads, cells):
        return tables(self, level, blocks, threads, largest if level == refused_level else cells)

    monkeypatch.setattr(disc_cupc.DiscCuPC, "_tables", too_large)
    given = dataclasses.replace(sampled(0), max_level=refused_level)  # no later level finds that a table was missing
    message = f"no room for a table of {4 * largest:,} bytes in the heap of 12,345 bytes"
    with pytest.raises(DeviceMemoryError, match=message) as refused:
        run(given, "disc-cupc", gpu(Heap(12_345, in_use=True)), {"tables": "in-kernel"})
    assert refused.value.requested == 4 * largest


@pytest.mark.parametrize("method", METHODS)
def test_no_memory_at_all(method):
    with pytest.raises(DeviceMemoryError):
        run(sampled(0), method, open_backend("host", 100))


@pytest.mark.parametrize(
    ("method", "params"), [("gpupc", {"delta": 64, "gamma": 16}), ("disc-cupc", {"beta": 64, "gamma": 64})]
)
def test_blocks_that_are_too_large_are_refused(backend, method, params):
    with pytest.raises(InvalidParameter, match="at most 512 threads"):
        run(sampled(0), method, backend, params)


# --- degenerate data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_constants_and_copies(backend, method):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 300)
    data = np.column_stack([a, a, np.zeros(300, int), rng.integers(0, 2, 300)])
    with pytest.warns(UserWarning, match="V2"):
        problem = DiscreteProblem.from_data(data, alpha=0.01)
    declared = dataclasses.replace(problem, categories=np.array([3, 3, 5, 4], np.int32))
    for each in (problem, declared, dataclasses.replace(problem, df_rule="adjusted")):
        assert run(each, method, backend).edges.tolist() == [[0, 1]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("p", "n"), [(1, 5), (2, 1), (2, 5), (3, 64), (3, 65)])
def test_smallest_problems(backend, method, p, n):
    rng = np.random.default_rng(p + n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = DiscreteProblem.from_data(rng.integers(0, 2, (n, p)), alpha=0.1)
    adjacency, sets = serial_search(problem) if p > 1 else (np.zeros((1, 1), bool), {})
    found = run(problem, method, backend, pmax=True)
    assert np.array_equal(found.adjacency, adjacency)
    assert dict(found.sepsets.items()) == sets


@pytest.mark.parametrize("params", SHAPES["gpupc"])
def test_tables_beyond_64_bits_end_the_search(params):
    problem = sampled(1, p=7, n=200, alpha=0.3)
    huge = dataclasses.replace(problem, categories=np.full(7, 2**16 - 1, np.int32), max_level=5, df_rule="adjusted")
    assert huge.obstacle(1) is None
    assert "more than the 2^62" in huge.obstacle(2)
    with pytest.raises(DeviceMemoryError):
        run(huge, "disc-cupc", open_backend("host", 10**8))
    found = run(huge, "gpupc", open_backend("host", 10**8), params)
    assert "more than the 2^62" in found.stopped_because
    adjacency, sets = serial_search(dataclasses.replace(huge, max_level=1))
    assert np.array_equal(found.adjacency, adjacency)
    assert dict(found.sepsets.items()) == sets
    assert any(sets.values())


@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_few_strata_among_very_many(test):
    """A level whose tables would have 10^10 cells runs in a megabyte, with teams of every size."""
    options = {"alpha": 0.01, "max_level": 3, "test": test, "df_rule": "adjusted"}
    problem = sampled(14, p=9, n=600, most=4, noise=0.2, **options)
    huge = dataclasses.replace(problem, categories=np.full(9, 100, np.int32))
    adjacency, sets = serial_search(huge)
    assert any(len(S) == 2 for S in sets.values())
    for params in (*SHAPES["gpupc"], {"counting": "samples", "tables": "global", "delta": 3}):
        backend = open_backend("host", 1_000_000)
        found = run(huge, "gpupc", backend, params)
        assert np.array_equal(found.adjacency, adjacency)
        assert dict(found.sepsets.items()) == sets
        assert found.levels_run == 4
        assert found.facts["memory_plans"][3]["largest_table"] > 10**10
        assert backend.memory_peak <= 1_000_000


@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_sorted_samples_have_the_bits_of_tables(backend, monkeypatch, test):
    """Largest p-values depend on the last bits of the statistics."""
    problem = sampled(15, p=7, n=700, most=6, alpha=0.2, test=test, df_rule="adjusted")
    expected = run(problem, "gpupc", backend, pmax=True)
    assert expected.levels_run >= 3
    monkeypatch.setattr(memory_plan, "SHARED_TABLE_CELLS", 3)
    monkeypatch.setattr(block_tables, "SHARED_TABLE_CELLS", 3)
    monkeypatch.setattr(block_tables, "SORTED_FROM", {"host": 0})
    for params in SHAPES["gpupc"]:
        found = run(problem, "gpupc", backend, params, pmax=True)
        assert all(plan["dense_cells"] <= 3 for plan in found.facts["memory_plans"])
        assert_same(found, expected)
        np.testing.assert_array_equal(found.pmax, expected.pmax)


# --- launches and memory said beforehand ------------------------------------------------------------------------------


@pytest.fixture
def launches(backend, monkeypatch):
    """The grid and block of the last launch of each kernel, by its name."""
    found, kernel = {}, type(backend).kernel

    def watched(self, source, expression, *declared):
        made = kernel(self, source, expression, *declared)

        def launch(grid, block, args, **options):
            found[expression.split("<")[0]] = (grid, block)
            return made(grid, block, args, **options)

        return launch

    monkeypatch.setattr(type(backend), "kernel", watched)
    return found


def test_wide_codes_take_four_times_the_memory_and_change_nothing(backend):
    problem = sampled(3, p=7)
    narrow = run(problem, "disc-cupc", backend)
    for counting in ("samples", "bit-planes"):
        wide = run(problem, "disc-cupc", backend, {"codes": "wide", "counting": counting})
        assert (wide.sha256, wide.sepsets.sha256) == (narrow.sha256, narrow.sepsets.sha256)
    bytes_more = wide.facts["forecast"]["resident_bytes"] - narrow.facts["forecast"]["resident_bytes"]
    assert bytes_more == 3 * 7 * planes.padded_length(400)


@pytest.mark.parametrize("threads", [2, 128])
def test_disc_cupc_has_no_more_blocks_than_tables(backend, monkeypatch, launches, threads):
    """Also on a machine whose cores run more threads than the paper's device has tables for."""
    problem = sampled(12, p=40, n=64, alpha=0.5, max_level=1)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(backend, "threads", threads)
    monkeypatch.setattr(disc_cupc, "THREADS_A_MULTIPROCESSOR", 128)
    monkeypatch.setattr(disc_cupc, "V100_MULTIPROCESSORS", 2)
    found = run(problem, "disc-cupc", backend)
    assert found.sha256 == expected.sha256
    assert found.sepsets == expected.sepsets
    for part in ("level_zero", "level"):
        grid, block = launches[f"disc_cupc_{part}"]
        assert 1 <= np.prod(grid) * np.prod(block) <= 256


def test_disc_cupc_makes_every_test_with_few_tables(backend, monkeypatch, launches):
    """Also where a row of pairs has more blocks than there are tables."""
    problem = sampled(13, p=70, n=64, alpha=0.5, max_level=0)
    monkeypatch.setattr(disc_cupc, "THREADS_A_MULTIPROCESSOR", 32)
    monkeypatch.setattr(disc_cupc, "V100_MULTIPROCESSORS", 2)
    assert run(problem, "disc-cupc", backend).sha256 == run(problem, "gpupc", backend).sha256
    assert launches["disc_cupc_level_zero"][0] == (2, 1)


class WatchedBackend(HostBackend):
    """Counts launches and allocations, and records the bytes of copies."""

    def __init__(self):
        super().__init__()
        self.launches, self.uploaded, self.downloaded, self.allocated = collections.Counter(), [], [], 0
        self.waits_for_best = True  # Otherwise launches depend on which kernels are compiled in time.

    def empty(self, shape, dtype):
        self.allocated += 1
        return super().empty(shape, dtype)

    def empty_all(self, **arrays):
        before = self.allocated
        made = super().empty_all(**arrays)
        self.allocated = before + 1  # of a GPU
        return made

    def kernel(self, source, expression, *declared):
        kernel = super().kernel(source, expression, *declared)

        def launch(*arguments, **options):
            self.launches[expression.split("<")[0]] += 1
            kernel(*arguments, **options)

        return launch

    def upload(self, array):
        self.uploaded.append(np.asarray(array).nbytes)
        return super().upload(array)

    def upload_rows(self, matrix, width):
        self.uploaded.append(matrix.nbytes)
        return super().upload_rows(matrix, width)

    def download(self, array, out=None):
        self.downloaded.append(array.nbytes)
        return super().download(array, out)


def test_a_level_is_five_launches_and_one_read():
    """There are four launches where a level removes nothing. Codes are uploaded once and without padding."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    watched = WatchedBackend()
    found = run(problem, "gpupc", watched)
    levels = found.levels_run
    assert levels >= 4
    removing = len(set(found.sepsets.sizes().tolist()))
    assert watched.launches == {
        **{"pack_planes": 1, "plane_products": 1, "decide_pairs": 1, "gpupc_level": 2 * (levels - 1)},
        "begin_level": levels - 1,
        **{"finish_level": levels, "list_removed": removing, "expand": 1, "merge_sets": int(removing > 1)},
    }
    counters = 8 * device.MOST_LEVELS * len(device.bit_graph.COUNTERS)
    assert watched.downloaded[:levels] == [counters] * levels
    assert len(watched.downloaded) == levels + 4  # and the graph, pairs, members and sizes
    codes, tables = watched.uploaded
    assert codes == problem.codes.nbytes
    assert tables < 200_000  # mostly critical values
    assert watched.allocated == 5 + 1 + removing + 1 + (removing > 1)  # at the start, at level 0, of levels, at the end


def test_nothing_is_launched_for_sizes_that_no_table_has(monkeypatch):
    """Tables of a level all lie in shared memory, in scratch space, or are replaced by sorted samples."""
    codes = np.random.default_rng(0).integers(0, 6, (400, 12))
    problem = DiscreteProblem.from_data(codes, tests_per_edge=3, decay=0.2, max_level=3)
    expected = run(problem, "gpupc", open_backend("host"), {"tables": "global"})
    monkeypatch.setattr(memory_plan, "SHARED_TABLE_CELLS", 50)
    monkeypatch.setattr(block_tables, "SHARED_TABLE_CELLS", 50)
    monkeypatch.setattr(block_tables, "SORTED_FROM", {"host": 1})
    watched = WatchedBackend()
    found = run(problem, "gpupc", watched, {"counting": "samples"})
    assert_same(found, expected)
    assert watched.launches["gpupc_level_zero"] == 1  # 42 cells
    assert watched.launches["gpupc_level"] == 2 * 3  # 252, 1,512 and 9,072 cells
    plans = found.facts["memory_plans"]
    assert [plan["dense_cells"] for plan in plans] == [42, 252, 50, 50]
    assert plans[2]["scratch_cells"] == memory_plan.sorted_cells(400, 1, declarations.DIGITS["host"])


def test_later_levels_make_their_own_binomials_and_lists(backend, monkeypatch):
    """Beyond the levels of the first table of binomials, and with rows too long for lists that are allocated once."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    assert expected.levels_run >= 4
    monkeypatch.setattr(device.forecast, "LEVELS_AHEAD", 1)
    monkeypatch.setattr(device, "LISTED_BYTES", 0)
    for method in METHODS:
        fresh = open_backend("host", 10**9)
        found = run(problem, method, fresh)
        assert_same(found, expected)
        assert found.facts["forecast"]["resident_bytes"] <= fresh.memory_peak <= found.facts["forecast"]["device_bytes"]
    watched = WatchedBackend()
    run(problem, "gpupc", watched)
    assert len(watched.uploaded) > 2


@pytest.mark.parametrize("method", METHODS)
def test_a_run_does_not_describe_the_device(backend, monkeypatch, method):
    described = []
    describe = type(backend).describe
    monkeypatch.setattr(type(backend), "describe", lambda self: described.append(1) or describe(self))
    assert run(sampled(0), method, backend).levels_run > 1
    assert not described  # it takes CUDA a millisecond


@pytest.mark.parametrize("method", METHODS)
def test_a_run_says_what_memory_it_takes(backend, caplog, method):
    caplog.set_level("INFO", "gpupc_impl.discrete")
    problem = sampled(10, p=7, n=2000, most=20, noise=0.2, alpha=0.05, df_rule="adjusted", max_level=2)
    fresh = open_backend("host", 10**9)
    found = run(problem, method, fresh)
    said = [record.getMessage() for record in caplog.records if record.name == "gpupc_impl.discrete"]
    assert len(said) == 1 + found.levels_run
    forecast = found.facts["forecast"]
    assert said[0].startswith(f"{method}, 7 variables x 2,000 samples: at most {forecast['device_bytes']:,} of ")
    assert f"{forecast['host_bytes']:,} bytes of host memory" in said[0]
    assert all(line.startswith(f"level {level}: ") for level, line in enumerate(said[1:]))
    assert not any("MemoryPlan" in line or "Forecast" in line for line in said)
    assert forecast["last_level"] == 2
    assert forecast["resident_bytes"] <= fresh.memory_peak <= forecast["device_bytes"] <= 10**9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options",
    [{"max_level": 0}, {"max_level": 1}, {}, {"test": "g-square"}, {"tests_per_edge": 5, "decay": 0.3}],
    ids=str,
)
@pytest.mark.parametrize("pmax", [False, True])
def test_device_memory_stays_within_the_forecast(method, options, pmax):
    for problem in (sampled(1, p=30, n=300, alpha=0.2, **options), sampled(1, p=5, n=5000, most=18, **options)):
        backend = open_backend("host", 10**9)
        forecast = run(problem, method, backend, pmax=pmax).facts["forecast"]
        assert forecast["resident_bytes"] <= backend.memory_peak <= forecast["device_bytes"]


GROWTH = """
import sys
import numpy as np
from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve

def kilobytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))

small, problem = (load_problem(path) for path in sys.argv[2:4])
pmax = sys.argv[4] == "pmax"
solve(small, get_method(sys.argv[1]), open_backend("host"), pmax=pmax)  # code, threads and their stacks
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts anew
before = kilobytes("VmRSS")
skeleton = solve(problem, get_method(sys.argv[1]), open_backend("host"), pmax=pmax)
forecast = skeleton.facts["forecast"]
print((kilobytes("VmHWM") - before) * 1024, forecast["device_bytes"] + forecast["host_bytes"], skeleton.levels_run)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell a process's peak")
@pytest.mark.parametrize(
    ("p", "n", "options", "pmax"),
    [
        pytest.param(p, n, options, pmax, id=f"{name}{pmax and '-'}{pmax}", marks=[pytest.mark.slow] * slow)
        for name, p, n, options, slow_pmax in (
            ("wide", 1500, 1000, {"tests_per_edge": 1, "decay": 0.5, "max_level": 1}, True),
            ("long", 60, 300_001, {"alpha": 0.9, "test": "g-square", "max_level": 1}, False),
        )
        for pmax, slow in (("", not slow_pmax), ("pmax", slow_pmax))
    ],
)
def test_a_process_grows_by_no_more_than_its_forecast(tmp_path, p, n, options, pmax):
    """The forecast bounds host and device memory, which are one here, and is at most five times too large."""
    rng = np.random.default_rng(0)
    for name, shape, each in (("small", (300, 12), {**options, "max_level": 2}), ("large", (n, p), options)):
        DiscreteProblem.from_data(rng.integers(0, 2, shape), **each).save(tmp_path / f"{name}.npz")
    paths = [str(tmp_path / f"{name}.npz") for name in ("small", "large")]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, "gpupc", *paths, pmax],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    grown, forecast, levels = map(int, done.stdout.split())
    assert levels == options["max_level"] + 1
    assert forecast / 5 < grown <= forecast
