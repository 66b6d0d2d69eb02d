"""The environment of a record: complete, and free of what it must not tell."""

import getpass
import json
import os
import re
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement import environment as module
from gpupc_impl.measurement.environment import environment, git_state
from gpupc_impl.measurement.record import schema

UUID = "GPU-9a3f0c11-0000-4111-8222-33334444aaaa"


class CudaLike:
    name = "cuda"

    def describe(self):
        return {"device": "a GPU", "cuda_runtime": "12.9"}

    def device_key(self):
        return f"{UUID.removeprefix('GPU-').replace('-', '')} 0000:01:00.0"


def check(facts):
    jsonschema.validate(facts, schema()["properties"]["environment"])


def test_fits_the_schema_and_tells_no_secrets():
    facts = environment(available_cores(), 1)
    check(facts)
    text = json.dumps(facts)
    assert facts["device"] is None
    assert facts["gpu"] is None
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 0
    assert abs(datetime.now(UTC) - datetime.fromisoformat(facts["measured_at"])) < timedelta(minutes=1)
    assert facts["packages"]["numpy"]
    assert not re.search(r'"/|://', text), "a path or an URL"
    for secret in (socket.gethostname(), getpass.getuser()):
        assert f'"{secret}"' not in text


@pytest.mark.parametrize(
    ("processes", "others", "warned"),
    [
        (None, None, "is not known (nvidia-smi"),
        ("", False, None),
        ("GPU-1, 17", True, "another process used the GPU"),  # on whatever GPU that is
        (f"{UUID}, 17", True, "another process used the GPU"),
        (f"{UUID.replace('9', '0')}, 17", False, None),  # on another of this machine
    ],
)
def test_gpu_facts(monkeypatch, processes, others, warned):
    monkeypatch.setattr(module, "_nvidia_smi", lambda query: "570.1\n570.1" if "driver" in query else None)
    monkeypatch.setattr(module, "git_state", lambda: ("abc", False))
    facts = environment(2, 2, CudaLike(), processes)
    check(facts)
    assert facts["gpu"] == {"driver": "570.1", "others_on_gpu": others}
    assert facts["device"]["device"] == "a GPU"
    assert (len(facts["warnings"]) == 1 and warned in facts["warnings"][0]) if warned else facts["warnings"] == []


def test_processes_of_the_same_workflow_are_not_listed(monkeypatch):
    monkeypatch.setenv("GPUPC_RUN", "mine")
    runs = ("mine", "mine too", "mine")
    started = [subprocess.Popen(["sleep", "60"], env=os.environ | {"GPUPC_RUN": run}) for run in runs]
    try:
        for process in started:
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                time.sleep(0.01)  # The kernel shows the environment only some time after the program was started.
        started[2].kill()
        started[2].wait()
        lines = [f"{UUID}, {process.pid}" for process in started]
        monkeypatch.setattr(module, "_nvidia_smi", lambda query: "\n".join(lines))
        assert module.gpu_process_list() == "\n".join(lines[1:])  # of another workflow, and of one that has ended
        monkeypatch.delenv("GPUPC_RUN")
        assert module.gpu_process_list() == "\n".join(lines)
        monkeypatch.setattr(module, "_nvidia_smi", lambda query: None)
        assert module.gpu_process_list() is None
    finally:
        for process in started:
            process.kill()
            process.wait()


SLURM = {"SLURMD_NODENAME": "n1"}


@pytest.mark.parametrize(
    ("variables", "name"),
    [({}, None), (SLURM, "n1"), ({**SLURM, "GPUPC_NODE": "ours"}, "ours"), ({**SLURM, "GPUPC_NODE": ""}, None)],
)
def test_the_node_of_a_cluster(monkeypatch, variables, name):
    for variable in ("SLURMD_NODENAME", "GPUPC_NODE"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    facts = environment(1, 1)
    check(facts)
    assert facts.get("node") == name


def test_git_state(tmp_path, monkeypatch):
    """Of a git repository with a package folder in it, taken for ours."""

    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    package = tmp_path / "gpupc_impl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(module, "PACKAGE_ROOT", package)
    git("init")
    assert git_state() == (None, None), "a repository that does not track the package is not its repository"
    git("add", ".")
    git("commit", "-m", "first")
    commit, dirty = git_state()
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert dirty is False
    (package.parent / "results").mkdir()
    (package.parent / "results" / "record.json").write_text("{}")
    assert git_state() == (commit, False), "what is being recorded is no code"
    (package / "__init__.py").write_text("changed = True\n")
    assert git_state() == (commit, True)
