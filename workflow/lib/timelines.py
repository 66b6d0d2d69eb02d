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
    """Run the first of the settings twice, and write the second run's steps as CSV: a header alone if it cannot run.

    Args:
        facts: the problem's, as `workflow.lib.problems.write_problem` wrote them.
        settings, limits: as in the config.

    Returns:
        why there are no steps, as a sentence; None if there are.
    """
    name, choice = next(iter(settings.items()))
    why: str | None = facts["why"]
    if facts["available"]:
        problem, method = load_problem(problem_path), get_method(choice.get("method", name))
        limit = in_bytes(choice.get("device_memory_mb", limits["device_memory_mb"]))
        opened = open_method_backend(method, backend, limit)
        params = choice.get("params", {})
        try:
            solve(problem, method, opened, params)  # compiles and warms up
            solve(problem, method, opened, {**params, "timeline": str(out)})
        except DeviceMemoryError as error:
            why = str(error)
    if why is not None:
        write_csv(out, [], COLUMNS)
    return why
