"""The shape of gpuPC's blocks, and how many of them share an edge."""

import itertools

import numpy as np
import pytest

from gpupc_impl.backends import open_backend
from gpupc_impl.core.registry import Run, get_method
from gpupc_impl.discrete import block_tables
from gpupc_impl.discrete.declarations import MAX_THREADS
from gpupc_impl.discrete.problem import DiscreteProblem


@pytest.fixture
def gpu(monkeypatch):
    """The host backend with the multiprocessors of a GPU."""
    backend = open_backend("host")
    monkeypatch.setattr(backend, "multiprocessors", 100, raising=False)
    return backend


def tables_on(backend, params):
    problem = DiscreteProblem.from_data(np.random.default_rng(0).integers(0, 4, (400, 8)))
    run = Run(backend=backend, params=get_method("gpupc").parse_params(params))
    return block_tables.BlockTables(problem, run)


@pytest.mark.parametrize("name", block_tables.DEFAULTS)
def test_blocks_fit_with_any_parameters(name):
    """Parameters that are not set shrink to fit those that are."""
    sizes = [0, 1, 2, 3, 13, 64, 300, 512]
    for delta, gamma, beta in itertools.product(sizes, sizes, sizes):
        requested = {"delta": delta, "gamma": gamma, "beta": beta}
        if max(delta, 1) * max(gamma, 1) * max(beta, 1) > MAX_THREADS:
            continue
        shape = block_tables.block_shape(requested, name)
        assert np.prod(list(shape.values())) <= MAX_THREADS
        assert all(size == requested[each] for each, size in shape.items() if requested[each])
        if not any(requested.values()):
            assert shape == block_tables.DEFAULTS[name]


def test_threads_a_table_fill_a_gpu(gpu):
    """There are the paper's 64, more where a level has few edges, fewer for all pairs, or as many as requested."""
    tables = tables_on(gpu, {})
    assert [tables.threads_a_table(number, 64) for number in (10**6, 400, 399, 200, 1)] == [64, 128, 128, 256, 256]
    assert tables.threads_a_table(1, 64, 128) == 128
    assert tables.threads_a_table(10**6, 32) == 32
    tables = tables_on(gpu, {"delta": 7})
    assert tables.threads_a_table(1, 64) == tables.threads_a_table(10**6, 32) == 7


def test_blocks_share_the_sets_of_few_edges(gpu, monkeypatch):
    """Blocks are a few times as many as a GPU holds, and no more than an edge has pairs of sets."""
    grid = (200, 12)
    tables = tables_on(gpu, {"gamma": 2})
    monkeypatch.setattr(block_tables, "QUEUED", 4)
    monkeypatch.setattr(block_tables, "MAX_BLOCKS", 1 << 18)
    splits = {(4000, 64): 1, (1600, 64): 1, (800, 64): 2, (24, 64): 66, (24, 256): 16, (0, 256): 109}
    assert {(units, delta): tables.blocks_an_edge(units, delta, 462, grid) for units, delta in splits} == splits
    assert tables.blocks_an_edge(24, 64, 5, grid) == 3
    assert tables.blocks_an_edge(1, 64, 10**6, (block_tables.MAX_BLOCKS // 24, 12)) == 2
    assert tables_on(gpu, {"delta": 64}).blocks_an_edge(1, 64, 462, grid) == 1
