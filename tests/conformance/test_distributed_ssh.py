"""Method `distributed` on workers that SSH starts: by a real sshd on this machine, started and ended here."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl import skeleton
from tests.wide import assert_same, in_core

pytestmark = pytest.mark.ssh

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
PRIVILEGE_SEPARATION = Path("/run/sshd")
REMOTE_PYTHON = f"env PYTHONPATH={ROOT} {sys.executable}"
CONF = """
ListenAddress {host}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


class Sshd:
    """A running one: what asyncssh and ssh need to log in."""

    def __init__(self, folder, port):
        known, key = folder / "known_hosts", folder / "key"
        known.write_text(f"[{HOST}]:{port} {(folder / 'host_key.pub').read_text()}")
        self.options = {"port": port, "known_hosts": str(known), "client_keys": [str(key)], "config": None}
        options = [f"UserKnownHostsFile={known}", "IdentitiesOnly=yes", "BatchMode=yes"]
        self.ssh = ["ssh", "-F", "none", "-i", str(key), "-p", str(port), *(f"-o{each}" for each in options), HOST]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """An sshd with keys of its own, which lets this user in; ended at the end."""
    pytest.importorskip("asyncssh", reason="needs the extra ssh: make test-ssh")
    places = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if missing := [name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=places) is None]:
        pytest.skip(f"needs SSH; not installed: {', '.join(missing)} (Debian: openssh-server)")
    if getpass.getuser() == "root" and not PRIVILEGE_SEPARATION.is_dir():
        pytest.skip(f"root's sshd needs the empty folder {PRIVILEGE_SEPARATION}, which Debian's service makes")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(CONF.format(host=HOST, port=port, folder=folder))
    log = folder / "sshd.log"
    command = [shutil.which("sshd", path=places), "-D", "-f", folder / "sshd_config", "-E", log]
    with subprocess.Popen(command) as daemon:
        try:
            result = Sshd(folder, port)
            deadline = time.monotonic() + 30
            while subprocess.run([*result.ssh, "true"], capture_output=True).returncode:
                if time.monotonic() > deadline or daemon.poll() is not None:
                    pytest.fail(log.read_text())
                time.sleep(0.1)
            yield result
        finally:
            daemon.terminate()


def test_a_cluster_that_dask_starts(sshd, tmp_path):
    from distributed import Client, SSHCluster

    with (
        SSHCluster(
            [HOST, HOST, HOST],
            connect_options=sshd.options,
            worker_options={"nthreads": 3, "memory_limit": 0},
            scheduler_options={"host": HOST, "port": 0, "dashboard": False},
            remote_python=[REMOTE_PYTHON, *(f"env CUDA_VISIBLE_DEVICES={gpu} {REMOTE_PYTHON}" for gpu in (0, 1))],
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        assert sorted(client.run(os.getenv, "CUDA_VISIBLE_DEVICES").values()) == ["0", "1"]
        data = np.random.default_rng(0).normal(size=(100, 200))
        result = skeleton(data, 0.01, method="distributed", backend="host", client=client, folder=tmp_path)
    assert_same(result, in_core(data, 0.01))
    assert result.facts["distributed"]["workers"] == 2
