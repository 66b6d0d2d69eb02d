"""Method `distributed` finds what methods in core find with its correlations, on any cluster, whatever fails."""

import contextlib
import errno
import gc
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpupc_impl import (
    BackendUnavailable,
    BackgroundKnowledge,
    DeviceMemoryError,
    GaussianProblem,
    InvalidParameter,
    InvalidProblem,
    bootstrap,
    methods,
    skeleton,
)
from gpupc_impl.backends.cuda import CudaBackend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.solve import unavailable
from gpupc_impl.distributed import _cluster, _plan, _search, _shards, _worker
from gpupc_impl.distributed.correlations import fixed_order_problem

REASON = unavailable(methods()["distributed"], "host")
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.xdist_group("distributed")]

ROOT = Path(__file__).parents[2]
MB = 1 << 20


def sample(rng: np.random.Generator, p: int, m: int, degree: float, copies: int = 0) -> np.ndarray:
    """(m, p) samples of a linear model of that mean degree; copies are columns near or equal to another."""
    weights = np.tril(rng.random((p, p)) < degree / p, -1) * rng.uniform(0.2, 1, (p, p))
    data = np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T
    for noise in rng.choice([0.0, 1e-9, 1e-7, 1e-3], size=copies):
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * rng.standard_normal(m)
    return data[:, rng.permutation(p)]


def in_core(data, alpha, **how):
    return skeleton(fixed_order_problem(data, alpha=alpha, **how), method="pair-scan", backend="host")


def assert_same(found, expected):
    assert np.array_equal(found.adjacency, expected.adjacency)
    assert found.sepsets == expected.sepsets
    assert found.edges_per_level == expected.edges_per_level
    assert found.stopped_because == expected.stopped_because


def shards(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.npz")}


def contents(folder: Path) -> dict[str, bytes | str]:
    """The bytes of blocks; of rows the digest of their keys, since how many tests were made goes by the clock."""
    return {
        name: content if name.startswith("blocks") else json.loads(str(np.load(folder / name)["described"]))["sha256"]
        for name, content in shards(folder).items()
    }


@pytest.fixture(scope="module")
def clients():
    """Clusters in this process, by the number of workers."""
    from distributed import Client, LocalCluster

    how = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        LocalCluster(n_workers=1, **how) as one,
        LocalCluster(n_workers=3, **how) as three,
        Client(one) as of_one,
        Client(three) as of_three,
    ):
        yield {1: of_one, 3: of_three}


@pytest.fixture
def search(clients):
    def find(data, alpha=0.05, workers=1, **how):
        how |= {} if isinstance(data, GaussianProblem) else {"alpha": alpha, "transpose": False}
        return skeleton(data, method="distributed", backend="host", **{"client": clients[workers], **how})

    return find


@settings(max_examples=settings.default.max_examples // 8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_equals_in_core(search, data):
    p, m = data.draw(st.integers(2, 110)), data.draw(st.integers(6, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = sample(rng, p, m, data.draw(st.sampled_from([1, 3, 8])), data.draw(st.integers(0, 4)))
    alpha = data.draw(st.sampled_from([0.001, 0.05, 0.2]))
    how = {"df_convention": data.draw(st.sampled_from(["pcalg", "cupc"])), "max_level": data.draw(st.integers(0, 4))}
    panel, workers = data.draw(st.sampled_from([32, 64, 96, 0])), data.draw(st.sampled_from([1, 3]))
    found, expected = search(x, alpha, workers, panel=panel, **how), in_core(x, alpha, **how)
    event(f"{found.levels_run} levels")
    pairs = rng.integers(p, size=(10, 2))
    for i, j in pairs[(pairs[:, 0] != pairs[:, 1])].tolist():  # read one by one, before all of them are
        assert found.sepsets.get((i, j)) == expected.sepsets.get((i, j))
    assert_same(found, expected)
    given_problem = fixed_order_problem(x, alpha=alpha, **how)
    assert_same(skeleton(given_problem, method="out-of-core-block", backend="host"), found)
    assert_same(search(given_problem, workers=workers, panel=panel), expected)  # reads the matrix, and makes none


def test_groups_of_rows_in_many_tasks(search, monkeypatch):
    monkeypatch.setattr(_search, "LEAST_WORK", 1.0)
    x = sample(np.random.default_rng(1), 120, 60, 6)
    found = search(x, 0.2, workers=3, panel=32)
    assert found.levels_run > 3
    assert all(level["tasks"] > 20 for level in found.facts["distributed"]["levels"][1:3])
    assert_same(found, in_core(x, 0.2))


def test_background_knowledge(search):
    x = sample(np.random.default_rng(2), 70, 80, 4)
    expected = in_core(x, 0.1)
    knowledge = BackgroundKnowledge(
        required_edges=[(3, 50), (10, 11)], forbidden_edges=[tuple(map(int, expected.edges[5])), (0, 60)]
    )
    problem = fixed_order_problem(x, alpha=0.1)
    assert_same(
        search(x, 0.1, panel=32, knowledge=knowledge),
        skeleton(problem, method="pair-scan", backend="host", knowledge=knowledge),
    )


def test_memory_of_a_worker(search):
    """No worker holds more than its panels, and a budget that cannot do is refused with what could."""
    x = sample(np.random.default_rng(3), 300, 40, 3)
    least = _plan.least_device_bytes(40, 300, 32, False)
    found = search(x, 0.05, workers=3, panel=32, device_memory_limit=least + _plan.panel_bytes(300, 32, False))
    report = found.facts["distributed"]
    assert report["plan"]["held"] == 3 < report["plan"]["panels"] == 10
    for worker in report["levels"][0]["workers"].values():
        assert worker["panels_held"] <= 3
        assert worker["peak_device_bytes"] <= least + _plan.panel_bytes(300, 32, False) < 8 * 300 * 300
    assert_same(found, in_core(x, 0.05))
    with pytest.raises(DeviceMemoryError, match=rf"{least:,} bytes of device memory.*device_memory_limit"):
        search(x, 0.05, device_memory_limit=least - 1)
    with pytest.raises(DeviceMemoryError, match="host_memory_limit"):
        search(x, 0.05, host_memory_limit=1000)


def test_a_profiler_keeps_what_ended_tasks_held(search):
    """As Dask's does, for longer: a worker of the least memory waits for it."""
    x = sample(np.random.default_rng(14), 300, 40, 3)
    least, over = _plan.least_device_bytes(40, 300, 32, False), threading.Event()

    def profile():
        while not over.is_set():
            frames = sys._current_frames()
            time.sleep(0.005)
            del frames

    profiler = threading.Thread(target=profile, daemon=True)
    profiler.start()
    try:
        found = search(x, 0.05, panel=32, device_memory_limit=least)
    finally:
        over.set()
        profiler.join()
    assert_same(found, in_core(x, 0.05))


def watch_states():
    """Of a worker's process: count states, and what of older ones is in memory when one is made."""
    opened, before = _worker.open_backend, weakref.WeakSet()
    _worker.made = _worker.beside = 0

    def open_backend(*how):
        _worker.made += 1
        _worker.beside = max(_worker.beside, sum(each.memory_used for each in before))
        before.add(one := opened(*how))
        return one

    _worker.open_backend = open_backend


def watched():
    return _worker.made, _worker.beside


@pytest.mark.parametrize("workers", [1, 2])
def test_two_searches_at_once(workers, monkeypatch, caplog):
    """They take turns. Where they cannot, since Dask took a slow client's turn, no worker has two in its memory."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(_search, "TOLD_EVERY", 0.05)
    x = [sample(np.random.default_rng(20 + k), 130 + 20 * k, 50, 4) for k in range(2)]
    least = [_plan.least_device_bytes(50, data.shape[1], 32, False) for data in x]
    expected, found = [in_core(data, 0.1, max_level=2) for data in x], [None, None]
    how = {"threads_per_worker": 2, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        LocalCluster(n_workers=workers, env={"GPUPC_HOST_THREADS": "1"}, **how) as cluster,
        Client(cluster) as client,
    ):
        client.run(watch_states)

        def find(k):
            how = {"client": client, "panel": 32, "max_level": 2, "transpose": False, "device_memory_limit": least[k]}
            found[k] = skeleton(x[k], 0.1, method="distributed", backend="host", **how)

        def find_both():
            threads = [threading.Thread(target=find, args=(k,)) for k in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for k in range(2):
                assert_same(found[k], expected[k])
                for level in found[k].facts["distributed"]["levels"]:
                    assert all(worker["peak_device_bytes"] <= least[k] for worker in level["workers"].values())

        find_both()
        assert list(client.run(watched).values()) == [(2, 0)] * workers
        assert "another search is at work" in caplog.text
        monkeypatch.setattr(_search, "turn", lambda client: contextlib.nullcontext())
        find_both()
        made, beside = zip(*client.run(watched).values(), strict=True)
        assert min(made) > 4  # tasks of both came one after the other
        assert max(beside) == 0


def test_workers_are_killed(tmp_path, monkeypatch):
    """One among the tasks of levels 0 and 1, the other among those of level 2."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(_search, "LEAST_WORK", 1.0)
    x, caught = sample(np.random.default_rng(4), 300, 60, 6), {}
    steps = {"blocks": "levels 0 and 1", "level-2": "level 2"}
    how = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "env": {"GPUPC_HOST_THREADS": "1"}}
    with LocalCluster(n_workers=2, **how) as cluster, Client(cluster) as client:
        pids = client.run(os.getpid)

        def kill():
            for step, pid in zip(steps, pids.values(), strict=True):
                while not list((tmp_path / step).glob("*.npz")):
                    time.sleep(0.001)
                os.kill(pid, signal.SIGKILL)
                caught[steps[step]] = len(list((tmp_path / step).glob("*.npz")))

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        how = {"client": client, "folder": str(tmp_path), "panel": 32, "max_level": 3, "transpose": False}
        found = skeleton(x, 0.1, method="distributed", backend="host", **how)
        killer.join()
    tasks = {level["step"]: level["tasks"] for level in found.facts["distributed"]["levels"]}
    assert all(caught[step] < tasks[step] for step in steps.values())
    assert_same(found, in_core(x, 0.1, max_level=3))


def start(command, *arguments, **environment) -> subprocess.Popen:
    """A process of Dask's command line, in a group of its own."""
    words = [sys.executable, "-m", "dask", command, *map(str, arguments)]
    return subprocess.Popen(
        words, start_new_session=True, env={**os.environ, **environment}, stderr=subprocess.DEVNULL, cwd=ROOT
    )


@contextlib.contextmanager
def a_cluster(folder: Path):
    """A scheduler and a worker in processes of their own, and a client; nothing of them is left."""
    from distributed import Client

    folder.mkdir()
    told = folder / "scheduler.json"
    scheduler = start("scheduler", "--scheduler-file", told, "--port", 0, "--no-dashboard", "--host", "127.0.0.1")
    worker = start(
        "worker", "--scheduler-file", told, "--nthreads", 1, "--no-dashboard", "--no-nanny", PYTHONPATH=str(ROOT)
    )
    try:
        while not told.exists():
            time.sleep(0.01)
        with Client(scheduler_file=str(told), timeout=10) as client:
            yield client, scheduler
    finally:
        for process in (worker, scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_scheduler_is_killed_and_started_again(search, tmp_path):
    """Then only what is missing is made, with the same bytes."""
    x = sample(np.random.default_rng(5), 450, 60, 5)
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    how = {"panel": 32, "max_level": 2}

    def kill(process):
        while len(shards(stopped)) < 20:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)

    with a_cluster(tmp_path / "cluster") as (client, scheduler):
        threading.Thread(target=kill, args=(scheduler,), daemon=True).start()
        with pytest.raises(_search.ClusterFailure, match="folder="):
            search(x, 0.1, client=client, folder=str(stopped), **how)
    there = shards(stopped)
    expected = search(x, 0.1, folder=str(whole), **how)
    tasks = expected.facts["distributed"]["levels"][0]["tasks"]
    assert 20 <= len(there) < tasks
    damaged = stopped / sorted(there)[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    found = search(x, 0.1, workers=3, folder=str(stopped), max_level=2)  # with the size of panels that it finds
    assert found.facts["distributed"]["levels"][0]["made"] == tasks - len(there) + 1
    made, wanted = (contents(folder) for folder in (stopped, whole))
    assert made == wanted
    assert_same(found, expected)
    again = search(x, 0.1, folder=str(stopped), max_level=2)
    assert [level["made"] for level in again.facts["distributed"]["levels"]] == [0, 0]
    assert again == found
    with pytest.raises(InvalidProblem, match="another alpha"):
        search(x, 0.2, folder=str(stopped), max_level=2)
    with pytest.raises(InvalidProblem, match="rows 32"):
        search(x, 0.1, folder=str(stopped), panel=64, max_level=2)


def test_sets_are_read_when_they_are_asked_for(search, tmp_path):
    x = sample(np.random.default_rng(6), 100, 60, 4)
    found, expected = search(x, panel=32), in_core(x, 0.05)
    assert len(found.sepsets) == len(expected.sepsets)
    assert "_loaded" not in vars(found.sepsets)
    assert pickle.loads(pickle.dumps(found.sepsets)) == expected.sepsets
    found.save(tmp_path / "found.npz")
    assert type(found).load(tmp_path / "found.npz") == expected


def test_two_workers_with_one_gpu(search, monkeypatch):
    x = sample(np.random.default_rng(16), 40, 50, 3)
    monkeypatch.setattr(HostBackend, "device_key", lambda backend: "the only one")
    with pytest.raises(InvalidParameter, match="have the same GPU"):
        search(x, workers=3)
    found = search(x, workers=3, panel=32, device_memory_limit=MB)
    assert set(found.facts["distributed"]["levels"][0]["workers"]) <= {"0", "1", "2"}


def test_a_cluster_of_its_own_with_processes():
    x = sample(np.random.default_rng(7), 90, 60, 4)
    found = skeleton(x, 0.1, method="distributed", backend="host", workers=2, panel=32, device_memory_limit=64 * MB)
    assert found.facts["distributed"]["workers"] == 2
    assert found.facts["params"]["client"] == ""
    assert_same(found, in_core(x, 0.1))


def test_a_process_has_a_gpu_of_its_own(monkeypatch):
    from distributed import Client

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with _cluster._local_cluster("cuda", 0) as cluster, Client(cluster) as client:
        seen = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
    assert sorted(seen.values()) == ["3", "5"]
    with pytest.raises(InvalidParameter, match="at most 2"):
        _cluster._local_cluster("cuda", 3)


def test_a_worker_that_does_not_see_the_folder(search, tmp_path, monkeypatch):
    """A folder of the same name with numbers of an old search is not the client's."""
    x = sample(np.random.default_rng(10), 40, 50, 3)
    monkeypatch.setattr(_shards, "SEEN_WITHIN", 0.2)
    write_text = Path.write_text
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(
            Path, "write_text", lambda path, text: write_text(path, "old" if path.name == "search.key" else text)
        )
        with pytest.raises(InvalidProblem, match=r"does not see.*folder="):
            search(x, folder=str(tmp_path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(_shards.Folder, "holds", lambda *_: np.save(tmp_path / "numbers.npy", x[:, :9]) is None)
        with pytest.raises(InvalidProblem, match=r"float64 \(50, 9\) in .*, not float64 \(50, 40\)"):
            search(x, folder=str(tmp_path))
    assert_same(search(x, folder=tmp_path), in_core(x, 0.05))
    assert_same(search(x, folder=None), in_core(x, 0.05))


def test_another_searchs_folder_is_refused_before_work(search, tmp_path, monkeypatch):
    x = sample(np.random.default_rng(13), 40, 50, 3)
    search(x, folder=tmp_path)
    there = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(_search, "standardised", lambda *_: pytest.fail("the samples were standardised"))
    with pytest.raises(InvalidProblem, match="holds shards of other data"):
        search(2 + x[::-1] ** 3, folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == there


def test_the_adjacency_matrix_takes_address_space_only(tmp_path):
    wide = _search.no_edges(200_000)
    wide[150_000, 3] = True
    assert wide[150_000].sum() == 1
    limited = (
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 34,) * 2); from gpupc_impl.distributed import _search"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{limited}; _search.no_edges(200_000)"], cwd=ROOT, capture_output=True, text=True
    )
    assert "InvalidProblem: the adjacency matrix of 200,000 variables" in done.stderr


def test_a_worker_that_joins_with_less_memory(search, monkeypatch):
    """It keeps fewer panels, and takes the rows of a task in parts."""
    x = sample(np.random.default_rng(13), 300, 40, 3)
    least = _plan.least_device_bytes(40, 300, 32, False)
    parts, split = [], _plan.share_out
    monkeypatch.setattr(_worker, "budget", lambda spec: least)
    monkeypatch.setattr(_plan, "share_out", lambda *how: parts.append(list(split(*how))) or iter(parts[-1]))
    found = search(x, 0.2, panel=32, device_memory_limit=16 * MB)
    assert found.facts["distributed"]["plan"]["held"] == 10
    (worker,) = found.facts["distributed"]["levels"][0]["workers"].values()
    assert worker["panels_held"] == 2
    assert max(map(len, parts)) > 1
    assert_same(found, in_core(x, 0.2))
    monkeypatch.setattr(_worker, "budget", lambda spec: least - 1)
    with pytest.raises(DeviceMemoryError, match=f"needs {least:,}"):
        search(x, 0.2, panel=32, device_memory_limit=16 * MB)


@pytest.mark.parametrize("lost", [False, True])
def test_a_cluster_without_workers(lost, monkeypatch, tmp_path):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(_search, "TOLD_EVERY", 0.05)
    monkeypatch.setattr(_search, "WITHOUT_WORKERS", 0.2)
    how = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with LocalCluster(n_workers=int(lost), **how) as cluster, Client(cluster) as client:
        write = _shards.write
        monkeypatch.setattr(_shards, "write", lambda *what: (cluster.scale(0), time.sleep(0.1), write(*what))[-1])
        x = sample(np.random.default_rng(14), 200, 40, 3)
        how = {"client": client, "panel": 32, "folder": str(tmp_path), "transpose": False}
        with pytest.raises(_search.ClusterFailure, match="no worker"):
            skeleton(x, method="distributed", backend="host", **how)


def test_a_full_disk(search, tmp_path, monkeypatch):
    """It is no failure of the cluster; and what killed writers left is removed."""
    x = sample(np.random.default_rng(15), 60, 40, 3)

    def write(path, said, arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(_shards, "write", write)
        with pytest.raises(OSError, match="No space left") as caught:
            search(x, folder=str(tmp_path))
    assert "folder=" in caught.value.__notes__[0]
    old, new = tmp_path / "blocks" / ".00000-00000.1f", tmp_path / "blocks" / ".00000-00001.1f"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    assert_same(search(x, folder=str(tmp_path)), in_core(x, 0.05))
    assert new.exists()
    assert not old.exists()


def test_nothing_is_kept_after_a_search(clients, monkeypatch):
    """Not even by cycles: on a GPU the next search would find the memory taken."""
    made, opened = [], _worker.open_backend
    monkeypatch.setattr(_worker, "open_backend", lambda *how: made.append(weakref.ref(one := opened(*how))) or one)
    gc.disable()
    try:
        skeleton(sample(np.random.default_rng(11), 40, 50, 3), method="distributed", backend="host", client=clients[3])
    finally:
        gc.enable()
    assert len(made) == 3
    assert not any(one() for one in made)


def test_a_client_that_is_not_the_default(clients):
    from distributed import Client, default_client

    x = sample(np.random.default_rng(12), 40, 50, 3)
    address = clients[3].scheduler.address
    with Client(address, set_as_default=False) as client:
        assert default_client() is not client
        found = skeleton(x, 0.05, method="distributed", backend="host", client=client, transpose=False)
    assert_same(found, in_core(x, 0.05))


def test_bootstrap_on_the_same_cluster(clients):
    x = sample(np.random.default_rng(8), 12, 60, 2)
    how = {"n": 6, "alpha": 0.1, "method": "pair-scan", "backend": "host"}
    found, expected = bootstrap(x, executor=clients[3].get_executor(), **how), bootstrap(x, **how)
    assert np.array_equal(found.directed, expected.directed)
    assert np.array_equal(found.undirected, expected.undirected)


def lost_worker(*_):
    raise OSError("connection closed")


def test_what_it_refuses(search, monkeypatch):
    import dask

    x = sample(np.random.default_rng(9), 10, 30, 2)
    with pytest.raises(InvalidParameter, match="pmax"):
        search(x, pmax=True)
    with pytest.raises(InvalidParameter, match="client"):
        skeleton(x, method="distributed", backend="host", client=3)
    with pytest.raises(InvalidParameter, match="workers is 2, and a client is given"):
        skeleton(x, method="distributed", backend="host", client="tcp://127.0.0.1:1", workers=2)
    with pytest.raises(InvalidParameter, match="client is 'nowhere', where no scheduler answers"):
        skeleton(x, method="distributed", backend="host", client="nowhere")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(InvalidParameter, match=r"127.0.0.1:1', where no scheduler answers"),
    ):
        skeleton(x, method="distributed", backend="host", client="tcp://127.0.0.1:1")
    with monkeypatch.context() as no_gpu:
        no_gpu.setattr(CudaBackend, "unavailable", lambda: "there is no GPU")
        with pytest.raises(BackendUnavailable, match="on cuda: there is no GPU; give the client of another cluster"):
            skeleton(x, method="distributed", backend="host", workers_on="cuda")
    with monkeypatch.context() as lost:
        lost.setattr(_worker, "probe", lost_worker)
        with pytest.raises(_search.ClusterFailure, match="a worker was lost"):
            search(x)
    with monkeypatch.context() as other:
        said = iter(["one", "one", "one", "other"])  # the client, the worker, the client, a worker that joins later
        other.setattr(_cluster, "code", lambda: next(said))
        with pytest.raises(BackendUnavailable, match="another version"):
            search(x)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match=r"gpupc\[distributed\]"):
        search(x)


def test_the_scaling_script(tmp_path):
    from workflow.pages.distributed import main

    out = tmp_path / "scaling.json"
    asked = ["--variables", "150", "--samples", "60", "--workers", "1", "--backend", "host", "--panel", "32"]
    assert main([*asked, "--max-level", "2", "--out", str(out)]) == 0
    assert '"same_answer": true' in out.read_text()
