"""Computes what a measuring job requests from a cluster's scheduler, from the limits that the config sets for each run.

The minutes are what a job probably needs, not the worst case: a job that its scheduler ended is tried again and
continues with the samples that it has taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpupc_impl.measurement.bench import START_LIMIT_S

OVERHEAD_MB = 2000
"""The memory of a job beside its runs: that of two Snakemake processes and of the one that measures."""


def for_searches(
    settings: Mapping[str, Mapping[str, Any]],
    data_sets: int,
    repeats: int,
    timing: Mapping[str, Any],
    limits: Mapping[str, Any],
    cluster: Mapping[str, Any],
) -> dict[str, int]:
    """Return the minutes and megabytes of a job that measures settings on data sets, one data set after another.

    A setting whose cold run exceeds ``timing.long_run_s`` has one repeat, any other ``repeats``.

    Args:
        timing, limits, cluster: these parts of the config.
    """
    seconds = 0.0
    for choice in settings.values():
        limit = choice.get("time_limit_s", timing["time_limit_s"])
        seconds += START_LIMIT_S + max(2 * limit, (1 + repeats) * min(limit, timing["long_run_s"]))
    return _resources(data_sets * seconds, min(len(settings), timing["side_by_side"]), limits, cluster)


def for_single_tests(
    cells: int, implementations: int, time_limit_s: float, limits: Mapping[str, Any], cluster: Mapping[str, Any]
) -> dict[str, int]:
    """Return the minutes and megabytes of a job that times single tests; a limit holds for a whole cell."""
    return _resources(implementations * START_LIMIT_S + cells * time_limit_s, implementations, limits, cluster)


def _resources(seconds: float, processes: int, limits: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, int]:
    """Return the resources under Snakemake's names; 0 MB means no limit."""
    memory = limits["memory_mb"]
    return {
        "runtime": min(math.ceil(seconds / 60), cluster["job_minutes"]),
        "mem_mb": 0 if memory is None else processes * memory + OVERHEAD_MB,
    }
