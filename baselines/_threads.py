"""Determines the number of threads of references that run on several cores."""

from collections.abc import Mapping
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import Parameter

PARAMETERS = {"threads": Parameter(0, "number of threads; 0 takes every available core", minimum=0, maximum=1024)}


def threads(params: Mapping[str, Any]) -> int:
    """Return the number of threads of a run."""
    return params["threads"] or available_cores()
