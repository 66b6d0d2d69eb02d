"""Method `distributed` gives the answer of in-core methods on its correlations, on any cluster, whatever fails."""

import contextlib
import errno
import gc
import importlib.util
import io
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
from gpupc_impl.core.files import write_sealed
from gpupc_impl.core.solve import unavailable
from gpupc_impl.distributed import machine, panel_plan, preparation, row_tasks, shards, supervision, worker_state
from gpupc_impl.distributed.address_space import empty_graph
from gpupc_impl.distributed.cluster import ClientAddress, open_client
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.distributed.supervision import ClusterFailure

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


def in_core(data, alpha, **options):
    return skeleton(fixed_order_problem(data, alpha=alpha, **options), method="pair-scan", backend="host")


def assert_same(result, expected):
    assert np.array_equal(result.adjacency, expected.adjacency)
    assert result.sepsets == expected.sepsets
    assert result.edges_per_level == expected.edges_per_level
    assert result.stopped_because == expected.stopped_because


def read_shards(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.npz")}


def contents(folder: Path) -> dict[str, bytes | str]:
    """The bytes of blocks, and the digest of the keys of rows, since the number of their tests depends on timing."""
    return {
        name: content if name.startswith("blocks") else np.load(folder / name)["keys"].tobytes()
        for name, content in read_shards(folder).items()
    }


@pytest.fixture(scope="module")
def clients():
    """Clients of clusters in this process, by the number of workers."""
    from distributed import Client, LocalCluster

    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        LocalCluster(n_workers=1, **options) as one,
        LocalCluster(n_workers=3, **options) as three,
        Client(one) as of_one,
        Client(three) as of_three,
    ):
        yield {1: of_one, 3: of_three}


@pytest.fixture
def search(clients):
    def find(data, alpha=0.05, workers=1, **options):
        options |= {} if isinstance(data, GaussianProblem) else {"alpha": alpha, "transpose": False}
        return skeleton(data, method="distributed", backend="host", **{"client": clients[workers], **options})

    return find


@settings(max_examples=settings.default.max_examples // 8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_equals_in_core(search, data):
    p, m = data.draw(st.integers(2, 110)), data.draw(st.integers(6, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = sample(rng, p, m, data.draw(st.sampled_from([1, 3, 8])), data.draw(st.integers(0, 4)))
    alpha = data.draw(st.sampled_from([0.001, 0.05, 0.2]))
    options = {
        "df_convention": data.draw(st.sampled_from(["pcalg", "cupc"])),
        "max_level": data.draw(st.integers(0, 4)),
    }
    panel, workers = data.draw(st.sampled_from([32, 64, 96, 0])), data.draw(st.sampled_from([1, 3]))
    result, expected = search(x, alpha, workers, panel=panel, **options), in_core(x, alpha, **options)
    event(f"{result.levels_run} levels")
    pairs = rng.integers(p, size=(10, 2))
    for i, j in pairs[(pairs[:, 0] != pairs[:, 1])].tolist():  # single sets are read before all of them are
        assert result.sepsets.get((i, j)) == expected.sepsets.get((i, j))
    assert_same(result, expected)
    given_problem = fixed_order_problem(x, alpha=alpha, **options)
    assert_same(skeleton(given_problem, method="out-of-core-block", backend="host"), result)
    assert_same(search(given_problem, workers=workers, panel=panel), expected)  # workers read the matrix


def test_groups_of_rows_in_many_tasks(search, monkeypatch):
    monkeypatch.setattr(row_tasks, "LEAST_WORK", 1.0)
    x = sample(np.random.default_rng(1), 120, 60, 6)
    result = search(x, 0.2, workers=3, panel=32)
    assert result.levels_run > 3
    assert all(level["tasks"] > 20 for level in result.facts["distributed"]["levels"][1:3])
    assert_same(result, in_core(x, 0.2))


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
    """No worker exceeds its budget, and a budget that is too small is refused with the bytes that suffice."""
    x = sample(np.random.default_rng(3), 300, 40, 3)
    least = panel_plan.least_device_bytes(40, 300, 32, False)
    result = search(x, 0.05, workers=3, panel=32, device_memory_limit=least + panel_plan.panel_bytes(300, 32, False))
    report = result.facts["distributed"]
    assert report["plan"]["held"] == 3 < report["plan"]["panels"] == 10
    for worker in report["levels"][0]["workers"].values():
        assert worker["panels_held"] <= 3
        assert worker["peak_device_bytes"] <= least + panel_plan.panel_bytes(300, 32, False) < 8 * 300 * 300
    assert_same(result, in_core(x, 0.05))
    with pytest.raises(DeviceMemoryError, match=rf"{least:,} bytes of device memory.*device_memory_limit"):
        search(x, 0.05, device_memory_limit=least - 1)
    with pytest.raises(DeviceMemoryError, match="host_memory_limit"):
        search(x, 0.05, host_memory_limit=1000)


def test_a_profiler_keeps_what_ended_tasks_held(search):
    """Like Dask's profiler, but for longer: a worker with the least memory waits until it lets go."""
    x = sample(np.random.default_rng(14), 300, 40, 3)
    least, over = panel_plan.least_device_bytes(40, 300, 32, False), threading.Event()

    def profile():
        while not over.is_set():
            frames = sys._current_frames()
            time.sleep(0.005)
            del frames

    profiler = threading.Thread(target=profile, daemon=True)
    profiler.start()
    try:
        result = search(x, 0.05, panel=32, device_memory_limit=least)
    finally:
        over.set()
        profiler.join()
    assert_same(result, in_core(x, 0.05))


def watch_states():
    """In a worker's process, count backends, and record what older ones hold in memory when a new one is opened."""
    open_original, before = worker_state.open_backend, weakref.WeakSet()
    worker_state.opened_count = worker_state.bytes_of_others = 0

    def open_backend(*options):
        worker_state.opened_count += 1
        worker_state.bytes_of_others = max(worker_state.bytes_of_others, sum(each.memory_used for each in before))
        before.add(one := open_original(*options))
        return one

    worker_state.open_backend = open_backend


def watched():
    return worker_state.opened_count, worker_state.bytes_of_others


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_searches_at_once(workers, monkeypatch, caplog):
    """They take turns. If they cannot, because Dask took a slow client's turn, no worker has both in its memory."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(supervision, "MESSAGE_INTERVAL", 0.05)
    x = [sample(np.random.default_rng(20 + k), 130 + 20 * k, 50, 4) for k in range(2)]
    least = [panel_plan.least_device_bytes(50, data.shape[1], 32, False) for data in x]
    expected, result = [in_core(data, 0.1, max_level=2) for data in x], [None, None]
    options = {"threads_per_worker": 2, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        LocalCluster(n_workers=workers, env={"GPUPC_HOST_THREADS": "1"}, **options) as cluster,
        Client(cluster) as client,
    ):
        client.run(watch_states)

        def find(k):
            options = {
                "client": client,
                "panel": 32,
                "max_level": 2,
                "transpose": False,
                "device_memory_limit": least[k],
            }
            result[k] = skeleton(x[k], 0.1, method="distributed", backend="host", **options)

        def find_both():
            threads = [threading.Thread(target=find, args=(k,)) for k in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for k in range(2):
                assert_same(result[k], expected[k])
                for level in result[k].facts["distributed"]["levels"]:
                    assert all(worker["peak_device_bytes"] <= least[k] for worker in level["workers"].values())

        find_both()
        assert list(client.run(watched).values()) == [(2, 0)] * workers
        assert "another search is at work" in caplog.text
        monkeypatch.setattr(supervision, "turn", lambda client: contextlib.nullcontext())
        find_both()
        made, in_memory = zip(*client.run(watched).values(), strict=True)
        assert min(made) > 4  # tasks of the two searches alternated
        assert max(in_memory) == 0


def test_workers_are_killed(tmp_path, monkeypatch):
    """One worker is killed during the tasks of levels 0 and 1, the other during those of level 2."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(row_tasks, "LEAST_WORK", 1.0)
    x, caught = sample(np.random.default_rng(4), 220, 60, 5), {}
    steps = {"blocks": "levels 0 and 1", "level-2": "level 2"}
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "env": {"GPUPC_HOST_THREADS": "1"}}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        pids = client.run(os.getpid)

        def kill():
            for step, pid in zip(steps, pids.values(), strict=True):
                while not list((tmp_path / step).glob("*.npz")):
                    time.sleep(0.001)
                os.kill(pid, signal.SIGKILL)
                caught[steps[step]] = len(list((tmp_path / step).glob("*.npz")))

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        options = {"client": client, "folder": str(tmp_path), "panel": 32, "max_level": 3, "transpose": False}
        result = skeleton(x, 0.1, method="distributed", backend="host", **options)
        killer.join()
    tasks = {level["step"]: level["tasks"] for level in result.facts["distributed"]["levels"]}
    assert all(caught[step] < tasks[step] for step in steps.values())
    assert_same(result, in_core(x, 0.1, max_level=3))


def start(command, *arguments, **environment) -> subprocess.Popen:
    """Start a process of Dask's command line, in a process group of its own."""
    words = [sys.executable, "-m", "dask", command, *map(str, arguments)]
    return subprocess.Popen(
        words, start_new_session=True, env={**os.environ, **environment}, stderr=subprocess.DEVNULL, cwd=ROOT
    )


@contextlib.contextmanager
def a_cluster(folder: Path):
    """A client of a scheduler and a worker in processes of their own, which are killed at the end."""
    from distributed import Client

    folder.mkdir()
    scheduler_file = folder / "scheduler.json"
    scheduler = start(
        "scheduler", "--scheduler-file", scheduler_file, "--port", 0, "--no-dashboard", "--host", "127.0.0.1"
    )
    worker = start(
        "worker",
        "--scheduler-file",
        scheduler_file,
        "--nthreads",
        1,
        "--no-dashboard",
        "--no-nanny",
        PYTHONPATH=str(ROOT),
    )
    try:
        while not scheduler_file.exists():
            time.sleep(0.01)
        with Client(scheduler_file=str(scheduler_file), timeout=10) as client:
            yield client, scheduler
    finally:
        for process in (worker, scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow  # test_workers_are_killed loses workers, and a folder of shards is read again in others as well
def test_the_scheduler_is_killed_and_started_again(search, tmp_path):
    """Only the missing shards are made again, with the same bytes."""
    x = sample(np.random.default_rng(5), 450, 60, 5)
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    options = {"panel": 32, "max_level": 2}

    def kill(process):
        while len(read_shards(stopped)) < 20:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)

    with a_cluster(tmp_path / "cluster") as (client, scheduler):
        threading.Thread(target=kill, args=(scheduler,), daemon=True).start()
        with pytest.raises(ClusterFailure, match="folder="):
            search(x, 0.1, client=client, folder=str(stopped), **options)
    before = read_shards(stopped)
    expected = search(x, 0.1, folder=str(whole), **options)
    tasks = expected.facts["distributed"]["levels"][0]["tasks"]
    assert 20 <= len(before) < tasks
    damaged = stopped / sorted(before)[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    result = search(x, 0.1, workers=3, folder=str(stopped), max_level=2)  # the folder gives the size of panels
    assert result.facts["distributed"]["levels"][0]["made"] == tasks - len(before) + 1
    made, wanted = (contents(folder) for folder in (stopped, whole))
    assert made == wanted
    assert_same(result, expected)
    again = search(x, 0.1, folder=str(stopped), max_level=2)
    assert [level["made"] for level in again.facts["distributed"]["levels"]] == [0, 0]
    assert again == result
    with pytest.raises(InvalidProblem, match="another alpha"):
        search(x, 0.2, folder=str(stopped), max_level=2)
    with pytest.raises(InvalidProblem, match="rows 32"):
        search(x, 0.1, folder=str(stopped), panel=64, max_level=2)


def test_sets_are_read_when_they_are_asked_for(search, tmp_path):
    x = sample(np.random.default_rng(6), 100, 60, 4)
    result, expected = search(x, panel=32), in_core(x, 0.05)
    assert len(result.sepsets) == len(expected.sepsets)
    assert "_loaded" not in vars(result.sepsets)
    assert pickle.loads(pickle.dumps(result.sepsets)) == expected.sepsets
    result.save(tmp_path / "found.npz")
    assert type(result).load(tmp_path / "found.npz") == expected


def test_two_workers_with_one_gpu(search, monkeypatch):
    x = sample(np.random.default_rng(16), 40, 50, 3)
    monkeypatch.setattr(HostBackend, "device_key", lambda backend: "the only one")
    with pytest.raises(InvalidParameter, match="have the same GPU"):
        search(x, workers=3)
    result = search(x, workers=3, panel=32, device_memory_limit=MB)
    assert set(result.facts["distributed"]["levels"][0]["workers"]) <= {"0", "1", "2"}


def test_a_cluster_of_its_own_with_processes():
    x = sample(np.random.default_rng(7), 90, 60, 4)
    result = skeleton(x, 0.1, method="distributed", backend="host", workers=2, panel=32, device_memory_limit=64 * MB)
    assert result.facts["distributed"]["workers"] == 2
    assert result.facts["params"]["client"] == ""
    assert_same(result, in_core(x, 0.1))


def test_a_process_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(CudaBackend, "unavailable", lambda: None)
    with open_client(ClientAddress(""), "cuda", 0) as client:
        seen = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
    assert sorted(seen.values()) == ["3", "5"]
    with pytest.raises(InvalidParameter, match="at most 2"), open_client(ClientAddress(""), "cuda", 3):
        pass


def test_a_worker_that_does_not_see_the_folder(search, tmp_path, monkeypatch):
    """A folder of the same name that holds the numbers of another search is not the client's."""
    x = sample(np.random.default_rng(10), 40, 50, 3)
    monkeypatch.setattr(shards, "SEEN_WITHIN", 0.2)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("gpupc_impl.distributed.search.write_text", lambda path, text: path.write_text("old"))
        with pytest.raises(InvalidProblem, match=r"does not see.*folder="):
            search(x, folder=str(tmp_path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(shards.ShardFolder, "holds", lambda *_: np.save(tmp_path / "numbers.npy", x[:, :9]) is None)
        with pytest.raises(InvalidProblem, match=r"float64 \(50, 9\) in .*, not float64 \(50, 40\)"):
            search(x, folder=str(tmp_path))
    assert_same(search(x, folder=tmp_path), in_core(x, 0.05))
    assert_same(search(x, folder=None), in_core(x, 0.05))


def test_shards_that_are_altered_or_of_another_place_are_made_again(search, tmp_path, caplog):
    x = sample(np.random.default_rng(20), 90, 60, 4)
    expected = search(x, 0.1, folder=tmp_path / "whole", panel=32)
    assert_same(expected, in_core(x, 0.1))
    whole = read_shards(tmp_path / "whole")
    assert len({name.split("/")[0] for name in whole}) >= 3
    problem = GaussianProblem.from_data(x, alpha=0.1, correlations="device")
    identity = f"{problem.fingerprint} 32"

    def alterations(path):
        """Each changed file, also with the digest that it then has to have."""
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored}
        outcome = json.loads(str(arrays.pop("described")))
        for name, array in arrays.items():
            other = array.copy()
            other.reshape(-1)[:] = ~other.reshape(-1)[::-1] if other.dtype.kind == "u" else -1
            buffer = io.BytesIO()
            np.savez(buffer, described=np.array(json.dumps({**outcome, "tests": 1})), **arrays)
            yield buffer.getvalue()
            buffer = io.BytesIO()
            counts = {key: value for key, value in outcome.items() if key != "sha256"}
            write_sealed(buffer, counts, {**arrays, name: other}, [identity, path.parent.name, path.name])
            yield buffer.getvalue()

    folder = tmp_path / "whole"
    paths = [folder / name for name in whole]
    for path in [paths[0], paths[1], paths[-1]]:
        content = path.read_bytes()
        elsewhere = [other.read_bytes() for other in paths if other != path and other.parent == path.parent]
        for altered in [*alterations(path), *elsewhere[:1]]:
            path.write_bytes(altered)
            caplog.clear()
            assert_same(search(x, 0.1, folder=folder, panel=32), expected)
            assert "is made again" in caplog.text
            path.write_bytes(content)


def test_another_searchs_folder_is_refused_before_work(search, tmp_path, monkeypatch):
    x = sample(np.random.default_rng(13), 40, 50, 3)
    search(x, folder=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(preparation, "standardised", lambda *_: pytest.fail("the samples were standardised"))
    with pytest.raises(InvalidProblem, match="holds shards of other data"):
        search(2 + x[::-1] ** 3, folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_adjacency_matrix_takes_address_space_only(tmp_path):
    wide = empty_graph(200_000)
    wide[150_000, 3] = True
    assert wide[150_000].sum() == 1
    limited = (
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 34,) * 2); "
        "from gpupc_impl.distributed.address_space import empty_graph"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{limited}; empty_graph(200_000)"], cwd=ROOT, capture_output=True, text=True
    )
    assert "InvalidProblem: the adjacency matrix of 200,000 variables" in done.stderr


def test_a_worker_that_joins_with_less_memory(search, monkeypatch):
    """It keeps fewer panels, and tests the rows of a task in parts."""
    x = sample(np.random.default_rng(13), 300, 40, 3)
    least = panel_plan.least_device_bytes(40, 300, 32, False)
    parts, split = [], panel_plan.share_out
    monkeypatch.setattr(worker_state, "budget", lambda spec: least)
    monkeypatch.setattr(
        panel_plan, "share_out", lambda *options: parts.append(list(split(*options))) or iter(parts[-1])
    )
    result = search(x, 0.2, panel=32, device_memory_limit=16 * MB)
    assert result.facts["distributed"]["plan"]["held"] == 10
    (worker,) = result.facts["distributed"]["levels"][0]["workers"].values()
    assert worker["panels_held"] == 2
    assert max(map(len, parts)) > 1
    assert_same(result, in_core(x, 0.2))
    monkeypatch.setattr(worker_state, "budget", lambda spec: least - 1)
    with pytest.raises(DeviceMemoryError, match=f"needs {least:,}"):
        search(x, 0.2, panel=32, device_memory_limit=16 * MB)


@pytest.mark.parametrize("lost", [False, True])
def test_a_cluster_without_workers(lost, monkeypatch, tmp_path):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(supervision, "MESSAGE_INTERVAL", 0.05)
    monkeypatch.setattr(supervision, "WORKER_TIMEOUT", 0.2)
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with LocalCluster(n_workers=int(lost), **options) as cluster, Client(cluster) as client:
        write = shards.write
        monkeypatch.setattr(shards, "write", lambda *what: (cluster.scale(0), time.sleep(0.1), write(*what))[-1])
        x = sample(np.random.default_rng(14), 200, 40, 3)
        options = {"client": client, "panel": 32, "folder": str(tmp_path), "transpose": False}
        with pytest.raises(ClusterFailure, match="no worker"):
            skeleton(x, method="distributed", backend="host", **options)


def test_a_full_disk(search, tmp_path, monkeypatch):
    """It does not count as a failure of the cluster. Files that killed writers left are removed."""
    x = sample(np.random.default_rng(15), 60, 40, 3)

    def write(path, *content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(shards, "write", write)
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
    """Nor by reference cycles: on a GPU they would take the memory of the next search."""
    backends, open_original = [], worker_state.open_backend

    def open_backend(*options):
        backend = open_original(*options)
        backends.append(weakref.ref(backend))
        return backend

    monkeypatch.setattr(worker_state, "open_backend", open_backend)
    gc.disable()
    try:
        skeleton(sample(np.random.default_rng(11), 40, 50, 3), method="distributed", backend="host", client=clients[3])
    finally:
        gc.enable()
    assert len(backends) == 3
    assert not any(backend() for backend in backends)


def test_a_client_that_is_not_the_default(clients):
    from distributed import Client, default_client

    x = sample(np.random.default_rng(12), 40, 50, 3)
    address = clients[3].scheduler.address
    with Client(address, set_as_default=False) as client:
        assert default_client() is not client
        result = skeleton(x, 0.05, method="distributed", backend="host", client=client, transpose=False)
    assert_same(result, in_core(x, 0.05))


def test_bootstrap_on_the_same_cluster(clients):
    x = sample(np.random.default_rng(8), 12, 60, 2)
    options = {"n": 6, "alpha": 0.1, "method": "pair-scan", "backend": "host"}
    result, expected = bootstrap(x, executor=clients[3].get_executor(), **options), bootstrap(x, **options)
    assert np.array_equal(result.directed, expected.directed)
    assert np.array_equal(result.undirected, expected.undirected)


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
        lost.setattr("gpupc_impl.distributed.worker.probe", lost_worker)
        with pytest.raises(ClusterFailure, match="a worker was lost"):
            search(x)
    with monkeypatch.context() as other:
        codes = iter(["one", "one", "one", "other"])  # the client, the worker, the client, a worker that joins later
        other.setattr(machine, "code_digest", lambda: next(codes))
        with pytest.raises(BackendUnavailable, match="another version"):
            search(x)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match="pip install distributed"):
        search(x)


def test_the_scaling_script(tmp_path):
    from workflow.pages.distributed import main

    out = tmp_path / "scaling.json"
    arguments = ["--variables", "150", "--samples", "60", "--workers", "1", "--backend", "host", "--panel", "32"]
    assert main([*arguments, "--max-level", "2", "--out", str(out)]) == 0
    assert '"same_answer": true' in out.read_text()
