"""gpuPC and disc-cupc against a plain serial search with NumPy's statistic, in every option and launch shape."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.knowledge import BackgroundKnowledge, with_knowledge
from gpupc_impl.core.registry import get_method
from gpupc_impl.discrete import batches, block_tables, disc_cupc, discrete_search, gpupc, planes, problem
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.unit.discrete.conftest import METHODS, SHAPES, WatchedBackend, assert_same, run, sampled, serial_search


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
    module = {"gpupc": block_tables, "disc-cupc": disc_cupc}[method]
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
        found = run(same, "gpupc", backend, {"counting": "samples", "delta": delta}, pmax=True)
        assert_same(found, expected)
        np.testing.assert_array_equal(found.pmax, expected.pmax)


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(2, 90),
    n=st.integers(1, 700),
    most=st.sampled_from([2, 3, 5, 40]),
    band=st.sampled_from([planes.BAND_BYTES, 50_000]),
    test=st.sampled_from(["chi-square", "g-square"]),
    plane_cells=st.sampled_from([2048, 12]),
)
def test_level_zero_by_products_of_planes(seed, p, n, most, band, test, plane_cells):
    """p-values have the same bits whether products make all pairs' tables, some, or none where a band has no memory."""
    problem = sampled(seed, p=p, n=n, most=most, alpha=0.05, max_level=0, test=test, df_rule="adjusted")
    expected = run(problem, "gpupc", open_backend("host"), {"counting": "samples"}, pmax=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planes, "BAND_BYTES", band)
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
        monkeypatch.setattr(planes, "KEPT_SHARE", 1 << 60)
    expected, kept = run(problem, "gpupc", backend), []
    launch_level = gpupc.GpuPC.launch_level

    def watched(search, level, sides):
        kept.append(search.planes.kept is not None)
        launch_level(search, level, sides)

    monkeypatch.setattr(gpupc.GpuPC, "launch_level", watched)
    assert_same(run(problem, "gpupc", backend), expected)
    assert kept == [room] + [False] * (len(kept) - 1)
    assert len(kept) >= 2


def test_blocks_may_share_the_sets_of_an_edge(backend, monkeypatch):
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(block_tables.BlockTables, "blocks_an_edge", lambda *_: 3)
    for params in SHAPES["gpupc"]:
        assert_same(run(problem, "gpupc", backend, params), expected)


@pytest.mark.parametrize("small_cells", [4, 40, 1280])
def test_small_tables_have_blocks_of_their_own(backend, monkeypatch, small_cells):
    """On a busy GPU; no table is made twice or omitted, whatever the size up to which a table is small."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(block_tables, "SMALL_CELLS", small_cells)
    monkeypatch.setattr(block_tables, "THREADS_A_MULTIPROCESSOR", 2)
    monkeypatch.setattr(block_tables, "DEFAULTS", {"host": block_tables.DEFAULTS["cuda"]})
    monkeypatch.setattr(batches, "BATCH_RUN", 1000)
    watched = WatchedBackend(multiprocessors=1)
    assert_same(run(problem, "gpupc", watched), expected)
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
    splits=st.sampled_from([1, 3]),
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
        patched.setattr(batches, "BATCH_RUN", 0)
        patched.setattr(batches.BatchedTests, "_blocks_an_edge", lambda *_: splits)
        watched = WatchedBackend(multiprocessors=1)
        found = run(problem, "gpupc", watched, pmax=True)
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
    monkeypatch.setattr(batches, "BATCH_RUN", 0)
    watched = WatchedBackend(multiprocessors=1)
    found = run(problem, "gpupc", watched, **options)
    assert found.sha256 == expected.sha256
    assert options or found.sepsets == expected.sepsets
    assert watched.launches["gpupc_batches"] == 2 * (expected.levels_run - 1) > 0
    assert watched.launches["gpupc_level"] or rule != "many categories"


def test_batches_are_for_long_rows(backend, monkeypatch):
    """Batches are made on a GPU with long rows if neither delta, gamma nor beta is set."""
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    monkeypatch.setattr(block_tables, "DEFAULTS", {"host": block_tables.DEFAULTS["cuda"]})
    for length, params, made in ((1, {}, True), (100, {}, False), (1, {"delta": 32}, False)):
        monkeypatch.setattr(batches, "BATCH_RUN", length)
        watched = WatchedBackend(multiprocessors=1)
        assert_same(run(problem, "gpupc", watched, params), expected)
        assert bool(watched.launches["gpupc_batches"]) is made


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
def test_kernels_expand_critical_values_that_are_not_listed(backend, monkeypatch, method):
    given = sampled(6, p=9, n=600, most=6, alpha=0.05)
    expected = run(given, method, backend)
    tables = problem.critical_tables.__wrapped__  # without the cache
    for module in (problem, discrete_search):
        monkeypatch.setattr(module, "LISTED_DF", 8)
        monkeypatch.setattr(module, "critical_tables", tables)
    assert_same(run(given, method, backend), expected)


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
    monkeypatch.setattr(block_tables, "SHARED_TABLE_CELLS", 3)
    monkeypatch.setattr(block_tables, "SORTED_FROM", {"host": 0})
    for params in SHAPES["gpupc"]:
        found = run(problem, "gpupc", backend, params, pmax=True)
        assert all(plan["dense_cells"] <= 3 for plan in found.facts["memory_plans"])
        assert_same(found, expected)
        np.testing.assert_array_equal(found.pmax, expected.pmax)
