"""What a measuring job may take of a cluster's node, from the limits that its config sets to each run.

A job that its scheduler ends goes on with the samples that it took, so minutes that fit what is likely suffice: they
are not the worst that could happen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpupc_impl.measurement.bench import START_LIMIT_S

OVERHEAD_MB = 2000
"""Memory of a job beside its runs: Snakemake, in the job and in its step, and the process that measures."""


def for_searches(
    settings: Mapping[str, Mapping[str, Any]],
    data_sets: int,
    repeats: int,
    timing: Mapping[str, Any],
    limits: Mapping[str, Any],
    cluster: Mapping[str, Any],
) -> dict[str, int]:
    """Minutes and megabytes of a job that measures settings on data sets, one after another.

    A setting is run once more after a run longer than ``timing.long_run_s``, and ``repeats`` times after a shorter one.

    Args:
        timing, limits, cluster: the config's.
    """
    seconds = 0.0
    for choice in settings.values():
        limit = choice.get("time_limit_s", timing["time_limit_s"])
        seconds += START_LIMIT_S + max(2 * limit, (1 + repeats) * min(limit, timing["long_run_s"]))
    return _resources(data_sets * seconds, min(len(settings), timing["side_by_side"]), limits, cluster)


def for_single_tests(
    cells: int, implementations: int, time_limit_s: float, limits: Mapping[str, Any], cluster: Mapping[str, Any]
) -> dict[str, int]:
    """The same of a job that times single tests, all of whose runs in a cell have one limit together."""
    return _resources(implementations * START_LIMIT_S + cells * time_limit_s, implementations, limits, cluster)


def _resources(seconds: float, processes: int, limits: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, int]:
    """As Snakemake names them. Every process may hold what a run may; 0 MB stands for no limit."""
    memory = limits["memory_mb"]
    return {
        "runtime": min(math.ceil(seconds / 60), cluster["job_minutes"]),
        "mem_mb": 0 if memory is None else processes * memory + OVERHEAD_MB,
    }
