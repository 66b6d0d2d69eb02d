"""Budgets of device memory are kept, or refused with the bytes that suffice; managed memory is oversubscribed only on
request."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gpupc_impl import DeviceMemoryError, GaussianProblem, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.files import read_csv
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.out_of_core import host_blocks, plans
from tests.graphs import linear_samples

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def make_problem(p: int = 90, max_level: int | None = None) -> GaussianProblem:
    return GaussianProblem.from_data(linear_samples(p, density=3 / p, least=0.2), alpha=0.01, max_level=max_level)


def no_work(*given):
    raise AssertionError("a level was begun")


def test_the_least_budget_is_named_before_any_work_and_does(monkeypatch, caplog):
    caplog.set_level("INFO", "gpupc_impl.out_of_core")
    problem = make_problem()
    least = plans.least_budget(90, True, False)
    with monkeypatch.context() as patched:
        patched.setattr("gpupc_impl.out_of_core.block.BlockSearch.run_level", no_work)
        with pytest.raises(DeviceMemoryError, match=f"needs at least {least:,} bytes .* set device_memory_limit to"):
            skeleton(problem, method="out-of-core-block", backend="host", device_memory_limit=least - 1)
    result = skeleton(problem, method="out-of-core-block", backend="host", device_memory_limit=least)
    assert result.facts["out_of_core"]["peak_device_bytes"] <= least
    assert result.facts["out_of_core"]["least_budget_bytes"] == least
    assert f"90 variables, budget {least:,} bytes" in caplog.records[0].getMessage()
    assert result == skeleton(problem, method="cupc-s", backend="host")


@pytest.mark.parametrize(("n_samples", "max_level"), [(100, 0), (4, None)])
def test_a_search_that_ends_after_level_zero_needs_no_memory_for_level_one(n_samples, max_level):
    problem = GaussianProblem.from_correlation(np.eye(1000), n_samples=n_samples, max_level=max_level)
    result = skeleton(problem, method="out-of-core-block", backend="host", device_memory_limit=22_000)
    assert result.levels_run == 1


@pytest.mark.parametrize("method", ["out-of-core-block", "out-of-core-um"])
def test_the_peak_is_that_of_the_run(method):
    """What the backend held before the run, or holds beside it, does not count."""
    problem, budget, held = make_problem(), 2_000_000, 10_000_000
    alone = solve(problem, get_method(method), open_backend("host", budget))
    expected = alone.facts["out_of_core"]["peak_device_bytes"]
    backend = open_backend("host", held + budget)
    backend.empty(held + budget, np.uint8)
    beside = backend.empty(held, np.uint8)
    for _ in range(2):
        result = solve(problem, get_method(method), backend)
        assert result.facts["out_of_core"]["peak_device_bytes"] == expected
        assert backend.memory_peak == beside.nbytes + expected


def test_the_timeline_tells_every_step(tmp_path):
    path = tmp_path / "timeline.csv"
    options = {"backend": "host", "device_memory_limit": 150_000, "timeline": str(path)}
    result = skeleton(make_problem(), method="out-of-core-block", **options)
    rows = read_csv(path)
    assert list(rows[0]) == ["level", "block", "step", "stream", "start_s", "end_s"]
    assert {row["step"] for row in rows} == {"extract", "transfer", "kernel", "merge"}
    assert {row["stream"] for row in rows} == {"0", "1"}
    assert {int(row["level"]) for row in rows} == set(range(result.levels_run))
    assert all(0 <= float(row["start_s"]) <= float(row["end_s"]) for row in rows)
    for level in result.facts["out_of_core"]["levels"]:
        for step, seconds in level["seconds"].items():
            of_step = [row for row in rows if (row["level"], row["step"]) == (str(level["level"]), step)]
            total = sum(float(row["end_s"]) - float(row["start_s"]) for row in of_step)
            assert total == pytest.approx(seconds, abs=2e-6 * (1 + len(of_step)))
        kernels = {row["block"] for row in rows if (row["level"], row["step"]) == (str(level["level"]), "kernel")}
        assert kernels, "a level without a kernel"


def test_blocks_of_pairs_have_a_stream_and_numbers_of_their_own(tmp_path):
    path, problem = tmp_path / "timeline.csv", make_problem(max_level=1)
    skeleton(problem, method="out-of-core-block", backend="host", layout="blocks", block_size=40, timeline=str(path))
    rows = [row for row in read_csv(path) if row["level"] == "1"]
    streams = {row["block"]: set() for row in rows}
    for row in rows:
        streams[row["block"]].add(row["stream"])
    assert all(len(of_block) == 1 for of_block in streams.values()), "a block in two streams"
    assert sorted(map(int, streams)) == list(range(len(streams)))
    assert sum(of_block == {"2"} for of_block in streams.values()) == 6  # 90 variables: 3 x 4 / 2 blocks of pairs
    assert {row["stream"] for row in rows if row["step"] == "kernel"} == {"0", "1"}
    assert {row["stream"] for row in rows if row["step"] == "merge"} == {"2"}


@pytest.mark.slow
def test_twenty_thousand_variables_in_two_gigabytes(tmp_path):
    """Levels 0 and 1 of a sparse problem with its matrix in a file take less than 4 GiB of process memory."""
    script = f"""
        import numpy as np
        from gpupc_impl import skeleton
        from gpupc_impl.gaussian import large
        from gpupc_impl.measurement.worker import peak_process_bytes
        from gpupc_impl.out_of_core import host_blocks

        host_blocks.KEPT_SHARE = 0  # as where the matrix takes most of the memory
        rng = np.random.default_rng(0)
        data = rng.standard_normal((200, 20_000))
        for j in range(1, 20_000):
            data[:, j] += data[:, rng.integers(0, j, 2)] @ rng.uniform(0, 0.9, 2)
        problem = large.problem_from_data(data, {str(tmp_path / "correlation.npy")!r}, alpha=0.01, max_level=1)
        found = skeleton(problem, method="out-of-core-block", backend="host", device_memory_limit=2 * 2**30)
        assert found.levels_run == 2 and found.edges_per_level[0] > 2_000_000, found.edges_per_level
        assert found.facts["out_of_core"]["peak_device_bytes"] <= 2 * 2**30
        assert peak_process_bytes() < 4 * 2**30, peak_process_bytes()
        print(found.seconds_per_level, peak_process_bytes())
    """
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("max_level", "pmax"), [(None, False), (0, False), (None, True)])
def test_managed_memory_is_never_oversubscribed_unasked(monkeypatch, max_level, pmax):
    problem = make_problem(max_level=max_level)
    needed = plans.managed_bytes(90, max_level, pmax)
    with monkeypatch.context() as patched:
        patched.setattr("gpupc_impl.gaussian.level_search.GaussianSearch.run_level", no_work)
        with pytest.raises(DeviceMemoryError, match=f"may need {needed:,} bytes .* allow_oversubscription"):
            skeleton(problem, method="out-of-core-um", backend="host", device_memory_limit=needed - 1, pmax=pmax)
    result = skeleton(problem, method="out-of-core-um", backend="host", device_memory_limit=needed, pmax=pmax)
    assert result.facts["out_of_core"]["peak_device_bytes"] <= needed
    assert result.facts["out_of_core"]["forecast_bytes"] == needed
    expected = skeleton(problem, method="cupc-s", backend="host", pmax=pmax)
    assert result == expected


def test_managed_memory_holds_edges_that_all_go_at_level_two():
    """Variables 0 and 1 together separate all others, but neither does alone, so sets take more than at level 1."""
    p = 150
    weights = np.random.default_rng(0).uniform(0.4, 0.6, (p - 2, 2))
    factors = np.concatenate([np.eye(2), weights])
    correlation = factors @ np.array([[1.0, 0.2], [0.2, 1.0]]) @ factors.T
    np.fill_diagonal(correlation, 1)
    problem = GaussianProblem.from_correlation(correlation, n_samples=100_000, max_level=2)
    needed = plans.managed_bytes(p, 2, False)
    result = skeleton(problem, method="out-of-core-um", backend="host", device_memory_limit=needed)
    every, others = p * (p - 1) // 2, (p - 2) * (p - 3) // 2
    assert result.edges_per_level[:2] == (every, every)
    assert result.edges_per_level[2] <= every - others
    assert plans.managed_bytes(p, 1, False) < result.facts["out_of_core"]["peak_device_bytes"] <= needed


def test_managed_memory_is_oversubscribed_when_asked():
    problem, options = make_problem(), {"device_memory_limit": 1000, "allow_oversubscription": True}
    result = skeleton(problem, method="out-of-core-um", backend="host", **options)
    assert result.facts["out_of_core"]["peak_device_bytes"] > 1000
    assert result == skeleton(problem, method="cupc-s", backend="host")


def test_managed_memory_on_a_device_that_seems_smaller():
    problem = make_problem(p=300, max_level=1)
    needed = plans.managed_bytes(300, 1, False) + plans.pair_bytes(300)
    assert 2_000_000 < needed < 4_000_000
    with pytest.raises(DeviceMemoryError, match=rf"may need {needed:,} bytes .* of 2,000,000 bytes"):
        skeleton(problem, method="out-of-core-um", backend="host", level_one="pairs", device_mb=2)
    result = skeleton(problem, method="out-of-core-um", backend="host", level_one="pairs", device_mb=4)
    assert result == skeleton(problem, method="cupc-s", backend="host")
    assert result.facts["out_of_core"]["budget_bytes"] == 4_000_000
    assert result.facts["out_of_core"]["peak_device_bytes"] <= needed


def test_the_budget_holds_again_after_managed_memory():
    backend = open_backend("host", 1000)
    with backend.managed_memory(oversubscribe=True):
        array = backend.empty(2000, np.uint8)
    assert backend.memory_used == 2000
    with pytest.raises(DeviceMemoryError):
        backend.empty(1, np.uint8)
    del array
    with backend.managed_memory(), pytest.raises(DeviceMemoryError):
        backend.empty(2000, np.uint8)


def test_copies_and_fills_of_a_stream():
    backend = open_backend("host")
    stream, host = backend.stream(), backend.host_empty((3, 4), np.int32)
    host[:] = np.arange(12).reshape(3, 4)
    device = backend.empty(12, np.uint32)
    first = stream.record()
    stream.copy(device, host)
    host[:] = 0
    stream.copy(host, device)
    assert host.ravel().tolist() == list(range(12))
    stream.fill_bytes(device[4:8], 0xFF)
    stream.wait(first)
    stream.synchronize()
    assert backend.download(device).tolist() == [0, 1, 2, 3, *[2**32 - 1] * 4, 8, 9, 10, 11]
    assert stream.record().seconds_since(first) > 0
    for wrong in (device[:3], device[::2]):
        with pytest.raises(ValueError, match="cannot copy"):
            stream.copy(wrong, host)


@pytest.mark.parametrize(("share", "released"), [(0.9, True), (1.1, False)])
def test_a_matrix_stays_mapped_where_it_takes_little_of_the_memory(tmp_path, monkeypatch, share, released):
    np.save(tmp_path / "a.npy", np.zeros((256, 256)))
    matrix, seen = np.load(tmp_path / "a.npy", mmap_mode="r"), []
    monkeypatch.setattr(host_blocks.mapped_arrays, "release", seen.append)
    monkeypatch.setattr(host_blocks, "memory_bytes", lambda: matrix.nbytes)
    monkeypatch.setattr(host_blocks, "KEPT_SHARE", share)
    host_blocks.release_large(matrix)
    host_blocks.release_large(np.zeros((1024, 1024)))
    assert len(seen) == released
