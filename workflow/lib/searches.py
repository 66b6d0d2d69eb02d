"""The searches that a config requests, and what a cluster's jobs need to measure them."""

import fnmatch
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.measurement.bench import START_LIMIT_S, Setting
from gpupc_impl.measurement.record import Limits

Config = Mapping[str, Any]  # a config, or a part of one
FAILED = ("error", "killed")
"""The statuses with which a run of the workflow fails. A time limit and a memory budget are declared outcomes, and a
setting that is skipped was not to run here."""
OVERHEAD_MB = 2000  # the memory of a job beside its runs: that of two Snakemake processes and of the one that measures


class Search(NamedTuple):
    """A method with parameters, and the parameters of the problem that it is to solve."""

    family: str
    method: str
    params: Mapping[str, Any]
    problem: Mapping[str, Any]


def method_of(name: str, choice: Config) -> Method:
    """Return the method of a setting: the one that the config names, or else the one with the setting's name. Raises
    UnknownMethod, or InvalidParameter if a parameter is wrong."""
    method = get_method(choice.get("method", name))
    method.parse_params(choice.get("params", {}))
    return method


def setting_of(name: str, choice: Config, timing: Config, limits: Config) -> Setting:
    """Return a setting as the config defines it, whose parts hold unless the setting has its own values."""
    memory, device_memory = limits["memory_mb"], choice.get("device_memory_mb", limits["device_memory_mb"])
    own = Limits(choice.get("time_limit_s", timing["time_limit_s"]), in_bytes(memory), in_bytes(device_memory))
    rule = choice.get("separating_sets", "canonical")
    return Setting(name, choice.get("method", name), choice.get("params", {}), rule, own)


def is_requested(choice: Config, dataset: str) -> bool:
    """Return whether the config has a setting measured on a data set, which ``only`` may leave out."""
    return any(fnmatch.fnmatchcase(dataset, pattern) for pattern in choice.get("only", ["*"]))


def in_bytes(megabytes: float | None) -> int | None:
    return None if megabytes is None else int(megabytes * 1_000_000)


def resources_of_searches(
    settings: Mapping[str, Config], data_sets: int, repeats: int, timing: Config, limits: Config, cluster: Config
) -> dict[str, int]:
    """Return the minutes and megabytes that a job probably needs to measure settings on data sets, one data set after
    another, under these parts of the config. A job that its scheduler ended is tried again, and continues with the
    samples that it has taken. A setting whose cold run exceeds ``timing.long_run_s`` has one repeat, any other
    ``repeats``."""
    seconds = 0.0
    for choice in settings.values():
        limit = choice.get("time_limit_s", timing["time_limit_s"])
        seconds += START_LIMIT_S + max(2 * limit, (1 + repeats) * min(limit, timing["long_run_s"]))
    return _resources(data_sets * seconds, min(len(settings), timing["side_by_side"]), limits, cluster)


def resources_of_tests(
    cells: int, implementations: int, time_limit_s: float, limits: Config, cluster: Config
) -> dict[str, int]:
    """Return the minutes and megabytes of a job that times single tests; a limit holds for a whole cell."""
    return _resources(implementations * START_LIMIT_S + cells * time_limit_s, implementations, limits, cluster)


def _resources(seconds: float, processes: int, limits: Config, cluster: Config) -> dict[str, int]:
    """Return the resources under Snakemake's names; 0 MB means no limit."""
    memory = limits["memory_mb"]
    return {
        "runtime": min(math.ceil(seconds / 60), cluster["job_minutes"]),
        "mem_mb": 0 if memory is None else processes * memory + OVERHEAD_MB,
    }
