"""Graphs of bits and lists of separating sets on the device, on the host backend."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import SeparatingSets
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.engine.bit_graph import BitGraphs, LevelCounts
from gpupc_impl.engine.separating_sets import LevelSets, download_result

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def random_graph(p: int, density: float, seed: int) -> np.ndarray:
    """(p, p) bool, symmetric."""
    upper = np.triu(np.random.default_rng(seed).random((p, p)) < density, 1)
    return upper | upper.T


def put(graphs: BitGraphs, number: int, adjacency: np.ndarray) -> None:
    """Write a graph as kernels do: variable j is bit j % 32 of word j // 32."""
    padded = np.zeros((graphs.p, 32 * graphs.words), np.uint8)
    padded[:, : graphs.p] = adjacency
    graphs.struct.values["bits"][number] = np.packbits(padded, axis=1, bitorder="little").view("<u4")


def test_the_last_fused_level_that_ended_is_the_present_one(backend):
    graphs = BitGraphs(backend, 40, 1)
    written = {1: (200, 9), 2: (120, 7), 3: (80, 5), 4: (60, 3)}  # level 4 began but did not end
    for level, (degree_sum, most_degree) in written.items():
        counted = dict.fromkeys(LevelCounts._fields, 0)
        counted |= {"degree_sum": degree_sum, "most_degree": most_degree, "ended": level < 4}
        graphs._counters[level] = list(counted.values())
    found = graphs.read_fused(2, 4)
    assert [(each.degree_sum, each.most_degree) for each in found] == [(200, 9), (120, 7), (80, 5)]
    assert (graphs.edges, graphs.most_degree) == (40, 5)


@pytest.mark.parametrize("p", [1, 2, 31, 32, 33, 127, 128, 129, 300])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_what_is_left_after_a_level(backend, p, density):
    """Degrees, their sum and maximum, and the number of removed pairs with a larger variable in each row are right."""
    before = random_graph(p, density, seed=p)
    after = before & random_graph(p, 0.5, seed=p + 1)
    graphs = BitGraphs(backend, p, 3)
    assert graphs.words == 4 * math.ceil(p / 128)
    assert (graphs.edges, graphs.most_degree) == (p * (p - 1) // 2, p - 1)
    put(graphs, 2, before)
    put(graphs, 0, after)
    graphs.count(2, 0, level=5)
    counted = graphs.read(5)
    degrees = after.sum(axis=1)
    assert counted.degree_sum == degrees.sum()
    assert counted.most_degree == graphs.most_degree == degrees.max()
    assert graphs.edges == np.triu(after).sum()
    np.testing.assert_array_equal(graphs.struct.values["degrees"], degrees)
    np.testing.assert_array_equal(graphs.struct.values["removed"], np.triu(before & ~after).sum(axis=1))
    for graph, expected in ((0, after), (2, before)):
        np.testing.assert_array_equal(backend.download(graphs.entries(graph)), expected)


def on_device(backend: HostBackend, adjacency: np.ndarray, found: list[tuple[np.ndarray, ...]]) -> SeparatingSets:
    levels = [LevelSets(backend.upload(pairs), backend.upload(sets)) for pairs, sets in found]
    downloaded, merged = download_result(backend, backend.upload(adjacency.view(np.uint8)), levels)
    np.testing.assert_array_equal(downloaded, adjacency)
    return merged


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lists_of_sets_are_those_of_from_levels(backend, data):
    """There may be any number of levels with any number of pairs, each pair in one of them."""
    p, levels = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 15))
    level_of = st.one_of(st.none(), st.integers(1, levels))
    chosen = {pair: data.draw(level_of, label=str(pair)) for pair in itertools.combinations(range(p), 2)}
    rng = np.random.default_rng(0)
    found = []
    for level in range(1, levels + 1):
        pairs = [pair for pair, own in chosen.items() if own == level]
        if pairs:
            sets = np.sort(rng.integers(0, 1000, (len(pairs), level), np.int32), axis=1)
            found.append((np.array(pairs, np.int32), sets))
    adjacency = np.zeros((p, p), bool)
    merged = on_device(backend, adjacency, found)
    expected = SeparatingSets.from_levels(adjacency, found)
    assert merged == expected
    assert merged.sha256 == expected.sha256
    for name in ("pairs", "offsets", "members"):
        assert getattr(merged, name).dtype == getattr(expected, name).dtype, name
    assert dict(merged) == dict(expected)


def test_lists_longer_than_a_block(backend):
    """The lists have more pairs than one launch has threads."""
    p = 300
    pairs = np.array(list(itertools.combinations(range(p), 2)), np.int32)
    level_of = np.random.default_rng(0).choice([1, 2, 7], len(pairs), p=[0.9, 0.0999, 0.0001])
    found = [(pairs[level_of == level], np.repeat(pairs[level_of == level, :1], level, axis=1)) for level in (1, 2, 7)]
    adjacency = np.zeros((p, p), bool)
    merged = on_device(backend, adjacency, found)
    assert merged == SeparatingSets.from_levels(adjacency, found)
