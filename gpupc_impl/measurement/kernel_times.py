"""Measures the time of each kernel of a search on a device.

The host waits for every launch, so each kernel has the device to itself. The time of a kernel includes some
microseconds for the wait. A search without waits takes less time, because the host prepares launches while kernels run.
"""

import collections
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gpupc_impl.backends import Backend, Kernel
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.solve import open_method_backend, solve
from gpupc_impl.measurement.bench import Setting


class KernelTime(NamedTuple):
    """A kernel, with its template arguments, in one search: the number of its launches, and the seconds of all."""

    kernel: str
    launches: int
    seconds: float


class SearchTime(NamedTuple):
    """One search with a wait after each launch: its seconds, its CI tests, and its kernels, the slowest first."""

    seconds: float
    tests: int
    kernels: list[KernelTime]


class _TimedKernel:
    """A kernel whose launches wait until they have finished."""

    def __init__(self, kernel: Kernel, backend: Backend, add: Callable[[str, float], None]):
        self._kernel, self._backend, self._add = kernel, backend, add

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._backend.synchronize()
        start = time.perf_counter()
        self._kernel(*args, **kwargs)
        self._backend.synchronize()
        self._add(self._kernel.name, time.perf_counter() - start)


class _TimedBackend:
    """A backend whose kernels are timed."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self.seconds: dict[str, list[float]] = collections.defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def kernel(self, *args: Any, **kwargs: Any) -> _TimedKernel:
        kernel = self._backend.kernel(*args, **kwargs)
        return _TimedKernel(kernel, self._backend, lambda name, seconds: self.seconds[name].append(seconds))


def search_time(problem: Problem, setting: Setting, backend: str = "auto", repeats: int = 5) -> SearchTime:
    """Time the kernels of a search, in the run of median time among `repeats` runs after one run for warming up.
    ValueError is raised if the method has no kernels, or `repeats` is below 1."""
    method = get_method(setting.method)
    opened = open_method_backend(method, backend, setting.limits.device_memory_bytes)
    if opened is None:
        raise ValueError(f"method {method.name!r} has no kernels to time; name one that runs on a backend")
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    taken = [_timed_run(problem, method, opened, setting) for _ in range(1 + repeats)][1:]
    taken.sort(key=lambda search: search.seconds)
    return taken[(len(taken) - 1) // 2]


def _timed_run(problem: Problem, method: Method, backend: Backend, setting: Setting) -> SearchTime:
    timed = _TimedBackend(backend)
    start = time.perf_counter()
    skeleton = solve(
        problem,
        method,
        timed,  # type: ignore[arg-type]
        setting.params,
        separating_sets=setting.separating_sets,
    )
    seconds = time.perf_counter() - start
    kernels = [KernelTime(name, len(each), sum(each)) for name, each in timed.seconds.items()]
    return SearchTime(seconds, sum(skeleton.tests_per_level), sorted(kernels, key=lambda kernel: -kernel.seconds))


def table(search: SearchTime) -> str:
    """Return a table with each kernel's launches, milliseconds, microseconds a launch, and share of all time."""
    total = sum(kernel.seconds for kernel in search.kernels)
    rows: list[Sequence[str]] = [("kernel", "launches", "ms", "us each", "share")]
    for name, launches, seconds in search.kernels:
        each = f"{1e6 * seconds / launches:,.1f}"
        rows.append((name, f"{launches:,}", f"{1e3 * seconds:,.3f}", each, f"{seconds / total:.1%}"))
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
