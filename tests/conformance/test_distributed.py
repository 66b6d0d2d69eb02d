"""Method `distributed` gives the answer of in-core methods on the same correlations, whatever its workers are, and
whatever fails."""

import contextlib
import errno
import functools
import gc
import importlib.util
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

from gpupc_impl import BackgroundKnowledge, InvalidParameter, InvalidProblem, bootstrap
from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.backends.cuda import CudaBackend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import methods
from gpupc_impl.core.result_folder import ResultFolder
from gpupc_impl.core.solve import unavailable
from gpupc_impl.distributed import cluster, communicator, filter_plan, products
from gpupc_impl.distributed import filter as filtered
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.distributed.edge_shards import empty_graph
from gpupc_impl.distributed.team import ClusterFailure
from gpupc_impl.distributed.worker import Worker
from gpupc_impl.integers import round_up
from tests.wide import assert_same, in_core, near_threshold, sample, search

pytest.importorskip("distributed", reason="needs Dask")
REASON = unavailable(methods()["distributed"], "host")
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.xdist_group("distributed")]

ROOT = Path(__file__).parents[2]
IN_PROCESS = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
PROCESSES = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "env": {"GPUPC_HOST_THREADS": "1"}}


@pytest.fixture(scope="module")
def clients():
    """Clients of clusters in this process, by the number of workers."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, **IN_PROCESS) as one,
        LocalCluster(n_workers=3, **IN_PROCESS) as three,
        Client(one) as of_one,
        Client(three) as of_three,
    ):
        yield {1: of_one, 3: of_three}


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_equals_in_core(clients, data):
    """On whatever workers, in whatever memory: groups of rows, blocks of candidates and lists that end too early depend
    on them."""
    p, m = data.draw(st.integers(2, 140)), data.draw(st.integers(6, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = sample(rng, p, m, data.draw(st.sampled_from([1, 3, 8, 40])), data.draw(st.integers(0, 4)))
    options = {
        "df_convention": data.draw(st.sampled_from(["pcalg", "cupc"])),
        "residual_tolerance": data.draw(st.sampled_from([1e-10, 1e-10, 0.0])),
    }
    if data.draw(st.booleans()):
        alpha, options["max_level"] = near_threshold(rng, x), data.draw(st.integers(0, 1))
    else:
        alpha, options["max_level"] = data.draw(st.sampled_from([0.001, 0.05, 0.2])), 2 if p > 40 else 4
    threads, of_clusters = ({"workers": k} for k in (0, 2, 3)), ({"client": client} for client in clients.values())
    how = data.draw(st.sampled_from([*threads, *of_clusters]))
    limit = int(data.draw(st.sampled_from([1.0, 1.1, 1.5, 4.0, 1e3])) * filter_plan.least_device_bytes(m, p))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(communicator, "MESSAGE_BYTES", data.draw(st.sampled_from([1, 1 << 26])))
        if data.draw(st.booleans()):  # as on a GPU
            patch.setattr(products, "part_bytes", lambda backend, m, critical: 12 * round_up(m, products.PITCH))
        patch.setattr(filtered, "SPARSENESS", data.draw(st.sampled_from([0, 32, 1e9])))
        result = search(x, alpha, device_memory_limit=limit, **how, **options)
    expected, report = in_core(x, alpha, **options), result.facts["distributed"]
    event(f"{result.levels_run} levels, {report['plan']['edges'] < expected.edges_per_level[0]}")
    for i, j in rng.integers(p, size=(10, 2)).tolist():  # single sets are read before all of them are
        if i != j:
            assert result.sepsets.get((i, j)) == expected.sepsets.get((i, j))
    apart = np.array(list(expected.sepsets), int).reshape(-1, 2)
    for sets in (result.sepsets, expected.sepsets):  # many at once, before all are read
        starts, members = sets.of(apart)
        read = [tuple(each) for each in np.split(members, starts[1:-1])][: len(apart)]
        assert read == list(expected.sepsets.values())
        assert np.array_equal(sets.from_level(2), apart[np.diff(starts) > 1])
        assert np.array_equal(sets.edges, np.argwhere(np.triu(expected.adjacency)))
    assert_same(result, expected)
    assert report["peak_device_bytes"] <= limit


@pytest.mark.parametrize("workers", ["threads", "cluster"])
def test_background_knowledge(clients, workers):
    x = sample(2, 70, 80, 4)
    expected = in_core(x, 0.1)
    forbidden = [tuple(map(int, expected.edges[5])), (0, 60)]
    knowledge = BackgroundKnowledge(required_edges=[(3, 50), (10, 11)], forbidden_edges=forbidden)
    how = {"workers": 2} if workers == "threads" else {"client": clients[3]}
    result = search(x, 0.1, knowledge=knowledge, **how)
    assert result.levels_run > 3
    assert_same(result, in_core(x, 0.1, knowledge))


def test_threads_need_no_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    x = sample(3, 40, 50, 3)
    assert_same(search(x, workers=2), in_core(x, 0.05))


def doom(method: str, level: int | None = None, pid: int = 0, dask_worker=None) -> None:
    """In a worker's process: the next call of a method of `Worker` (at a level) kills a process, by default its own."""
    original = getattr(Worker, method)

    def kill(worker, at, *arguments):
        if level in (None, at):
            setattr(Worker, method, original)
            os.kill(pid or os.getpid(), signal.SIGKILL)
            time.sleep(1.0 if pid else 0.0)
        return original(worker, at, *arguments)

    setattr(Worker, method, kill)


def test_workers_are_killed(caplog, tmp_path):
    """One worker is killed during levels 0 and 1, and another one during level 2; one is left."""
    from distributed import Client, LocalCluster

    x = sample(4, 130, 60, 5)
    with LocalCluster(n_workers=3, **PROCESSES) as cluster_, Client(cluster_) as client:
        first, second, _ = client.scheduler_info(n_workers=-1)["workers"]
        client.run(doom, "run_group", workers=[first])
        client.run(doom, "search_rows", 2, workers=[second])
        result = search(x, 0.1, client=client, max_level=3, folder=tmp_path)
    assert result.facts["distributed"]["lost"] == 2
    assert "levels 0 and 1 from row 0 on: a worker was lost" in caplog.text
    assert "level 2: a worker was lost" in caplog.text
    assert_same(result, in_core(x, 0.1, max_level=3))
    assert_same(search(x, 0.1, max_level=3, folder=tmp_path), result)


def test_no_worker_is_left(monkeypatch, tmp_path):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(cluster, "WORKER_TIMEOUT", 0.2)
    x = sample(14, 100, 40, 3)
    with (
        LocalCluster(n_workers=0, **IN_PROCESS) as none,
        Client(none) as client,
        pytest.raises(ClusterFailure, match=r"levels 0 and 1 .* no worker for .*folder="),
    ):
        search(x, client=client, folder=tmp_path)


def a_process(command, *arguments, **environment) -> subprocess.Popen:
    """A process of Dask's command line, in a process group of its own."""
    words = [sys.executable, "-m", "dask", command, *map(str, arguments), "--no-dashboard"]
    how = {"env": {**os.environ, **environment}, "stderr": subprocess.DEVNULL, "cwd": ROOT}
    return subprocess.Popen(words, start_new_session=True, **how)


def test_the_scheduler_is_killed(tmp_path):
    """The search says so, and another one with the folder continues after the groups of rows that are done."""
    from distributed import Client

    file, kept = tmp_path / "scheduler.json", tmp_path / "kept"
    x = sample(5, 100, 60, 5)
    scheduler = a_process("scheduler", "--scheduler-file", file, "--port", 0, "--host", "127.0.0.1")
    how = "--nthreads", 1, "--no-nanny"
    worker = a_process("worker", "--scheduler-file", file, *how, PYTHONPATH=str(ROOT))
    try:
        while not file.exists():
            time.sleep(0.01)
        with Client(scheduler_file=str(file), timeout=3) as client:
            client.wait_for_workers(1)
            client.run(doom, "search_rows", 2, scheduler.pid)
            with pytest.raises(ClusterFailure, match=r"level 2: the cluster failed .*folder="):
                search(x, 0.1, client=client, folder=kept)
    finally:
        for process in (worker, scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "run_group", lambda *_: pytest.fail("levels 0 and 1 were made again"))
        assert_same(search(x, 0.1, folder=kept), in_core(x, 0.1))


KILLED = """
import sys
import numpy as np
from gpupc_impl import skeleton
from tests.conformance.test_distributed import doom
doom("search_rows", int(sys.argv[1]))
skeleton(np.load(sys.argv[2]), 0.1, method="distributed", backend="host", folder=sys.argv[3], transpose=False)
"""


def test_a_killed_search_continues_from_its_folder(tmp_path, monkeypatch):
    x = sample(6, 120, 60, 6)
    np.save(tmp_path / "x.npy", x)
    kept, made = tmp_path / "kept", []
    command = [sys.executable, "-c", KILLED, "3", str(tmp_path / "x.npy"), str(kept)]
    assert subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == -signal.SIGKILL
    search_rows = Worker.search_rows
    monkeypatch.setattr(Worker, "run_group", lambda *_: pytest.fail("levels 0 and 1 were made again"))
    monkeypatch.setattr(Worker, "search_rows", lambda *what: made.append(what[1]) or search_rows(*what))
    result = search(x, 0.1, folder=kept)
    assert made == list(range(3, result.levels_run))
    assert_same(result, in_core(x, 0.1))
    monkeypatch.setattr(Worker, "prepare", lambda *_: pytest.fail("workers were used"))
    again = search(x, 0.1, folder=kept)  # everything is there
    assert_same(again, result)
    assert again.tests_per_level == result.tests_per_level


def test_a_full_disk(tmp_path, monkeypatch):
    """It does not count as the loss of a worker."""
    x = sample(15, 60, 40, 3)

    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(ResultFolder, "write", write)
        with pytest.raises(OSError, match="No space left"):
            search(x, folder=tmp_path)
    assert_same(search(x, folder=tmp_path), in_core(x, 0.05))


def both(searches):
    """The results or errors of two searches, the second of which begins a little later."""
    outcomes = [None, None]

    def find(k):
        time.sleep(0.15 * k)
        try:
            outcomes[k] = searches[k]()
        except ClusterFailure as error:
            outcomes[k] = error

    threads = [threading.Thread(target=find, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_the_later_of_two_searches_takes_the_workers(clients, monkeypatch):
    x = [sample(20 + k, 130 + 20 * k, 50, 4) for k in range(2)]
    run_group = Worker.run_group

    @functools.wraps(run_group)
    def slowly(*arguments):
        time.sleep(0.3)
        return run_group(*arguments)

    monkeypatch.setattr(Worker, "run_group", slowly)
    outcomes = both([lambda k=k: search(x[k], 0.1, client=clients[3], max_level=2) for k in range(2)])
    assert_same(outcomes[1], in_core(x[1], 0.1, max_level=2))
    assert "another search has taken the workers of the cluster" in str(outcomes[0])


def test_nothing_is_kept_after_a_search(clients, monkeypatch):
    """Nor by reference cycles: on a GPU they would take the memory of the next search."""
    backends, open_original = [], cluster.open_backend

    def open_backend(*options):
        backend = open_original(*options)
        backends.append(weakref.ref(backend))
        return backend

    monkeypatch.setattr(cluster, "open_backend", open_backend)
    gc.disable()
    try:
        search(sample(11, 40, 50, 3), client=clients[3])
    finally:
        gc.enable()
    assert len(backends) == 3
    assert not any(backend() for backend in backends)


def test_bootstrap_on_the_same_cluster(clients):
    x = sample(8, 12, 60, 2)
    options = {"n": 6, "alpha": 0.1, "method": "pair-scan", "backend": "host"}
    result, expected = bootstrap(x, executor=clients[3].get_executor(), **options), bootstrap(x, **options)
    assert np.array_equal(result.directed, expected.directed)
    assert np.array_equal(result.undirected, expected.undirected)


def test_two_workers_with_one_gpu(clients, monkeypatch):
    x = sample(16, 40, 50, 3)
    monkeypatch.setattr(HostBackend, "device_key", lambda backend: "the only one")
    with pytest.raises(InvalidParameter, match="have the same GPU"):
        search(x, client=clients[3])
    assert_same(search(x, client=clients[3], device_memory_limit=1 << 20), in_core(x, 0.05))


def test_sets_are_read_when_they_are_asked_for(tmp_path):
    x = sample(6, 100, 60, 4)
    result, expected = search(x), in_core(x, 0.05)
    assert len(result.sepsets) == len(expected.sepsets)
    assert result.n_edges == expected.n_edges
    copied, _, _, _ = pickle.loads(pickle.dumps(result)), result.summary(), result._repr_html_(), result.to_frame()
    assert copied.sepsets[result.names[0], result.names[1]] == expected.sepsets[expected.names[0], expected.names[1]]
    assert not {"_loaded", "_adjacency"} & {*vars(result.sepsets)}
    assert copied == expected
    result.save(tmp_path / "found.npz")
    assert type(result).load(tmp_path / "found.npz") == expected


def test_the_adjacency_matrix_takes_address_space_only():
    wide = empty_graph(200_000)
    wide[150_000, 3] = True
    assert wide[150_000].sum() == 1
    limited = (
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 34,) * 2); "
        "from gpupc_impl.distributed.edge_shards import empty_graph"
    )
    command = [sys.executable, "-c", f"{limited}; empty_graph(200_000)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "InvalidProblem: the adjacency matrix of 200,000 variables" in done.stderr


def test_what_it_refuses(clients, monkeypatch):
    import dask

    x = sample(9, 10, 30, 2)
    with pytest.raises(InvalidParameter, match="pmax"):
        search(x, pmax=True)
    with pytest.raises(InvalidProblem, match="is a correlation matrix: give the samples"):
        search(fixed_order_problem(x, alpha=0.05), workers=2)
    with pytest.raises(InvalidParameter, match="client"):
        search(x, client=3)
    with pytest.raises(InvalidParameter, match="workers is 2, and a client is given"):
        search(x, client="tcp://127.0.0.1:1", workers=2)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(InvalidParameter, match=r"127.0.0.1:1', where no scheduler answers"),
    ):
        search(x, client="tcp://127.0.0.1:1")
    with pytest.raises(InvalidParameter, match="workers_on is 'cuda', and no client is given"):
        search(x, workers_on="cuda")
    with monkeypatch.context() as no_gpu:
        no_gpu.setattr(CudaBackend, "unavailable", lambda: "there is no GPU")
        with pytest.raises(BackendUnavailable, match="cannot run kernels on cuda: there is no GPU"):
            search(x, client=clients[1], workers_on="cuda")
    with monkeypatch.context() as other:
        codes = iter(["one", "other"])  # a worker, and the client
        other.setattr(cluster, "code_digest", lambda: next(codes))
        with pytest.raises(BackendUnavailable, match="another version"):
            search(x, client=clients[1])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match="pip install distributed"):
        search(x, client="tcp://127.0.0.1:1")
