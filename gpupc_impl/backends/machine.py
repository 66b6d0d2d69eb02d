"""Facts about the machine: its processor, its memory, and the cores that this process may use."""

import math
import os
import platform
from pathlib import Path


def available_cores() -> int:
    """Return the number of cores that this process may use, by its affinity and its container's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # The file does not exist, or the quota is "max".
        return cores


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cpu_name() -> str:
    """Return the processor's name as Linux reports it, or its architecture."""
    return next((line.partition(":")[2].strip() for line in cpu_facts("model name")), platform.machine())


def cpu_facts(*names: str) -> list[str]:
    """Return the distinct lines with these names (such as "flags") in Linux's description of the processors, sorted."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return sorted({line for line in lines if line.startswith(names)})


def has_nvidia_driver() -> bool:
    """Return whether the NVIDIA driver is loaded, or available from Windows in WSL."""
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/usr/lib/wsl/lib/libcuda.so.1")))
