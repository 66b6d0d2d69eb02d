"""Searches by pair-scan with other launches than its own (`scan_state.LAUNCH`), searches that end after a level, and a
backend that counts."""

import collections
from typing import Any

import numpy as np
import pytest

from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core import solve as core
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.scan_state import LAUNCH


def solve(problem: Any, method: Any, backend: Any, params: dict[str, Any] | None = None, **options: Any) -> Skeleton:
    """`core.solve.solve`; the parameters of `pair-scan` are those of its launches, by default each level its own."""
    if method.name != "pair-scan":
        return core.solve(problem, method, backend, params, **options)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"fused_levels": "never", **(params or {})}.items():
            assert name in LAUNCH
            patched.setitem(LAUNCH, name, value)
        return core.solve(problem, method, backend, **options)


class Killed(Exception):
    """What ends a search in place of a signal."""


def kill_after(level: int, tests: list[int] | None = None):
    """A `progress` that ends a search after that level, and notes the tests of each level."""

    def progress(done):
        if tests is not None:
            tests.append(done.tests)
        if done.level == level:
            raise Killed

    return progress


class WatchedBackend(HostBackend):
    """A host backend that counts launches, all and cooperative ones, the calls for which a host would wait for its
    device or allocate, and copied bytes; and keeps the squared correlations that pmax is computed from."""

    def __init__(self, device_memory_limit=None):
        super().__init__(device_memory_limit)
        self.work: collections.Counter[str] = collections.Counter()
        self.smallest: list[np.ndarray] = []

    def kernel(self, *source):
        kernel = super().kernel(*source)

        def launch(*arguments, **options):
            self.work.update(launches=1, cooperative=int(options.get("cooperative", False)))
            kernel(*arguments, **options)

        launch.resident_blocks = kernel.resident_blocks
        return launch

    def upload(self, array):
        self.work.update(uploads=1, uploaded=np.asarray(array).nbytes)
        return super().upload(array)

    def full(self, shape, value, dtype):
        self.work["fills"] += 1
        return super().full(shape, value, dtype)

    def download(self, array, out=None):
        self.work.update(waits=1, downloaded=array.nbytes)
        on_host = super().download(array, out)
        if array.dtype == np.uint64 and array.ndim == 2 and array.shape[0] == array.shape[1]:
            self.smallest.append(on_host.view(np.float64))
        return on_host

    def download_all(self, arrays):
        found = [self.download(array) for array in arrays]
        self.work["waits"] -= len(arrays) - 1
        return found
