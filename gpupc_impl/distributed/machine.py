"""What one machine offers a search: its version of the code, and memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT

MEMORY_SHARE = 0.8
"""Share of the free memory of a machine that its workers divide among themselves; the rest is left uncounted."""

HOST_DEVICE_SHARE = 0.75
"""Of a worker's share, what a worker on CPU cores takes in place of device memory; the rest is for its process."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Linux's control groups (version 2)."""

WORKER_PACKAGES = ("distributed", "engine", "gaussian", "out_of_core")
"""Packages whose modules a search uses on a worker."""


@functools.cache
def code_digest() -> str:
    """Digest of the kernels and of the modules that fill their arguments, which must be equal on all machines."""
    digest = hashlib.sha256()
    modules = (path for package in WORKER_PACKAGES for path in (PACKAGE_ROOT / package).rglob("*.py"))
    for path in sorted([*PACKAGE_ROOT.rglob("*.cu*"), *modules]):
        digest.update(str(path.relative_to(PACKAGE_ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def host_device_bytes(free: int) -> int:
    """What a worker on CPU cores may take in place of device memory, if so many bytes of the machine are its own."""
    return int(HOST_DEVICE_SHARE * MEMORY_SHARE * free)


def free_memory() -> int:
    """Free bytes of this machine's memory, or of this process's control group if those are fewer."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for group in (CONTROL_GROUPS / own, *(CONTROL_GROUPS / own).parents):
            with contextlib.suppress(OSError, ValueError):  # there is no such file, or the limit is "max"
                free = min(free, int((group / "memory.max").read_text()) - _bytes_in_use(group))
    return max(0, free)


def _bytes_in_use(group: Path) -> int:
    """Bytes of a control group, without pages of files that can be dropped."""
    counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int((group / "memory.current").read_text()) - int(counts.get("inactive_file", 0))
