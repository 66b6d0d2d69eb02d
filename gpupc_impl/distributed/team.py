"""The workers of a search together: the interface, and its form for threads (`cluster` has that for Dask)."""

from __future__ import annotations

import abc
import itertools
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gpupc_impl.backends import Backend, BackendUnavailable
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.distributed import filter_plan
from gpupc_impl.distributed.communicator import ThreadCommunicator
from gpupc_impl.distributed.worker import Worker
from gpupc_impl.gaussian.problem import GaussianProblem

Result = TypeVar("Result")
Call = Callable[..., Any]  # ``call(Worker.method, *arguments)`` calls a method of one worker, and returns the result
SHARED_PRODUCTS = 5e12
"""The multiply-adds of all products, n p^2, from which a search takes all GPUs if no number of workers is requested. On
two H100 a search with 4e11 took longer than on one, and on two H200 one with 9.8e12 took 4.9 s instead of 6.9."""


class WorkersLost(RuntimeError):
    """A worker or its connection is gone, so that all workers have to begin their step again."""


class ClusterFailure(RuntimeError):
    """The workers ended before the search; the message says how to go on."""


class Team(abc.ABC):
    """The workers of a search."""

    size: int
    devices: list[dict[str, Any]]

    @abc.abstractmethod
    def _call(self, number: int, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a worker."""

    @abc.abstractmethod
    def _abort(self) -> None:
        """Make the calls of workers that wait for others fail."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the memory of the workers."""

    def on_all(self, work: Callable[[int, Call], Result]) -> list[Result]:
        """Call a function with the number and the `Call` of each worker in a thread; returns the results. If it fails
        for a worker, the calls of the others fail as well, and the original error is raised."""
        errors: list[BaseException] = []  # in the order in which workers fail

        def guarded(number: int) -> Result:
            try:
                return work(number, lambda method, *arguments: self._call(number, method, *arguments))
            except BaseException as error:
                errors.append(error)
                self._abort()
                raise

        try:
            with ThreadPoolExecutor(self.size) as pool:
                try:
                    others = [pool.submit(guarded, number) for number in range(1, self.size)]
                    first = guarded(0)
                except BaseException as error:  # Ctrl-C, or a thread that cannot start, must not leave others waiting
                    errors.append(error)
                    self._abort()
            if errors:
                raise next(  # the first error that is not the consequence of another one
                    (error for error in errors if not isinstance(error, threading.BrokenBarrierError)),
                    WorkersLost("workers lost the connection with each other"),
                )
            return [first, *(other.result() for other in others)]
        finally:  # Errors refer to the arrays of all workers by the frames that they passed, and this frame to errors.
            others = []
            while errors:
                traceback.clear_frames(errors.pop().__traceback__)


class ThreadTeam(Team):
    """Workers that are threads of this process, each with a GPU or with a share of the memory of the CPU's cores."""

    def __init__(self, problem: GaussianProblem, backends: Sequence[Backend]):
        self.size, self.devices = len(backends), [backend.describe() for backend in backends]
        shared = threading.Barrier(self.size), [[None] * self.size for _ in range(2)]
        self._communicators = [ThreadCommunicator(each, number, *shared) for number, each in enumerate(backends)]
        self._workers = [Worker(problem, communicator) for communicator in self._communicators]
        self._further = list(backends[1:])

    def _call(self, number: int, method: Callable[..., Any], *arguments: Any) -> Any:
        return method(self._workers[number], *arguments)

    def on_all(self, work: Callable[[int, Call], Result]) -> list[Result]:
        # The number of NumPy's threads is a setting of the process, so the context that ends last has to be that of
        # this thread.
        with self._communicators[0].backend.array_library():
            return super().on_all(work)

    def _abort(self) -> None:
        self._communicators[0].abort()

    def close(self) -> None:
        self._workers.clear()
        self._communicators.clear()  # They refer to the arrays that workers exchanged last.
        for backend in self._further:
            backend.release_memory()


def open_threads(problem: GaussianProblem, run: Run, workers: int) -> ThreadTeam:
    """Return workers for the devices of this process; 0 stands for all GPUs, or for one if the problem is small."""
    backend = run.backend
    assert backend is not None
    if not workers and problem.n_samples * problem.n_variables**2 < SHARED_PRODUCTS:
        return ThreadTeam(problem, [backend])
    least = filter_plan.least_device_bytes(problem.n_samples, problem.n_variables)
    others = (each for each in further_backends(backend, workers) if least <= each.memory_limit - each.memory_used)
    devices = [backend, *itertools.islice(others, workers - 1 if workers else None)]
    if len(devices) < workers:
        raise InvalidParameter(
            f"parameter workers is {workers}; at most {len(devices)} devices of this machine have the {least:,} bytes "
            "of memory that a worker needs: leave it out"
        )
    return ThreadTeam(problem, devices)


def further_backends(backend: Backend, workers: int) -> Iterator[Backend]:
    """Yield new backends for the other GPUs of this process, or on CPU cores one for each further worker. Searches in
    several threads cannot share backends. All backends of a GPU share the kernels that are loaded on it."""
    if backend.name == "host":
        limit = backend.device_memory_limit or backend.memory_limit // max(1, workers)
        yield from (type(backend)(limit) for _ in range(workers - 1))
        return
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    for number in range(count if count > 1 and workers != 1 else 0):
        with cupy.cuda.Device(number):  # The thread's current device is the backend's, unless a variable names one.
            try:
                other = type(backend)(backend.device_memory_limit)
            except BackendUnavailable:
                continue
        if other.device_key() != backend.device_key():
            other.waits_for_best = backend.waits_for_best
            yield other
