"""Records the timeline of a block-based out-of-core run: when each step of each block begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import write_csv
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import open_method_backend, solve
from workflow.lib.searches import in_bytes

COLUMNS = ("level", "block", "step", "stream", "start_s", "end_s")


def record_timeline(
    problem_path: str | Path,
    facts: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    limits: Mapping[str, Any],
    backend: str,
    out: str | Path,
) -> str | None:
    """Run the first setting twice, and write the second run's steps as CSV; only a header if it cannot run.

    Args:
        facts: the problem's facts, as `workflow.lib.problems.write_problem` writes them.
        settings, limits: these parts of the config.

    Returns:
        the reason why there are no steps; None if there are steps.
    """
    name, choice = next(iter(settings.items()))
    why: str | None = facts["why"]
    if facts["available"]:
        problem, method = load_problem(problem_path), get_method(choice.get("method", name))
        limit = in_bytes(choice.get("device_memory_mb", limits["device_memory_mb"]))
        opened = open_method_backend(method, backend, limit)
        params = choice.get("params", {})
        try:
            solve(problem, method, opened, params)  # This run compiles kernels and warms up the device.
            solve(problem, method, opened, {**params, "timeline": str(out)})
        except DeviceMemoryError as error:
            why = str(error)
    if why is not None:
        write_csv(out, [], COLUMNS)
    return why
