"""The version of the code on a machine, and the machine's memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT

MEMORY_SHARE = 0.8
"""Share of the free memory of a machine that its workers divide among themselves."""

HOST_DEVICE_SHARE = 0.75
"""Part of a worker's share that takes the place of device memory on CPU cores; the rest is for the worker's process."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""The folder of Linux's control groups (version 2)."""

WORKER_PACKAGES = ("distributed", "engine", "gaussian", "out_of_core")
"""Packages whose modules a search uses on a worker."""


@functools.cache
def code_digest() -> str:
    """Return the digest of the kernels and of the modules that fill kernel arguments; it must be equal on all
    machines."""
    digest = hashlib.sha256()
    modules = (path for package in WORKER_PACKAGES for path in (PACKAGE_ROOT / package).rglob("*.py"))
    for path in sorted([*PACKAGE_ROOT.rglob("*.cu*"), *modules]):
        digest.update(str(path.relative_to(PACKAGE_ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def host_device_bytes(free: int) -> int:
    """Return the bytes that a worker on CPU cores may use as device memory, given its share of the machine's free
    bytes."""
    return int(HOST_DEVICE_SHARE * MEMORY_SHARE * free)


def free_memory() -> int:
    """Return the free bytes of this machine's memory, or of this process's control group if the group has fewer."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for group in (CONTROL_GROUPS / own, *(CONTROL_GROUPS / own).parents):
            with contextlib.suppress(OSError, ValueError):  # the file does not exist, or the limit is "max"
                free = min(free, int((group / "memory.max").read_text()) - _bytes_in_use(group))
    return max(0, free)


def _bytes_in_use(group: Path) -> int:
    """Return the bytes that a control group uses, without the pages of files that the system can drop."""
    counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int((group / "memory.current").read_text()) - int(counts.get("inactive_file", 0))
