"""What the references in numba have in common: how they are registered, serial and parallel, and their threads."""

from collections.abc import Mapping
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import Parameter, needs_package

SERIAL: dict[str, Any] = {"backends": ("cpu",), "reference": True, "unavailable": needs_package("numba", "numba")}
"""Arguments of `method` for a reference on one core."""

THREADS = Parameter(0, "number of threads; 0 takes every available core", minimum=0, maximum=1024)
PARALLEL: dict[str, Any] = {**SERIAL, "params": {"threads": THREADS}}
"""The same for one on several cores."""


def threads(params: Mapping[str, Any]) -> int:
    """The number of threads of a run, which is one without the parameter."""
    return params.get("threads", 1) or available_cores()
