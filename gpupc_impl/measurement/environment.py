"""Collects the facts of the machine and the software on which a measurement depends.

No fact is a host name, user name, path or URL, except the name of a cluster's node, which is the scheduler's unless the
user chooses another one (`node_name`). A fact that cannot be determined is None; if it matters, there is a warning.
"""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends.base import PACKAGE_ROOT, Backend
from gpupc_impl.backends.machine import cpu_name, memory_bytes

PACKAGES = ("numpy", "scipy", "numba", "causal-learn", "tigramite", "cupy", "gpucsl")
"""The packages whose versions are recorded."""

RUN = "GPUPC_RUN"  # the environment variable that a workflow sets to a name of its own; all its processes inherit it


def environment(
    cores: int, threads: int, backend: Backend | None = None, gpu_processes: str | None = None
) -> dict[str, Any]:
    """Return the ``environment`` of a record: of a process with `cores` whose workers have `threads`, and of the open
    backend, None for CPU references. `gpu_processes` is the `gpu_process_list` from before the backend was opened,
    because this process is on the list afterwards."""
    warnings = []
    commit, dirty = git_state()
    if commit is None:
        warnings.append("the git commit of the code is not known")
    gpu: dict[str, str | bool | None] | None = None
    if backend is not None and backend.name == "cuda":
        drivers = _nvidia_smi("--query-gpu=driver_version")
        others = None if gpu_processes is None else _are_on(backend.device_key(), gpu_processes)
        gpu = {"driver": drivers and drivers.split("\n")[0], "others_on_gpu": others}
        if others is None:
            warnings.append("whether other processes used the GPU is not known (nvidia-smi did not tell)")
        elif others:
            warnings.append("another process used the GPU when the measurement began")
    node = node_name()
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **({} if node is None else {"node": node}),
        "git_commit": commit,
        "git_dirty": dirty,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": cores,
        "threads": threads,
        "memory_bytes": memory_bytes(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "blas": _blas(),
        "device": None if backend is None else backend.describe(),
        "gpu": gpu,
        "warnings": warnings,
    }


def node_name() -> str | None:
    """Return what records call a cluster's node: ``GPUPC_NODE``, by default Slurm's name; None if it is empty."""
    return os.environ.get("GPUPC_NODE", os.environ.get("SLURMD_NODENAME")) or None


def scheduler_job() -> str | None:
    """Return the Slurm job and its node, for look-ups in the scheduler's logs; None outside of Slurm."""
    job = os.environ.get("SLURM_JOB_ID")
    return job and f"job {job} on node {os.environ.get('SLURMD_NODENAME', '?')}"


def pin_cores(count: int) -> None:
    """Restrict this process to some of its cores; libraries then use as many threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of this package's repository, and whether files beside results differ; None if unknown."""
    # Without git or a repository, or in a repository that only contains the environment with this package.
    if git("ls-files", "--error-unmatch", "gpupc_impl/__init__.py") is None:
        return None, None
    commit = git("rev-parse", "HEAD")
    status = git("status", "--porcelain", "--", ".", ":(exclude)results")
    return commit, None if status is None else bool(status)


def _are_on(device_key: str | None, gpu_processes: str) -> bool:
    """Return whether other processes use a GPU, or may, since their uuids cannot be compared with its key."""
    uuid = (device_key or "").split(" ")[0]
    used = [line.split(",")[0].removeprefix("GPU-").replace("-", "") for line in gpu_processes.splitlines()]
    return any(other == uuid or len(other) != len(uuid) for other in used)


def gpu_process_list() -> str | None:
    """Return the compute processes on this machine's GPUs, one per line ("" for none); None if they are unknown.
    Processes of the same workflow are left out, because one of them measures at a time."""
    listed = _nvidia_smi("--query-compute-apps=gpu_uuid,pid")
    others = (line for line in (listed or "").splitlines() if not _is_of_this_run(line.split(",")[-1].strip()))
    return listed and "\n".join(others)


def _is_of_this_run(pid: str) -> bool:
    """Return whether a process belongs to the workflow that started this process."""
    run = os.environ.get(RUN)
    if not run or not pid.isdecimal():
        return False
    with contextlib.suppress(OSError):  # The process has ended, or is another user's.
        return f"{RUN}={run}".encode() in Path("/proc", pid, "environ").read_bytes().split(b"\0")
    return False


def git(*arguments: str, folder: Path | None = None) -> str | None:
    """Return what git prints in a folder, by default that of this package; None if it fails."""
    return _output(["git", "-C", str(folder or PACKAGE_ROOT.parent), *arguments])


def _nvidia_smi(query: str) -> str | None:
    return _output(["nvidia-smi", query, "--format=csv,noheader"])


def _output(command: list[str]) -> str | None:
    """Return the output of a command, stripped; None if the command cannot be run or fails."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def _version(package: str) -> str | None:
    """Return the version of a package; the names of CuPy's distributions end with the version of CUDA."""
    for name in (package, f"{package}-cuda12x", f"{package}-cuda13x"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def _blas() -> str | None:
    """Return the name and version of the BLAS with which NumPy was built."""
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):  # Other versions of NumPy have another structure.
        return None
