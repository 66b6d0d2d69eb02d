"""A worker without a process: what a measurement asks of it is answered where the test runs.

To start a worker takes a hundred times as long as its answers to small problems. Tests of what is asked, kept, compared
and recorded need no process; those of crashes, limits and pipes do (`gpupc_impl.measurement.isolate`).
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Self

from gpupc_impl.measurement import isolate
from gpupc_impl.measurement.bench import Bench
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.worker import Session


class WorkerInside:
    """Stands in for an `isolate.Worker`. Limits have no effect."""

    memory_limit_bytes, prefix, memory_peak, busy, alive, pid = None, "", 0, False, True, os.getpid()

    def __init__(self) -> None:
        self._session = Session()

    def request(self, message: Mapping[str, Any], time_limit_s: float | None = None) -> Outcome:
        self.send(message)
        return self.wait(time_limit_s)

    def send(self, message: Mapping[str, Any]) -> None:
        self._message, self.busy = json.dumps(message), True

    def wait(self, time_limit_s: float | None = None) -> Outcome:
        self.busy = False
        return Outcome(**json.loads(isolate.attempt(self._session.answer, json.loads(self._message))))

    def close(self) -> None:
        self.alive = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_inside(bench: Bench, name: str) -> WorkerInside:
    """Take the place of `Bench.start_worker`."""
    return WorkerInside()
