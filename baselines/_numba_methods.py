"""The common part of the references in numba: their registration, serial and parallel, and their threads."""

from collections.abc import Mapping
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import Parameter, needs_package

SERIAL: dict[str, Any] = {
    "backends": ("cpu",),
    "reference": True,
    "tiers": True,
    "unavailable": needs_package("numba", "numba"),
}
"""Arguments of `method` for a reference on one core."""

THREADS = Parameter(0, "number of threads; 0 takes every available core", minimum=0, maximum=1024)
PARALLEL: dict[str, Any] = {**SERIAL, "params": {"threads": THREADS}}
"""Arguments of `method` for a reference on several cores."""


def threads(params: Mapping[str, Any]) -> int:
    """Return the number of threads of a run, which is 1 if the method has no such parameter."""
    return params.get("threads", 1) or available_cores()
