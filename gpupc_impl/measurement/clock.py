"""Runs a setting between two readings of the clock; `digest` counts this file for every method, and not `worker`.

The clock runs from the prepared problem in host memory to the adjacency and the separating sets in host memory,
transfers included. The time for loading the problem, orienting edges and writing files is not included.
"""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

import scipy.special  # noqa: F401 (families import it on first use, which no clock is to measure)

from gpupc_impl.backends import Backend
from gpupc_impl.backends.compilations import compiling
from gpupc_impl.core import allocation
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import open_method_backend, solve

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class OpenSetting:
    """A method with its parameters, on a backend of its own; backends in one process share context and kernels.

    Attributes:
        backend: None for a reference.
        device_memory_limit: the budget in bytes; None for no budget.
    """

    method: Method
    params: dict[str, Any]
    separating_sets: str
    backend: Backend | None
    device_memory_limit: int | None

    @classmethod
    def open(
        cls, method: str, backend: str, params: dict[str, Any], separating_sets: str, device_memory_limit: int | None
    ) -> Self:
        """Open the backend (library, device context), so that the first run does not."""
        registered = get_method(method)
        opened = open_method_backend(registered, backend, device_memory_limit)
        if opened is not None:
            opened.waits_for_best = True
        with _compilation(opened):  # The import of numba is not to count against the first run's limit.
            pass
        return cls(registered, params, separating_sets, opened, device_memory_limit)

    def place(self, problem: Problem) -> Problem:
        """Return a problem in the memory from which the backend copies fastest."""
        arrays = None if self.backend is None else self.backend.host_arrays
        if arrays is None:
            return problem
        with allocation.allocated_by(arrays):
            return problem.reallocated()

    def search(self, problem: Problem, progress: Callable[[Progress], None] | None) -> "Timed[Skeleton]":
        """Solve a problem once."""
        backend, sets = self.backend, self.separating_sets
        with _compilation(backend) as compile_seconds:
            found, seconds = self._timed(
                lambda: solve(problem, self.method, backend, self.params, separating_sets=sets, progress=progress)
            )
        if backend is not None:
            # No compiler may run beside the next run, which finds all kernels compiled.
            backend.finish_prefetched()
        return Timed(found, seconds, compile_seconds())

    def open_test(self, problem: Problem) -> "Callable[[int, int, tuple[int, ...]], Timed[float]]":
        """Return a function that performs a single test (i, j, S) once; see `single_tests`."""
        assert self.method.open_test is not None  # `single_tests` checks it.
        test = self.method.open_test(problem, self.backend, self.params)

        def timed_test(i: int, j: int, members: tuple[int, ...]) -> Timed[float]:
            with _compilation(self.backend) as compile_seconds:
                return Timed(*self._timed(lambda: float(test(i, j, members))), compile_seconds())

        return timed_test

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """Return the value of ``work()`` and its seconds between two synchronisations with the device.

        Garbage collection runs beforehand, so that no run pays for the garbage of another run.
        """
        gc.collect()
        self._synchronize()
        start = time.perf_counter()
        value = work()
        self._synchronize()
        return value, time.perf_counter() - start

    def _synchronize(self) -> None:
        if self.backend is not None:
            self.backend.synchronize()


@dataclasses.dataclass(frozen=True)
class Timed(Generic[T]):
    """The value of one run, its seconds, and how many of them were spent compiling; None if nothing was compiled."""

    value: T
    seconds: float
    compile_seconds: float | None


@contextlib.contextmanager
def _compilation(backend: Backend | None) -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns for how long the backend, or numba if there is none, compiled in this context."""
    if backend is None:
        with numba_compilation() as seconds:
            yield seconds
    else:
        compiled = backend.compile_seconds
        yield lambda: backend.compile_seconds - compiled


@contextlib.contextmanager
def numba_compilation() -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns for how long numba compiled in this context; None if it did not compile or is not
    installed.

    The time is what numba measures: typing, optimising and generating code, with nested compilations counted once.
    Reading a function from numba's cache on disk is not included.
    """
    try:
        from numba.core import event
    except ImportError:
        yield lambda: None
        return
    listening: Any = event.TimingListener  # The type is Any because numba declares no types.

    class Listener(listening):  # type: ignore[misc]
        """This also notifies the observers of compilations."""

        def __init__(self) -> None:
            super().__init__()
            self._ends: list[Any] = []

        def on_start(self, event: Any) -> None:
            super().on_start(event)
            self._ends.append(compiling())
            self._ends[-1].__enter__()

        def on_end(self, event: Any) -> None:
            self._ends.pop().__exit__(None, None, None)
            super().on_end(event)

    with event.install_listener("numba:compile", Listener()) as listener:
        yield lambda: listener.duration if listener.done else None
