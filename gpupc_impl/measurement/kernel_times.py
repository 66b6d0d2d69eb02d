"""Measures the time of each kernel of a search on a device.

The host waits for every launch, so each kernel has the device to itself. The time of a kernel includes some
microseconds for the wait. A search without waits takes less time, because the host prepares launches while kernels run.
"""

import collections
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

from gpupc_impl.backends import Backend, Kernel
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.solve import open_method_backend, solve
from gpupc_impl.measurement.bench import Setting


class SearchTime(NamedTuple):
    """One search with a wait after each launch: its seconds, its CI tests, and the seconds of every launch of each
    kernel, by its name with its template arguments."""

    seconds: float
    tests: int
    kernels: dict[str, list[float]]


def search_time(problem: Problem, setting: Setting, backend: str = "auto", repeats: int = 5) -> SearchTime:
    """Time the kernels of a search, in the run of median time among `repeats` runs after one run for warming up.
    ValueError is raised if the method has no kernels, or `repeats` is below 1."""
    method = get_method(setting.method)
    opened = open_method_backend(method, backend, setting.limits.device_memory_bytes)
    if opened is None:
        raise ValueError(f"method {method.name!r} has no kernels to time; name one that runs on a backend")
    if setting.all_params.get("workers", 1) > 1:
        raise ValueError("workers is above 1, and several devices would be timed together; leave it out")
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    taken = [_timed_run(problem, method, opened, setting) for _ in range(1 + repeats)][1:]
    return sorted(taken, key=lambda search: search.seconds)[(repeats - 1) // 2]


def _timed_run(problem: Problem, method: Method, backend: Backend, setting: Setting) -> SearchTime:
    launch, launches = Kernel.__call__, collections.defaultdict[str, list[float]](list)

    def timed_launch(kernel: Kernel, *args: Any, **kwargs: Any) -> None:
        backend.synchronize()
        start = time.perf_counter()
        launch(kernel, *args, **kwargs)
        backend.synchronize()
        launches[kernel.name].append(time.perf_counter() - start)

    with mock.patch.object(Kernel, "__call__", timed_launch):
        start = time.perf_counter()
        skeleton = solve(problem, method, backend, setting.params, separating_sets=setting.separating_sets)
        seconds = time.perf_counter() - start
    return SearchTime(seconds, sum(skeleton.tests_per_level), launches)


def table(search: SearchTime) -> str:
    """Return a table with each kernel's launches, milliseconds, microseconds a launch, and share of all time; the
    slowest kernel is the first."""
    total = sum(map(sum, search.kernels.values()))
    rows: list[Sequence[str]] = [("kernel", "launches", "ms", "us each", "share")]
    for name, launches in sorted(search.kernels.items(), key=lambda kernel: -sum(kernel[1])):
        seconds, each = sum(launches), f"{1e6 * sum(launches) / len(launches):,.1f}"
        rows.append((name, f"{len(launches):,}", f"{1e3 * seconds:,.3f}", each, f"{seconds / total:.1%}"))
    lines = aligned(rows)
    a_test = f", {1e6 * total / search.tests:,.3f} us a test" if search.tests else ""
    lines.append(
        f"{search.tests:,} tests: kernels {1e3 * total:,.3f} ms{a_test}; the search {1e3 * search.seconds:,.3f} ms"
    )
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns, of which the first is aligned on the left and all others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
