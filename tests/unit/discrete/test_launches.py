"""What discrete searches launch and copy, the memory that they take, and the shape of blocks."""

import contextlib
import dataclasses
import itertools
import types

import numpy as np
import pytest

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import InvalidParameter, Run, get_method
from gpupc_impl.discrete import block_tables, declarations, disc_cupc, discrete_search
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.engine import bit_graph
from tests.prepared import Prepared
from tests.unit.discrete.conftest import METHODS, WatchedBackend, assert_same, run, sampled


def test_a_small_budget_gives_the_same_answer(backend):
    problem = sampled(10, p=7, n=2000, most=20, noise=0.2, alpha=0.05, df_rule="adjusted")
    expected = run(problem, "gpupc", backend)
    most = max(fact["scratch_bytes"] for fact in expected.facts["memory_plans"])
    assert most > 0
    limit = max(fact["largest_table"] for fact in expected.facts["memory_plans"]) + 500_000
    tight = open_backend("host", limit)
    found = run(problem, "gpupc", tight)
    assert found == expected
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


@pytest.mark.parametrize(("least", "limit"), [(0, 10**9), (1 << 40, 10**9), (1 << 40, None)])
def test_the_heap_has_the_size_of_the_tables_of_the_last_level(gpu, least, limit, monkeypatch):
    problem, heap = sampled(5, p=10, n=1500, most=5, alpha=0.05, max_level=1), Heap(8 << 20, in_use=False)
    monkeypatch.setattr(disc_cupc, "LEAST_HEAP_BYTES", least)
    expected, backend = run(problem, "disc-cupc", open_backend("host")), gpu(heap, limit)
    assert run(problem, "disc-cupc", backend, {"tables": "in-kernel"}).sha256 == expected.sha256
    if least:  # all that is left of a budget, or a quarter of the memory
        assert 0 <= (limit or backend.memory_limit / 4) - heap.size < backend.memory_peak
    else:
        tables = 2 * disc_cupc.THREADS_A_MULTIPROCESSOR
        assert heap.size == 2 * 4 * tables * np.prod(sorted(problem.categories)[-3:])


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


@pytest.mark.parametrize("threads", [2, 128])
def test_disc_cupc_has_no_more_blocks_than_tables(backend, monkeypatch, threads):
    """Also on a machine whose cores run more threads than the paper's device has tables for."""
    problem = sampled(12, p=40, n=64, alpha=0.5, max_level=1)
    expected = run(problem, "gpupc", backend)
    watched = WatchedBackend()
    watched.threads = threads
    monkeypatch.setattr(disc_cupc, "THREADS_A_MULTIPROCESSOR", 128)
    monkeypatch.setattr(disc_cupc, "V100_MULTIPROCESSORS", 2)
    assert_same(run(problem, "disc-cupc", watched), expected)
    for part in ("level_zero", "level"):
        grid, block = watched.shapes[f"disc_cupc_{part}"]
        assert 1 <= np.prod(grid) * np.prod(block) <= 256


def test_disc_cupc_makes_every_test_with_few_tables(backend, monkeypatch):
    """Also where a row of pairs has more blocks than there are tables."""
    problem = sampled(13, p=70, n=64, alpha=0.5, max_level=0)
    monkeypatch.setattr(disc_cupc, "THREADS_A_MULTIPROCESSOR", 32)
    monkeypatch.setattr(disc_cupc, "V100_MULTIPROCESSORS", 2)
    watched = WatchedBackend()
    assert run(problem, "disc-cupc", watched).sha256 == run(problem, "gpupc", backend).sha256
    assert watched.shapes["disc_cupc_level_zero"][0] == (2, 1)


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
    counters = 8 * bit_graph.MOST_LEVELS * len(bit_graph.COUNTERS)
    assert watched.downloaded[:levels] == [counters] * levels
    assert len(watched.downloaded) == levels + 4  # and the graph, pairs, members and sizes
    codes, tables = watched.uploaded
    assert codes == problem.codes.nbytes
    assert tables < 200_000  # mostly critical values
    # at the start, at level 0, lists of neighbours and of removed pairs, at the end
    assert watched.allocated == 5 + 1 + (levels - 1) + removing + 1 + (removing > 1)


def test_nothing_is_launched_for_sizes_that_no_table_has(monkeypatch):
    """Tables of a level all lie in shared memory, in scratch space, or are replaced by sorted samples."""
    codes = np.random.default_rng(0).integers(0, 6, (400, 12))
    problem = DiscreteProblem.from_data(codes, tests_per_edge=3, decay=0.2, max_level=3)
    expected = run(problem, "gpupc", open_backend("host"), {"tables": "global"})
    monkeypatch.setattr(block_tables, "SHARED_TABLE_CELLS", 50)
    monkeypatch.setattr(block_tables, "SORTED_FROM", {"host": 1})
    watched = WatchedBackend()
    found = run(problem, "gpupc", watched, {"counting": "samples"})
    assert_same(found, expected)
    assert watched.launches["gpupc_level_zero"] == 1  # 42 cells
    assert watched.launches["gpupc_level"] == 2 * 3  # 252, 1,512 and 9,072 cells
    plans = found.facts["memory_plans"]
    assert [plan["dense_cells"] for plan in plans] == [42, 252, 50, 50]
    assert plans[2]["scratch_cells"] == block_tables.sorted_cells(400, 1, declarations.DIGITS["host"])


def test_later_levels_make_their_own_binomials(backend, monkeypatch):
    problem = sampled(5, p=10, n=1500, most=5, alpha=0.05)
    expected = run(problem, "gpupc", backend)
    assert expected.levels_run >= 4
    monkeypatch.setattr(discrete_search, "LEVELS_AHEAD", 1)
    for method in METHODS:
        assert_same(run(problem, method, backend), expected)
    watched = WatchedBackend()
    run(problem, "gpupc", watched)
    assert len(watched.uploaded) > 2


@pytest.mark.parametrize("method", METHODS)
def test_a_run_tells_what_memory_it_takes(backend, caplog, method):
    caplog.set_level("INFO", "gpupc_impl.discrete")
    problem = sampled(10, p=7, n=2000, most=20, noise=0.2, alpha=0.05, df_rule="adjusted", max_level=2)
    found = run(problem, method, open_backend("host", 10**9))
    first, *levels = [record.getMessage() for record in caplog.records if record.name == "gpupc_impl.discrete"]
    assert first.startswith(f"{method}, 7 variables x 2000 samples: ")
    assert first.endswith(f" of {10**9:,} bytes of device memory")
    assert [line.split(": ")[0] for line in levels] == [f"level {level}" for level in range(found.levels_run)]


@pytest.mark.parametrize("most", [2, 3])
def test_few_ways_of_a_first_search_find_what_all_ways_find(most):
    """A first search on a GPU begins with a kernel that compiles fast."""
    problem = sampled(5, p=10, n=500, most=most, max_level=2)
    slow, fast = Prepared(ready=False), Prepared(ready=True)
    slow.multiprocessors = fast.multiprocessors = 2
    few, all_ways = (run(problem, "gpupc", backend, pmax=True) for backend in (slow, fast))
    assert {name for name in slow.taken if "gpupc" in name} == {"gpupc_level<unsigned char, SHARED, FEW_WAYS>"}
    assert fast.taken & {"gpupc_level<unsigned char, SHARED, ALL_WAYS>", "gpupc_batches<false>"}
    assert few.levels_run == 3
    assert few == all_ways
    np.testing.assert_array_equal(few.pmax, all_ways.pmax)


@pytest.mark.parametrize("name", block_tables.DEFAULTS)
def test_blocks_fit_with_any_parameters(name):
    """Parameters that are not set shrink to fit those that are."""
    sizes = [0, 1, 2, 3, 13, 64, 300, 512]
    for delta, gamma, beta in itertools.product(sizes, sizes, sizes):
        requested = {"delta": delta, "gamma": gamma, "beta": beta}
        if max(delta, 1) * max(gamma, 1) * max(beta, 1) > declarations.MAX_THREADS:
            continue
        shape = block_tables.block_shape(requested, name)
        assert np.prod(list(shape.values())) <= declarations.MAX_THREADS
        assert all(size == requested[each] for each, size in shape.items() if requested[each])
        if not any(requested.values()):
            assert shape == block_tables.DEFAULTS[name]


def test_few_edges_fill_a_gpu(monkeypatch):
    """More threads share a table, and blocks the sets of an edge: a few times as many blocks as a GPU holds, and no
    more than an edge has pairs of sets."""

    def tables(**params):
        run = Run(backend=WatchedBackend(multiprocessors=100), params=get_method("gpupc").parse_params(params))
        return block_tables.BlockTables(sampled(0), run)

    for number, threads in {10**6: 64, 400: 128, 399: 128, 200: 256, 1: 256}.items():
        assert tables().threads_a_table(number, 64) == threads
        assert tables(delta=7).threads_a_table(number, 64) == 7
    monkeypatch.setattr(block_tables, "QUEUED", 4)
    monkeypatch.setattr(block_tables, "MAX_BLOCKS", 1 << 18)
    grid, two = (200, 12), tables(gamma=2)
    for (edges, delta), splits in {(1600, 64): 1, (800, 64): 2, (24, 64): 66, (24, 256): 16, (0, 256): 109}.items():
        assert two.blocks_an_edge(edges, delta, 462, grid) == splits
    assert two.blocks_an_edge(24, 64, 5, grid) == 3
    assert two.blocks_an_edge(1, 64, 10**6, (block_tables.MAX_BLOCKS // 24, 12)) == 2
    assert tables(delta=64).blocks_an_edge(1, 64, 462, grid) == 1
