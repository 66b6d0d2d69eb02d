"""The bench: it determines what can run on this machine, and starts the processes in which methods run.

Settings with kernels of ours share a worker process (`isolate`, `worker`), so that the device's context and the kernels
are ready before a setting's first run. Every other setting has a process of its own. A process serves one problem after
another; it is started again after it was killed, and after any fault in it.
"""

import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from gpupc_impl.backends import BACKENDS
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.registry import SEPARATING_SETS, Method, get_method
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.isolate import Outcome, Worker
from gpupc_impl.measurement.record import Limits

START_LIMIT_S = 600  # the upper bound in seconds on starting a worker, loading a problem or saving a skeleton

SHARED = "our kernels"  # the process that settings with kernels of ours share; no setting has a name with a space

THREAD_VARIABLES = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA")]
THREAD_VARIABLES += ["VECLIB_MAXIMUM_THREADS", "GPUPC_HOST_THREADS"]
"""The environment variables that set the number of threads of libraries."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method with those of its parameters that differ from the defaults, the rule for separating sets
    (``"canonical"`` or ``"first-come"``), and the limits of each run, under a name of its own, which its files have."""

    name: str
    method: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    separating_sets: str = "canonical"
    limits: Limits = dataclasses.field(default_factory=Limits)

    @functools.cached_property
    def registered(self) -> Method:
        return get_method(self.method)

    @functools.cached_property
    def all_params(self) -> dict[str, Any]:
        """All parameters, including the defaults of those that the setting leaves out."""
        return self.registered.parse_params(self.params)

    @property
    def canonical(self) -> bool:
        return self.registered.canonical and self.separating_sets == "canonical"

    @property
    def has_kernels(self) -> bool:
        return self.registered.backends != ("cpu",)

    @property
    def shares_worker(self) -> bool:
        """Whether others run in its process; not beside a reference, whose memory is measured, or a program."""
        return len(self.registered.backends) > 1


def check_settings(settings: Sequence[Setting]) -> None:
    """Raise ValueError unless names, rules for separating sets, methods and parameters are valid, and names differ."""
    for setting in settings:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", setting.name):
            raise ValueError(f"setting {setting.name!r} cannot name a file: use letters, digits and ._=+-")
        if (rule := setting.separating_sets) not in SEPARATING_SETS:
            rules = ", ".join(SEPARATING_SETS)
            raise ValueError(f"setting {setting.name!r}: separating_sets is {rule!r}; choose one of: {rules}")
        _ = setting.all_params
    names = [setting.name for setting in settings]
    if len(set(names)) != len(names):
        raise ValueError(f"settings must have different names; got {', '.join(names)}")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a setting runs: the backend (``"cuda"``, ``"host"`` or ``"cpu"``), the environment (see
    `measurement.environment`), and the outcome that explains why it cannot be measured there; None if it can."""

    backend: str
    environment: Mapping[str, Any]
    obstacle: Outcome | None


class Bench:
    """The backend for kernels, the CPU threads of a worker, and the log of its output (None for stderr). What can run
    here is determined once for all measurements on a bench.

    Args:
        threads: the CPU threads of a worker (OpenMP, BLAS, numba, host backend), which is pinned to as many cores; None
            for all available cores. ValueError is raised if this process may not use as many.
        attempt: the number of this attempt at the same measurement, from 1 upward; see `samples`.
    """

    def __init__(self, backend: str, threads: int | None = None, log: TextIO | None = None, attempt: int = 1):
        self.backend, self.log, self.attempt = backend, log or sys.stderr, attempt
        self.cores = available_cores()
        self.threads = self.cores if threads is None else threads
        if not 1 <= self.threads <= self.cores:
            raise ValueError(f"threads is {self.threads}; this machine has 1 to {self.cores} to give")
        self._probes: dict[tuple[bool, tuple[str, ...]], Outcome] = {}
        self._workers: dict[str, Worker] = {}
        self._users = 0

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Keep processes until the outermost `with` block of this function ends."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                for worker in self._workers.values():
                    worker.close()
                self._workers.clear()

    def worker_of(self, setting: Setting) -> Worker:
        """Return the process for a setting, which is the shared one or its own; it is started if there is none."""
        name = SHARED if setting.shares_worker else setting.name
        worker = self._workers.get(name)
        if worker is None or not worker.alive:
            worker = self._workers[name] = self.start_worker(name)
        return worker

    def start_worker(self, name: str) -> Worker:
        """Return a worker that imports from the same folders as this process and is pinned to this process's cores."""
        variables = {
            **dict.fromkeys(THREAD_VARIABLES, str(self.threads)),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in sys.path),
            "PYTHONUNBUFFERED": "1",
        }
        return Worker(
            [sys.executable, "-X", "faulthandler", "-m", "gpupc_impl.measurement.worker", str(self.threads)],
            env={**os.environ, **variables},
            log=self.log,
            prefix=f"[{name}] ",
        )

    def places(self, settings: Iterable[Setting], refused: Mapping[str, str] | None = None) -> dict[str, Place]:
        """Determine in worker processes, which do so concurrently, what can be measured; returns places by setting.
        `refused` has the reason for each method that is not to be measured.

        The shared process is asked, and the process of the first reference. Other authors' programs are probed in a
        process that is used for nothing else, because the probe opens the backend.
        """
        refused = refused or {}
        groups: dict[tuple[bool, bool], list[Setting]] = {}
        for setting in settings:
            groups.setdefault((setting.has_kernels, setting.shares_worker), []).append(setting)
        probes, waiting = {}, {}
        with self.open(), contextlib.ExitStack() as stack:
            for (kernels, shared), group in groups.items():
                asked = [setting for setting in group if setting.method not in refused]
                methods = tuple(sorted({setting.method for setting in asked}))
                probe = probes[kernels, shared] = kernels, methods
                if probe in self._probes or probe in waiting:
                    continue
                alone = not asked or (kernels and not shared)
                worker = stack.enter_context(self.start_worker("probe")) if alone else self.worker_of(asked[0])
                request = {"backend": self.backend if kernels else None, "methods": methods}
                worker.send({"do": "probe", "cores": self.cores, "threads": self.threads, **request})
                waiting[probe] = worker
            for probe, worker in waiting.items():
                self._probes[probe] = worker.wait(START_LIMIT_S)
                if not self._probes[probe].ok:
                    worker.close()
        return {
            setting.name: self._place(setting, self._probes[probes[kind]], refused)
            for kind, group in groups.items()
            for setting in group
        }

    def _place(self, setting: Setting, probe: Outcome, refused: Mapping[str, str]) -> Place:
        answer = probe.value or {
            "backend": self.backend if self.backend in BACKENDS else "host",
            "environment": environment(self.cores, self.threads),
            "unavailable": {},
        }
        obstacle = None
        if why := refused.get(setting.method) or answer["unavailable"].get(setting.method):
            obstacle = Outcome("skipped", why)
        elif not probe.ok:
            obstacle = Outcome(probe.status, f"finding out what can run here failed: {probe.why}")
        return Place(answer["backend"] if setting.has_kernels else "cpu", answer["environment"], obstacle)


class ProblemFile(NamedTuple):
    """The file of a problem, and the problem's facts, whose fingerprint every method must find in it."""

    path: Path
    facts: Mapping[str, Any]


class Runner:
    """The process of a setting, which is started when it is needed, and again after it was killed. It runs searches, or
    single tests (`Method.open_test`).

    Attributes:
        memory_peak: the largest resident memory of the process and its descendants during the requests so far, in
            bytes; None before the first one.
    """

    def __init__(self, bench: Bench, setting: Setting, place: Place, single_test: bool = False):
        self.bench, self.setting, self.place, self._single_test = bench, setting, place, single_test
        self.memory_peak: int | None = None
        self._worker: Worker | None = None
        self._open: set[Path] = set()
        self._opening: Path | None = None

    def start(self) -> Worker:
        """Return the process, which is started now if there is none."""
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = self.bench.worker_of(self.setting)
        return self._worker

    def begin(self, problem: ProblemFile) -> None:
        """Start the process and let it begin to open a problem, one at a time; `open` waits for the end. This has no
        effect while a shared process answers another setting; then `open` does it."""
        if self._opening is not None or (self._alive and problem.path in self._open) or self.start().busy:
            return
        self._opening = problem.path
        self._send(
            {
                "do": "open",
                "setting": self.setting.name,
                "problem": str(problem.path),
                "fingerprint": problem.facts["fingerprint"],
                "single_test": self._single_test,
                "method": self.setting.method,
                "backend": self.place.backend,
                "params": self.setting.all_params,
                "separating_sets": self.setting.separating_sets,
                "device_memory_limit": self.setting.limits.device_memory_bytes,
            }
        )

    def open(self, problem: ProblemFile) -> Outcome:
        """Open a problem in the process, which may have several problems open."""
        if self._alive and problem.path in self._open:
            return Outcome("ok")
        self.begin(problem)
        assert self._opening == problem.path, "problems are opened in the order in which `begin` was called"
        self._opening = None
        outcome = self._wait(START_LIMIT_S)
        if outcome.ok:
            self._open.add(problem.path)
        return outcome

    def request(self, message: Mapping[str, Any], time_limit_s: float | None) -> Outcome:
        """Send a message about this setting and wait for its outcome."""
        self._send({**message, "setting": self.setting.name})
        return self._wait(time_limit_s)

    def save(self, path: Path) -> Outcome:
        """Let the process write the skeleton of its last run."""
        self._send({"do": "save", "path": str(path)})
        return self._wait(START_LIMIT_S)

    def _send(self, message: Mapping[str, Any]) -> None:
        worker = self.start()
        worker.memory_limit_bytes, worker.prefix = self.setting.limits.memory_bytes, f"[{self.setting.name}] "
        worker.memory_peak = 0
        worker.send(message)

    def _wait(self, time_limit_s: float | None) -> Outcome:
        """Return the outcome of a message; after a fault that is not one of memory, the process is ended."""
        assert self._worker is not None
        outcome = self._worker.wait(time_limit_s)
        self.memory_peak = max(self._worker.memory_peak, self.memory_peak or 0)
        if outcome.status not in ("ok", "oom", "refused"):
            self._worker.close()
        return outcome

    def forget(self) -> None:
        """Close the setting and its problems in the process, to free their memory."""
        if self._open and self._alive:
            self.request({"do": "forget"}, START_LIMIT_S)
        self._open.clear()

    def close(self) -> None:
        """Leave the process, which frees the memory of its problems; it ends if it is another author's program on the
        device, whose memory there is unknown."""
        if self._worker is not None and self.setting.registered.backends == ("cuda",):
            self._worker.close()
        self.forget()
        self._worker, self._opening = None, None

    @property
    def _alive(self) -> bool:
        return self._worker is not None and self._worker.alive
