"""The cluster of this machine: who may connect to it, and what memory a worker may take."""

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile

import pytest

from gpupc_impl import skeleton
from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.backends.cuda import CudaBackend
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.distributed import cluster as clusters
from gpupc_impl.distributed import local_cluster as cluster
from gpupc_impl.distributed.cluster import connected
from gpupc_impl.distributed.local_cluster import local_cluster
from tests.wide import assert_same, in_core, sample

psutil = pytest.importorskip("psutil")
distributed = pytest.importorskip("distributed")


def listening() -> set[tuple[str, int]]:
    """Addresses and ports on which this process and its children wait for connections."""
    own = psutil.Process()
    return {
        tuple(connection.laddr)
        for process in (own, *own.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.type == socket.SOCK_STREAM
    }


STRANGER = """
import sys
from distributed import Client, Security

for address in sys.argv[1:]:
    place = address.partition("://")[2]
    for scheme, security in (("tcp", None), ("tls", Security.temporary())):
        try:
            Client(f"{scheme}://{place}", security=security, timeout="1s").run_on_scheduler(print, "inside")
        except OSError:
            print("refused")
"""


def test_processes_search_together_and_nobody_else_can_run_code_in_them():
    """Another user has the addresses, since ports are easily listed, and keys that are not ours."""
    before = listening()
    with local_cluster(2, "host") as client:
        information = client.scheduler_info(n_workers=-1)
        addresses = [information["address"], *information["workers"]]
        assert {address for address, _ in listening() - before} == {"127.0.0.1"}
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        command = [sys.executable, "-c", STRANGER, *addresses[:2]]
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert outcome.stdout.split() == ["refused"] * 4, outcome.stderr
        x = sample(7, 90, 60, 4)
        found = skeleton(x, 0.1, method="distributed", backend="host", client=client, transpose=False)  # its owner can
    assert found.facts["distributed"]["workers"] == 2
    assert found.facts["params"]["client"] == "given"
    assert_same(found, in_core(x, 0.1))


def finds_planted() -> bool:
    return importlib.util.find_spec("planted_by_a_stranger") is not None


def test_nothing_is_imported_from_a_folder_that_another_user_made_for_dask(tmp_path, monkeypatch):
    """The other user makes Dask's folder in the system's temporary one first, and puts a module and a link there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("dask-scratch-space", f"dask-scratch-space-{os.getuid()}"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "planted_by_a_stranger.py").write_text("")
        (tmp_path / name / "global.lock").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("content")
    before = sorted(tmp_path.iterdir())
    with local_cluster(1, "host") as client:
        assert not finds_planted()
        assert not client.submit(finds_planted).result(30)
        (folder,) = set(tmp_path.iterdir()) - set(before)
        assert folder.stat().st_mode & 0o077 == 0
    assert (tmp_path / "precious").read_text() == "content"
    assert sorted(tmp_path.iterdir()) == before


def test_a_process_has_a_gpu_of_its_own(monkeypatch):
    class NoCluster(Exception):
        """In place of a cluster, what its workers would be."""

    def no_cluster(workers, **options):
        raise NoCluster([worker["options"]["env"]["CUDA_VISIBLE_DEVICES"] for worker in workers.values()])

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(CudaBackend, "unavailable", lambda: None)
    monkeypatch.setattr(distributed, "SpecCluster", no_cluster)
    with pytest.raises(NoCluster, match=r"\['3', '5'\]"), local_cluster(2, "cuda"):
        pass
    with pytest.raises(InvalidParameter, match="at most 2"), local_cluster(3, "cuda"):
        pass


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(cluster, "needs_package", lambda *names: lambda: "the package cryptography is not installed")
    said = "cannot be started for host: the package cryptography"
    with pytest.raises(BackendUnavailable, match=said), local_cluster(2, "host"):
        pass


@pytest.mark.parametrize("address", ["http://[::1", "tls://127.0.0.1:1", "tcp://\0"])
def test_an_address_without_a_scheduler_is_said(address):
    with pytest.raises(InvalidParameter, match="no scheduler answers"), connected(address):
        pass


def test_memory_of_a_control_group(tmp_path, monkeypatch):
    without = clusters.free_memory()
    for name, content in (("max", "5000000"), ("current", "3000000"), ("stat", "anon 7\ninactive_file 1000000\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(clusters, "CONTROL_GROUPS", tmp_path)
    assert clusters.free_memory() == 3_000_000 < without
    (tmp_path / "memory.max").write_text("max\n")
    assert clusters.free_memory() > 3_000_000
