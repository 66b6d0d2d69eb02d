"""Levels 0 and 1 by products of a library: bounds that hold and are needed, canonical answers, shards and memory."""

import contextlib
import dataclasses
import os
import sys
import time
import types

import numpy as np
import pytest
import scipy.stats
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl import BackendUnavailable, DeviceMemoryError, InvalidProblem, skeleton
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import methods
from gpupc_impl.core.solve import unavailable
from gpupc_impl.distributed import filter as filtered
from gpupc_impl.distributed import filter_plan, filtered_search, row_shards
from gpupc_impl.distributed.communicator import Communicator, further_backends
from gpupc_impl.distributed.correlations import fixed_order_correlation, fixed_order_problem
from gpupc_impl.distributed.device import prefetch_all
from gpupc_impl.distributed.filter_bounds import NEEDED_SLACK, needed_product
from gpupc_impl.distributed.filter_plan import LISTS

REASON = unavailable(methods()["distributed"], "host")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def search(data, alpha, **options):
    options = {"transpose": False, "backend": "host", **options}
    result = skeleton(data, alpha, method="distributed", **options)
    report = result.facts["distributed"]
    assert "counts" in report, "it ran on a cluster"
    return result


def in_core(data, alpha, **options):
    return skeleton(fixed_order_problem(data, alpha=alpha, **options), method="pair-scan", backend="host")


def assert_same(result, expected):
    assert np.array_equal(result.adjacency, expected.adjacency)
    assert result.sepsets == expected.sepsets
    assert result.edges_per_level == expected.edges_per_level
    assert result.stopped_because == expected.stopped_because


def sample(rng, p, m, degree, copies=0):
    """(m, p) samples of a linear model of that mean degree; copies are columns near or equal to another."""
    weights = np.tril(rng.random((p, p)) < degree / p, -1) * rng.uniform(0.2, 1, (p, p))
    data = np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T
    for noise in rng.choice([0.0, 1e-9, 1e-7, 1e-3], size=copies):
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * rng.standard_normal(m)
    return data[:, rng.permutation(p)]


def test_kernels_are_requested_before_level_zero(monkeypatch):
    requested, taken = set(), set()
    kernel = HostBackend.kernel

    def take(self, source, expression, *more):
        taken.add((str(source), expression))
        return kernel(self, source, expression, *more)

    def request(self, kernels):
        assert not taken
        requested.update(each[:2] for each in kernels)

    monkeypatch.setattr(HostBackend, "prefetch", request)
    prefetch_all(HostBackend())
    monkeypatch.setattr(HostBackend, "kernel", take)
    search(sample(np.random.default_rng(0), 40, 300, 4.0), 0.05, max_level=3)
    assert taken
    assert taken <= requested


def alpha_at(r, samples, level):
    """The significance level whose critical correlation is r."""
    return float(2 * scipy.stats.norm.sf(np.arctanh(abs(r)) * np.sqrt(samples - level - 3)))


def near_threshold(rng, x):
    """A significance level at which a correlation, or a partial correlation given one variable, is the critical one, or
    off it by very little."""
    m, p = x.shape
    level = int(rng.integers(2)) if p > 2 and m > 5 else 0
    i, j, *k = rng.choice(p, 2 + level, replace=False)
    c = fixed_order_correlation(x)
    r = c[i, j]
    if k:
        r = (r - c[i, k[0]] * c[j, k[0]]) / np.sqrt(max(1e-9, (1 - c[i, k[0]] ** 2) * (1 - c[j, k[0]] ** 2)))
    off_by = rng.choice([0.0, 1e-16, 1e-15, 1e-14, 1e-12, 1e-9, 1e-7]) * rng.choice([-1, 1])
    return alpha_at(np.clip(abs(r) + off_by, 0.01, 0.9), m, level)


@settings(
    # 25 examples, and 10,000 with HYPOTHESIS_PROFILE=explore
    max_examples=25 if settings.default.max_examples <= 100 else 20 * settings.default.max_examples,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(seed=st.integers(0, 2**32 - 1))
def test_equals_in_core(seed):
    """In whatever memory and on however many devices: groups of rows, blocks of candidates and lists that end too early
    all depend on them."""
    rng = np.random.default_rng(seed)
    p, m = int(rng.integers(2, 140)), int(rng.integers(6, 120))
    x = sample(rng, p, m, rng.choice([1, 3, 8, 40]), rng.integers(5))
    alpha, max_level = float(rng.choice([0.001, 0.05, 0.2])), int(rng.choice([0, 1, 1, 2, 2 if p > 40 else 4]))
    if rng.integers(2):
        alpha, max_level = near_threshold(rng, x), min(max_level, 1)
    limit = int(rng.choice([1.0, 1.1, 1.5, 4.0, 1e3]) * filter_plan.least_device_bytes(m, p))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtered, "SPARSENESS", rng.choice([0, 32, 1e9]))
        patch.setattr(row_shards, "MEMORY_SHARE", rng.choice([0, 0.5]))  # shards in files or in memory
        patch.setattr(row_shards, "SHORT", rng.choice([0, 1 << 16]))
        workers = int(rng.choice([0, 2, 3]))
        result = search(x, alpha, max_level=max_level, device_memory_limit=limit, workers=workers)
    expected = in_core(x, alpha, max_level=max_level)
    report = result.facts["distributed"]
    event(f"{result.levels_run} levels, {workers} workers, {report['plan']['edges'] < expected.edges_per_level[0]}")
    for i, j in rng.integers(p, size=(10, 2)).tolist():  # single sets are read before all of them are
        if i != j:
            assert result.sepsets.get((i, j)) == expected.sepsets.get((i, j))
    assert_same(result, expected)
    assert report["peak_device_bytes"] <= limit


@contextlib.contextmanager
def worst_library(monkeypatch, root, bound):
    """Matrix products as wrong as the bound allows: 0.95 of it from the exact ones, to the other side of a root."""

    @contextlib.contextmanager
    def array_library(self):
        def matmul(a, b, out):
            exact = (a.astype(np.longdouble) @ b.astype(np.longdouble)).astype(np.float64)
            out[...] = exact + np.where(np.abs(exact) > root, -0.95, 0.95) * np.sign(exact) * bound

        yield types.SimpleNamespace(matmul=matmul, cumsum=np.cumsum, flatnonzero=np.flatnonzero)

    with monkeypatch.context() as patch:
        patch.setattr(HostBackend, "array_library", array_library)
        yield


def test_products_on_the_wrong_side_of_the_threshold(monkeypatch):
    """Thresholds within the bound of a pair's correlation. With half the bound some of the answers are others."""
    rng = np.random.default_rng(3)
    m, p = 40, 30
    x = sample(rng, p, m, 3)
    r, bound = np.abs(fixed_order_correlation(x)), filtered.product_bound(m)
    wrong = 0
    for i, j in ((0, 7), (11, 3), (20, 29)):
        for offset in (-0.8, -0.3, 0.3, 0.8):
            alpha = alpha_at(r[i, j] + offset * bound, m, 0)
            problem = fixed_order_problem(x, alpha=alpha, max_level=0)
            root = problem.critical_r_squared(0) ** 0.5
            assert 0.1 * bound < abs(root - r[i, j]) < 0.9 * bound
            expected = in_core(x, alpha, max_level=0)
            with worst_library(monkeypatch, root, bound):
                assert_same(search(x, alpha, max_level=0), expected)
                with monkeypatch.context() as patch:
                    patch.setattr(filtered, "product_bound", lambda m: bound / 2)
                    wrong += not np.array_equal(search(x, alpha, max_level=0).adjacency, expected.adjacency)
    assert wrong >= 6


@pytest.mark.parametrize("off_by", [0.0, 1e-15, -1e-15, 1e-12, -1e-12, 1e-9, -1e-9])
def test_tests_of_level_one_at_the_threshold(off_by):
    rng = np.random.default_rng(5)
    m, p = 60, 40
    x = sample(rng, p, m, 4)
    c = fixed_order_correlation(x)
    for i, j, k in ((0, 1, 2), (5, 30, 9), (12, 20, 39)):
        r = (c[i, j] - c[i, k] * c[j, k]) / np.sqrt((1 - c[i, k] ** 2) * (1 - c[j, k] ** 2))
        alpha = alpha_at(abs(r) + off_by, m, 1)
        assert_same(search(x, alpha, max_level=1), in_core(x, alpha, max_level=1))


@pytest.mark.parametrize("critical", [1e-4, 0.0066, 0.3, 0.6])
def test_the_bound_of_the_excess_holds_and_half_of_it_does_not(critical):
    """The arithmetic of `excess` in single precision, on tests whose excess is zero but for rounding."""
    rng, single, double = np.random.default_rng(0), np.float32, np.float64
    x, y = rng.uniform(-1, 1, (2, 500_000))
    r = np.sqrt(critical * (1 - x * x) * (1 - y * y)) * rng.choice([-1, 1], x.shape) + x * y
    x, y, r = (values[np.abs(r) <= 1] for values in (x, y, r))
    exact = (r - x * y) ** 2 - critical * (1 - x * x) * (1 - y * y)
    x, y, r = (values.astype(single).astype(double) for values in (x, y, r))
    h = (r - x * y).astype(single)  # a fused operation rounds once; so does this, since double holds the product
    variances = (1 - x * x).astype(single), (1 - y * y).astype(single)
    possible = single(critical) * (variances[0] * variances[1])
    error = np.abs(h.astype(double) ** 2 - possible.astype(double) - exact).max()
    assert 0.5 < error / filtered.excess_bound(1000, critical) < 1


@pytest.mark.parametrize("critical", [1e-6, 1e-4, 0.0066, 0.1, 0.24])
def test_a_separating_candidate_is_in_a_list_of_either_end(critical):
    """The bound on r_ik r_jk in single precision, at its limit: two equal correlations, and an excess of zero."""
    rng, single = np.random.default_rng(1), np.float32
    x = rng.uniform(0, 1, 200_000)
    y = np.where(rng.random(x.shape) < 0.7, x, rng.uniform(0, 1, x.shape))
    r = x * y + np.sqrt(critical * (1 - x * x) * (1 - y * y))
    stored = np.maximum(x, y).astype(single)
    scale, offset = map(single, needed_product(critical))

    def needed(offset):
        return (np.abs(r).astype(single).astype(float) * scale - offset).astype(single)

    assert (needed(offset) < stored * stored).all()
    assert (needed(offset - single(NEEDED_SLACK)) > stored * stored).any(), "no slack would do as well"
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
    monkeypatch.setattr(filtered, "excess_bound", lambda m, critical: 10.0)
    result = search(x, 0.05, max_level=1)
    counts = result.facts["distributed"]["counts"]
    assert counts["rechecked"] == counts["tests"] > 100
    assert_same(result, in_core(x, 0.05, max_level=1))


def test_a_list_that_is_too_long_makes_blocks_smaller(monkeypatch):
    """All pairs are neighbours, and lists are planned for one in sixteen."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 96)) + 2 * rng.standard_normal((50, 1))
    choose = filter_plan.choose

    def planned(m, p, budget):
        plan = choose(m, p, budget)
        return dataclasses.replace(plan, candidates=96, neighbours=LISTS * 32 * p, open_edges=10)

    monkeypatch.setattr(filter_plan, "choose", planned)
    result = search(x, 0.05, max_level=1)
    assert result.edges_per_level[0] == 96 * 95 // 2
    assert_same(result, in_core(x, 0.05, max_level=1))


@pytest.mark.parametrize("open_edges", [0, 10**6])
@pytest.mark.parametrize("p", [320, 333])
def test_devices_share_what_they_find(monkeypatch, open_edges, p):
    """Blocks of 32 candidates on two devices: after some blocks a device does not know what the other one has found."""
    x = sample(np.random.default_rng(7), p, 60, 6)
    choose, exchanges = filter_plan.choose, []
    complete = Communicator.complete

    def planned(m, p, budget):
        return dataclasses.replace(choose(m, p, budget), candidates=32, tile=64 * p, open_edges=open_edges, read=500)

    def counted(self, own, parts):
        exchanges.append(self.number)
        complete(self, own, parts)

    monkeypatch.setattr(filter_plan, "choose", planned)
    one, expected = search(x, 0.1, max_level=2), in_core(x, 0.1, max_level=2)
    monkeypatch.setattr(Communicator, "complete", counted)
    two = search(x, 0.1, max_level=2, workers=2)
    assert_same(one, expected)
    assert_same(two, expected)
    assert two.facts["distributed"]["workers"] == 2
    assert one.tests_per_level[1] < two.tests_per_level[1] < 1.5 * one.tests_per_level[1]
    assert exchanges.count(0) == exchanges.count(1) == 3 + (4 if open_edges else 2 * -(-p // 64))


def test_only_the_samples_stay_on_devices_after_level_one(monkeypatch):
    left, make = [], filtered_search.RowTester.__init__

    def made(self, problem, device, samples):
        left.append(device.backend.memory_used - samples.nbytes)
        make(self, problem, device, samples)

    monkeypatch.setattr(filtered_search.RowTester, "__init__", made)
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
    monkeypatch.setattr(filtered_search, "SHARED_PRODUCTS", least)
    monkeypatch.setattr(filtered_search, "further_backends", lambda backend, workers: requested.append(workers) or [])
    search(sample(np.random.default_rng(4), 50, 60, 8), 0.1, max_level=1)
    assert requested == asked


def test_an_error_on_a_device_ends_the_search_with_it(monkeypatch):
    launch = filtered.FilteredLevels._scan

    def failing(self, *arguments):
        if self._devices.number == 1:
            raise DeviceMemoryError(1, 2, 3)
        return launch(self, *arguments)

    released = []
    monkeypatch.setattr(HostBackend, "release_memory", lambda self: released.append(self.memory_used))
    monkeypatch.setattr(filtered.FilteredLevels, "_scan", failing)
    with pytest.raises(DeviceMemoryError) as failure:
        search(sample(np.random.default_rng(4), 60, 50, 8), 0.1, max_level=1, workers=3)
    assert released == [0, 0, 0], failure  # although the error still exists


def test_an_error_at_a_later_level_stops_all_devices(monkeypatch):
    tested, search_rows = [], filtered_search.search_rows

    def failing(tester, *arguments):
        if tester._device.number == 0:
            raise KeyboardInterrupt
        while not tester._device._barrier.broken:
            time.sleep(0.001)
        tested.append(search_rows(tester, *arguments))

    monkeypatch.setattr(filtered_search, "search_rows", failing)
    with pytest.raises(KeyboardInterrupt):
        search(sample(np.random.default_rng(4), 60, 50, 8), 0.2, max_level=2, workers=3)
    assert not tested


def test_a_search_with_a_folder_goes_on_where_it_ended(tmp_path, monkeypatch):
    m, p = 60, 50
    x = sample(np.random.default_rng(4), p, m, 8)
    how = {"folder": tmp_path, "device_memory_limit": filter_plan.least_device_bytes(m, p), "max_level": 2}
    expected = in_core(x, 0.2, max_level=2)
    write, groups = row_shards.RowShards.write, []

    def interrupted(self, backend, group, counts, most):
        groups.append(group.rows)
        if len(groups) == 3:
            raise KeyboardInterrupt
        write(self, backend, group, counts, most)

    with monkeypatch.context() as patch:
        patch.setattr(row_shards.RowShards, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search(x, 0.2, **how)
    before = {path: path.read_bytes() for path in tmp_path.glob("rows/*.npz")}
    assert len(before) > 1
    assert_same(result := search(x, 0.2, **how), expected)
    after = {path: path.read_bytes() for path in tmp_path.glob("rows/*.npz")}
    assert before.items() <= after.items()
    assert result.facts["distributed"]["shard_bytes"] == sum(map(len, after.values())) - sum(map(len, before.values()))
    damaged = sorted(after)[len(after) // 2]
    damaged.write_bytes(after[damaged][:-7])
    again = search(x, 0.2, **how)
    assert_same(again, expected)
    assert again.tests_per_level[1] == result.tests_per_level[1]
    assert {path: path.read_bytes() for path in tmp_path.glob("rows/*.npz")} == after
    with pytest.raises(InvalidProblem, match="another alpha"):
        search(x, 0.1, **how)


@pytest.mark.parametrize("name", ["rows", "level-9"])
def test_links_in_the_folder_of_a_search_are_refused(tmp_path, name):
    """Another user who may write there would have files deleted or written elsewhere."""
    x = sample(np.random.default_rng(4), 20, 50, 4)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "000000000-000000020.npz").write_text("mine")
    (folder := tmp_path / "folder").mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(InvalidProblem, match=f"'{name}' in folder .* is a link, .* remove the link"):
        search(x, 0.2, folder=folder)
    assert [path.read_text() for path in elsewhere.iterdir()] == ["mine"]


def test_files_of_others_in_the_folder_of_a_search_are_no_shards(tmp_path):
    x = sample(np.random.default_rng(4), 20, 50, 4)
    (tmp_path / "rows").mkdir()
    for name in ("²-20.npz", "0-20.npz", "-.npz", "000000000-000000000.npz", f"0-{'9' * 200}.npz"):
        (tmp_path / "rows" / name).write_text("a stranger's")
    os.mkfifo(tmp_path / "rows/000000000-000000020.npz")
    assert_same(search(x, 0.2, folder=tmp_path), in_core(x, 0.2))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_tests_of_a_group_that_was_written_in_part_are_counted_once(tmp_path, monkeypatch, workers):
    choose = filter_plan.choose
    monkeypatch.setattr(filter_plan, "choose", lambda *sizes: dataclasses.replace(choose(*sizes), read=100))
    monkeypatch.setattr(filtered, "SPARSENESS", 1e9)  # so that level 1 runs in groups
    m, p = 60, 50
    x = sample(np.random.default_rng(4), p, m, 8)
    least = filter_plan.least_device_bytes(m, p)
    how = {"folder": tmp_path, "device_memory_limit": 2 * least, "max_level": 1, "workers": workers}
    result = search(x, 0.2, **how)
    expected = in_core(x, 0.2, max_level=1)
    assert_same(result, expected)
    written = sorted(tmp_path.glob("rows/*.npz"))
    assert len(written) > 5
    for path in written[-1], written[1], written[0]:
        path.unlink()
        again = search(x, 0.2, **how)
        assert_same(again, expected)
        assert again.tests_per_level == result.tests_per_level
        assert sorted(tmp_path.glob("rows/*.npz")) == written


def test_the_least_memory_suffices_and_less_is_left_to_panels():
    m, p = 40, 100
    x = sample(np.random.default_rng(6), p, m, 3)
    least = filter_plan.least_device_bytes(m, p)
    assert_same(search(x, 0.01, device_memory_limit=least), in_core(x, 0.01))
    with pytest.raises(DeviceMemoryError, match="in panels of"):
        skeleton(x, 0.01, method="distributed", backend="host", transpose=False, device_memory_limit=least // 4)
