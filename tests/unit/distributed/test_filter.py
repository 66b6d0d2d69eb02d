"""Levels 0 and 1 by products of a library: bounds that hold and are needed, canonical answers, shards and memory."""

import contextlib
import dataclasses
import sys
import types

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl import BackendUnavailable, DeviceMemoryError, InvalidParameter
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.distributed import edge_shards, filter_plan, row_search, team, worker
from gpupc_impl.distributed import filter as filtered
from gpupc_impl.distributed.communicator import ThreadCommunicator
from gpupc_impl.distributed.correlations import fixed_order_correlation, fixed_order_problem
from gpupc_impl.distributed.edge_shards import EdgeShards
from gpupc_impl.distributed.filter_bounds import NEEDED_SLACK, needed_product
from gpupc_impl.distributed.filter_plan import LISTS
from gpupc_impl.distributed.products import PartProducts, Products
from gpupc_impl.distributed.team import further_backends
from gpupc_impl.distributed.worker import Worker, searching
from tests.wide import alpha_at, assert_same, in_core, near_threshold, sample, search

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def test_all_kernels_of_a_search_are_requested(monkeypatch):
    taken, kernel = set(), HostBackend.kernel

    def take(self, source, expression, *more):
        taken.add((str(source), expression))
        return kernel(self, source, expression, *more)

    monkeypatch.setattr(HostBackend, "kernel", take)
    search(sample(np.random.default_rng(0), 40, 300, 4.0), 0.05, max_level=3)
    assert taken
    assert taken <= {each[:2] for each in searching("host")}


class Worst(Products):
    """Products as wrong as their bound allows: 0.9 of it from the exact ones, beyond a root, or anywhere."""

    def __init__(self, samples, root, error, claimed):
        self._samples, self._root, self.error, self._off = samples, root, claimed, 0.9 * error
        self._rng = np.random.default_rng(0)

    def multiply(self, library, rows, columns, out):
        exact = self._samples[rows] @ self._samples[columns].T
        sides = np.where(np.abs(exact) > self._root, -1, 1) * np.sign(exact)
        out[...] = exact + self._off * (sides if self._root else self._rng.choice([-1, 1], exact.shape))


@pytest.mark.parametrize("error", [1e-6, 1e-3])
def test_products_on_the_wrong_side_of_the_threshold(monkeypatch, error):
    """Thresholds within the bound of a pair's correlation. With half the bound some of the answers are others."""
    rng = np.random.default_rng(3)
    m, p = 40, 30
    x = sample(rng, p, m, 3)
    r, wrong = np.abs(fixed_order_correlation(x)), 0
    for i, j in ((0, 7), (11, 3)):
        for offset in (-0.8, -0.3, 0.3, 0.8):
            alpha = alpha_at(r[i, j] + offset * error, m, 0)
            root = fixed_order_problem(x, alpha=alpha, max_level=0).critical_r_squared(0) ** 0.5
            assert 0.1 * error < abs(root - r[i, j]) < 0.9 * error
            expected = in_core(x, alpha, max_level=0)
            for share in (1, 0.5):
                wrong_by = {"root": root, "error": error, "claimed": share * error}
                monkeypatch.setattr(filtered, "DoubleProducts", lambda _, x, at, how=wrong_by: Worst(x, **how))
                found = search(x, alpha, max_level=0)
                if share == 1:
                    assert_same(found, expected)
                else:
                    wrong += not np.array_equal(found.adjacency, expected.adjacency)
    assert wrong >= 4


@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), error=st.sampled_from([1e-7, 4e-5, 1e-3]))
def test_wrong_products_of_either_level(seed, error):
    rng = np.random.default_rng(seed)
    x = sample(rng, 60, int(rng.integers(20, 80)), 8, rng.integers(4))
    alpha = near_threshold(rng, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtered, "DoubleProducts", lambda backend, samples, _: Worst(samples, 0, error, error))
        patch.setattr(filtered, "SPARSENESS", 1e9)
        result = search(x, alpha, max_level=1)
    assert_same(result, in_core(x, alpha, max_level=1))


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_products_of_parts_are_within_their_bound(data):
    """Sums are exact, so that only what parts leave of samples is lost; nearly all of the bound, if it is parallel."""
    m, p = data.draw(st.integers(3, 3000)), 6
    rng, backend = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), HostBackend()
    x = rng.standard_t(data.draw(st.sampled_from([1, 3, 100])), (p, m))
    x[1] = x[0] + data.draw(st.sampled_from([0, 1e-3])) * x[1]
    # Two vectors with entries of one size: all errors of rounding have one sign in their product.
    m -= m % 2
    x = x[:, :m] if m > 2 else x[:, :2]
    x[2:4] = np.where(np.arange(x.shape[1]) % 2, 1.0, -1.0)
    x -= x.mean(axis=1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    parts, out = PartProducts(backend, backend.upload(x)), backend.empty((p, p), np.float32)
    parts.multiply(np, slice(0, p), slice(0, p), out)
    error = np.abs(out - x.astype(np.longdouble) @ x.astype(np.longdouble).T)
    assert error.max() < parts.error
    event(f"{int(10 * error.max() / parts.error)} tenths of the bound")


@pytest.mark.parametrize("off_by", [0.0, 1e-15, -1e-12, 1e-9])
def test_tests_of_level_one_at_the_threshold(off_by):
    rng = np.random.default_rng(5)
    m, p = 60, 40
    x = sample(rng, p, m, 4)
    c = fixed_order_correlation(x)
    for i, j, k in ((0, 1, 2), (5, 30, 9), (12, 20, 39)):
        r = (c[i, j] - c[i, k] * c[j, k]) / np.sqrt((1 - c[i, k] ** 2) * (1 - c[j, k] ** 2))
        alpha = alpha_at(abs(r) + off_by, m, 1)
        assert_same(search(x, alpha, max_level=1), in_core(x, alpha, max_level=1))


@pytest.mark.parametrize("error", [2.0**-25, 4e-5, 1e-3])
@pytest.mark.parametrize("critical", [1e-4, 0.0066, 0.3, 0.6])
def test_the_bound_of_the_excess_holds_and_half_of_it_does_not(critical, error):
    """The arithmetic of `excess` in single precision, on tests whose excess is zero but for errors of products."""
    rng, single, double = np.random.default_rng(0), np.float32, np.float64
    x, y = rng.uniform(-1, 1, (2, 500_000))
    x[:50_000] = y[:50_000] = 0.58 * rng.choice([-1, 1], 50_000)  # where errors matter most
    side = rng.choice([-1, 1], x.shape)
    r = np.sqrt(critical * (1 - x * x) * (1 - y * y)) * side + x * y
    x, y, r, side = (values[np.abs(r) <= 1] for values in (x, y, r, side))
    r_off, x_off, y_off = r + side * error, x - side * np.sign(y) * error, y - side * np.sign(x) * error
    if error < 1e-7:
        r_off, x_off, y_off = r, x, y
    x, y, r = (values.astype(single).astype(double) for values in (x_off, y_off, r_off))
    h = (r - x * y).astype(single)  # a fused operation rounds once; so does this, since double holds the product
    variances = (1 - x * x).astype(single), (1 - y * y).astype(single)
    possible = single(critical) * (variances[0] * variances[1])
    found = np.abs(h.astype(double) ** 2 - possible.astype(double)).max()
    assert 0.5 < found / filtered.excess_bound(error, critical) < 1


@pytest.mark.parametrize("error", [2.0**-24, 4e-5, 1e-3])
@pytest.mark.parametrize("critical", [1e-6, 1e-4, 0.0066, 0.1, 0.24])
def test_a_separating_candidate_is_in_a_list_of_either_end(critical, error):
    """The bound on r_ik r_jk, at its limit: two equal correlations, an excess of zero, products off by the bound."""
    rng, single = np.random.default_rng(1), np.float32
    x = rng.uniform(0, 1, 200_000)
    y = np.where(rng.random(x.shape) < 0.7, x, rng.uniform(0, 1, x.shape))
    r = x * y + np.sqrt(critical * (1 - x * x) * (1 - y * y)) + error
    stored = (np.maximum(x, y) - error).clip(0).astype(single)
    scale, offset = map(single, needed_product(critical, error))

    def needed(offset):
        return (np.abs(r).astype(single).astype(float) * scale - offset).astype(single)

    assert (needed(offset) < stored * stored).all()
    assert (needed(offset - single(NEEDED_SLACK + 2 * error)) > stored * stored).any(), "no slack would do as well"
    assert needed(offset).max() > 0.9, "the bound is of use"


def test_strong_correlations_need_few_tests():
    """Regulators with many genes: few candidates can separate genes of two regulators."""
    rng = np.random.default_rng(3)
    regulators = rng.standard_normal((1000, 20)) + 0.8 * rng.standard_normal((1000, 1))
    x = 0.6 * regulators.repeat(15, axis=1) + 0.8 * rng.standard_normal((1000, 300))
    x[:, ::15] = regulators
    result, expected = search(x, 0.01, max_level=1), in_core(x, 0.01, max_level=1)
    assert_same(result, expected)
    assert result.tests_per_level[1] < expected.tests_per_level[1] / 2


def test_undecided_tests_are_decided_by_canonical_ones(monkeypatch):
    """With a bound beyond all values every test is, and the answer is the same."""
    x = sample(np.random.default_rng(8), 30, 50, 3)
    monkeypatch.setattr(filtered, "excess_bound", lambda error, critical: 10.0)
    result = search(x, 0.05, max_level=1)
    counts = result.facts["distributed"]["counts"]
    assert counts["rechecked"] == counts["tests"] > 100
    assert_same(result, in_core(x, 0.05, max_level=1))


def test_a_list_that_is_too_long_makes_blocks_smaller(monkeypatch):
    """All pairs are neighbours, and lists are planned for one in sixteen."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 96)) + 2 * rng.standard_normal((50, 1))
    choose = filter_plan.choose

    def planned(*sizes):
        return dataclasses.replace(choose(*sizes), candidates=96, neighbours=LISTS * 32 * 96, open_edges=10)

    monkeypatch.setattr(filter_plan, "choose", planned)
    result = search(x, 0.05, max_level=1)
    assert result.edges_per_level[0] == 96 * 95 // 2
    assert_same(result, in_core(x, 0.05, max_level=1))


@pytest.mark.parametrize("open_edges", [0, 10**6])
@pytest.mark.parametrize("p", [320, 333])
def test_devices_share_what_they_find(monkeypatch, open_edges, p):
    """Blocks of 32 candidates on two devices: within a block a device does not know what the other one finds."""
    x = sample(np.random.default_rng(7), p, 60, 6)
    choose, from_others, exchanges = filter_plan.choose, ThreadCommunicator.from_others, []

    def planned(*sizes):
        return dataclasses.replace(choose(*sizes), candidates=32, tile=64 * p, open_edges=open_edges, read=500)

    def counted(self, own):
        exchanges.append(self.number)
        return from_others(self, own)

    monkeypatch.setattr(filter_plan, "choose", planned)
    one, expected = search(x, 0.1, max_level=2), in_core(x, 0.1, max_level=2)
    monkeypatch.setattr(ThreadCommunicator, "from_others", counted)
    two = search(x, 0.1, max_level=2, workers=2)
    assert_same(one, expected)
    assert_same(two, expected)
    assert two.facts["distributed"]["workers"] == 2
    assert one.tests_per_level[1] < two.tests_per_level[1] < 1.5 * one.tests_per_level[1]
    assert exchanges.count(0) == exchanges.count(1) == (1 if open_edges else 2) * -(-p // 64)


def test_only_the_samples_stay_on_devices_after_level_one(monkeypatch):
    left, take = [], Worker.take_graph
    used = lambda of: left.append(of._backend.memory_used - of._rows.nbytes)  # noqa: E731
    monkeypatch.setattr(Worker, "take_graph", lambda self, graph: used(self) or take(self, graph))
    search(sample(np.random.default_rng(4), 60, 50, 8), 0.2, max_level=2, workers=2)
    assert left == [0, 0]


class FakeGpu(HostBackend):
    """The GPU that is current when it is opened."""

    name, current = "cuda", 0

    def __init__(self, limit=None):
        if FakeGpu.current == 2:
            raise BackendUnavailable("in use")
        super().__init__(limit)
        self.number = FakeGpu.current

    def device_key(self):
        return str(self.number)


@pytest.mark.parametrize("block", [1, 16, 64])
def test_separating_sets_of_many_variables(monkeypatch, tmp_path, block):
    """The variables are more than a block."""
    for module in (edge_shards, worker):
        monkeypatch.setattr(module, "BLOCK", block)
    x = sample(np.random.default_rng(11), 60, 80, 8)
    expected = in_core(x, 0.1, max_level=2)
    for _ in range(2):  # the second time from the folder
        result = search(x, 0.1, max_level=2, workers=2, folder=tmp_path)
        assert [result.sepsets[pair] for pair in expected.sepsets] == list(expected.sepsets.values())
        assert_same(result, expected)


def test_separating_sets_of_level_one_are_read_only_when_asked_for(monkeypatch):
    monkeypatch.setattr(EdgeShards, "removed", lambda self: pytest.fail("all sets were read"))
    found = search(sample(np.random.default_rng(0), 40, 300, 4.0), 0.05)
    pairs = [(i, j) for i, j in np.argwhere(~found.adjacency) if i < j]
    assert any(len(found.sepsets[pair]) == 1 for pair in pairs)


@pytest.mark.parametrize(("workers", "found"), [(0, [0, 3]), (1, []), (3, [0, 3])])
def test_all_gpus_but_those_in_use_search_together(monkeypatch, workers, found):
    @contextlib.contextmanager
    def device(number):
        monkeypatch.setattr(FakeGpu, "current", number)
        yield

    runtime = types.SimpleNamespace(getDeviceCount=lambda: 4)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime, Device=device))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(FakeGpu, "current", 1)
    own = FakeGpu(1 << 20)
    others, of_next_search = (list(further_backends(own, workers)) for _ in range(2))
    assert [other.number for other in others] == found
    assert {other.device_memory_limit for other in others} <= {1 << 20}
    assert not {*others} & {*of_next_search}  # searches in several threads share no backend


@pytest.mark.parametrize(("least", "asked"), [(60 * 50**2 + 1, []), (60 * 50**2, [0])])
def test_only_large_problems_ask_for_all_gpus(monkeypatch, least, asked):
    requested = []
    monkeypatch.setattr(team, "SHARED_PRODUCTS", least)
    monkeypatch.setattr(team, "further_backends", lambda backend, workers: requested.append(workers) or [])
    search(sample(np.random.default_rng(4), 50, 60, 8), 0.1, max_level=1)
    assert requested == asked


def test_an_error_on_a_device_ends_the_search_with_it(monkeypatch):
    launch = filtered.FilteredLevels._scan

    def failing(self, *arguments):
        if self._workers.number == 1:
            raise DeviceMemoryError(1, 2, 3)
        return launch(self, *arguments)

    released = []
    monkeypatch.setattr(HostBackend, "release_memory", lambda self: released.append(self.memory_used))
    monkeypatch.setattr(filtered.FilteredLevels, "_scan", failing)
    with pytest.raises(DeviceMemoryError) as failure:
        search(sample(np.random.default_rng(4), 60, 50, 8), 0.1, max_level=1, workers=3)
    assert released == [0, 0, 0], failure  # although the error still exists


@pytest.mark.parametrize("workers", [1, 3])
def test_the_shards_of_an_earlier_search_are_used_if_all_are_there(tmp_path, monkeypatch, workers):
    choose = filter_plan.choose
    monkeypatch.setattr(filter_plan, "choose", lambda *sizes: dataclasses.replace(choose(*sizes), read=100))
    monkeypatch.setattr(filtered, "SPARSENESS", 1e9)  # so that level 1 runs in groups
    x = sample(np.random.default_rng(4), 50, 60, 8)
    limit = 2 * filter_plan.least_device_bytes(60, 50)
    how = {"folder": tmp_path, "device_memory_limit": limit, "max_level": 1, "workers": workers}
    result, expected = search(x, 0.2, **how), in_core(x, 0.2, max_level=1)
    assert_same(result, expected)
    written = sorted(tmp_path.glob("rows-*.npz"))
    assert len(written) > 5
    run_group, made = Worker.run_group, []
    monkeypatch.setattr(Worker, "run_group", lambda *what: made.append(what) or run_group(*what))
    for path in None, written[-1], written[0]:
        if path is not None:
            path.unlink()
        again = search(x, 0.2, **how)
        assert bool(made) == (path is not None)
        assert_same(again, expected)
        assert again.tests_per_level == result.tests_per_level
        assert sorted(tmp_path.glob("rows-*.npz")) == written


def test_the_least_memory_suffices_and_less_is_refused():
    m, p = 40, 100
    x = sample(np.random.default_rng(6), p, m, 3)
    least = filter_plan.least_device_bytes(m, p)
    assert_same(search(x, 0.01, device_memory_limit=least), in_core(x, 0.01))
    with pytest.raises(DeviceMemoryError, match=f"needs {least:,} bytes of device memory .*device_memory_limit"):
        search(x, 0.01, device_memory_limit=least - 1)


def test_more_workers_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(team, "further_backends", lambda backend, workers: iter([]))
    with pytest.raises(InvalidParameter, match="workers is 3; at most 1"):
        search(sample(np.random.default_rng(4), 20, 50, 4), 0.1, workers=3)


def test_the_rows_of_a_launch_are_tested_in_parts_if_they_do_not_fit(monkeypatch):
    x = sample(np.random.default_rng(13), 120, 40, 3)
    launches, limit, launch = [], row_search.bytes_for_rows, row_search.gathered_launch
    monkeypatch.setattr(row_search, "bytes_for_rows", lambda *what: limit(*what) and 8_000)
    monkeypatch.setattr(row_search, "gathered_launch", lambda *what, **how: launches.append(1) or launch(*what, **how))
    assert_same(search(x, 0.2, max_level=2), in_core(x, 0.2, max_level=2))
    assert len(launches) > 10
    monkeypatch.setattr(row_search, "bytes_for_rows", lambda *_: 1000)
    with pytest.raises(DeviceMemoryError, match=r"level 2 needs .* neighbours of .*set max_level to 1"):
        search(x, 0.2, max_level=2)
