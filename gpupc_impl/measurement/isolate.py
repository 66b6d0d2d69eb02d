"""Runs code that may loop for ever, hang, crash or exhaust memory, without harm to the caller.

A `Worker` is a process in a session of its own. The process answers requests, one JSON line each, over two pipes. The
result of a request is an `Outcome` with a status and a sentence:

======== ==================================================================================================
ok       it answered
timeout  it did not answer within the time limit and was killed
oom      memory was exhausted: our limit (it was killed), the host's or the device's (it raised MemoryError)
refused  it needs more device memory than its budget (it raised `Refused`)
error    it raised another exception, ended without an answer, or wrote something else to its pipe
killed   another signal ended it, such as that of a crash or of the operating system's out-of-memory killer
skipped  it was not run (measurements use this status; no request returns it)
======== ==================================================================================================

Processes are killed with SIGKILL, because compiled code does not react to other signals. The resident memory of a
worker and its descendants is polled, because an address-space limit would break CUDA, which reserves far more than it
uses. The worker is the child of a guard (`guard`), which kills all descendants when the worker ends, or when the owner
dies, even by SIGKILL. Linux only.
"""

import contextlib
import dataclasses
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

import psutil

from gpupc_impl.backends import compilations

POLL_SECONDS = 0.1  # the interval in seconds at which the memory of a busy worker is polled

COMPILE_LIMIT_S = 120.0  # the most seconds of compilation that do not count against a time limit

LINE_BYTES = 1 << 14  # the length at which lines of a worker's output are cut
LOG_BYTES = 1 << 24  # the upper bound on the logged output of a worker, in bytes
_DEATH_SECONDS = 12  # the time in seconds to wait for a guard that ends all processes; it exceeds `guard.DEATH_SECONDS`

_GUARD = Path(__file__).with_name("guard.py")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a request: its status, for any other than ``ok`` the reason as a sentence, and else the answer."""

    status: str
    why: str | None = None
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class Refused(MemoryError):
    """A request needs more than a budget allows."""


class Worker:
    """A process, in a session of its own, that runs `serve` and answers one request at a time.

    Args:
        argv: the command, to which the numbers of the worker's two pipes are appended.
        log: the file for the worker's output, line by line, up to `LOG_BYTES`; None for stderr.

    Attributes:
        memory_limit_bytes: the limit on the resident memory of the worker and its descendants; None for no limit.
        prefix: the beginning of each line of the log. Both may be set between two requests.
        memory_peak: the largest resident memory of the worker and its descendants so far, in bytes. Pages that
            processes share count for each of them.
        busy: whether a message was sent whose outcome nobody has waited for yet.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: TextIO | None = None,
        prefix: str = "",
    ):
        self.memory_limit_bytes: int | None = None
        self.prefix, self.busy, self.memory_peak = prefix, False, 0
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        status, status_end = os.pipe()
        ours = request_end, reply_end
        self._guard = subprocess.Popen(
            [sys.executable, "-P", str(_GUARD), str(status_end), ",".join(map(str, ours)), *argv, *map(str, ours)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(*ours, status_end),
            start_new_session=True,
        )
        for descriptor in (*ours, status_end):
            os.close(descriptor)
        self._status = os.fdopen(status)
        self._pid: int | None = None
        self._printer = threading.Thread(target=self._print, args=(log or sys.stderr,), daemon=True)
        self._printer.start()
        self._alive, self._received = True, b""
        self._compiled, self._compiling_since = 0.0, 0.0

    @property
    def pid(self) -> int:
        """The worker's process id; 0 if the worker could not be started."""
        if self._pid is None:
            self._pid = int(self._status.readline() or 0)
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether the worker can take another request."""
        return self._alive and self._guard.poll() is None

    def request(self, message: Mapping[str, Any], time_limit_s: float | None = None) -> Outcome:
        """Send a message, which JSON can represent, and wait for its outcome."""
        self.send(message)
        return self.wait(time_limit_s)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; `wait` must be called before the next one is sent."""
        self.busy = True
        with contextlib.suppress(BrokenPipeError):  # The worker has ended, which `wait` reports.
            os.write(self._requests, json.dumps(message).encode() + b"\n")

    def wait(self, time_limit_s: float | None = None) -> Outcome:
        """Return the outcome of the message that was sent; seconds of compilation are added to the time limit.

        The worker has ended after the outcomes ``timeout`` and ``killed``, after ``oom`` by our limit, and after output
        that is no valid answer.
        """
        self.busy = False
        began = polled = time.monotonic()
        compiled_before, pause = self._compile_seconds(), POLL_SECONDS
        limit = float("inf") if time_limit_s is None else time_limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while True:
                allowed = limit + min(self._compile_seconds() - compiled_before, COMPILE_LIMIT_S)
                if selector.select(min(POLL_SECONDS, max(began + allowed - time.monotonic(), 0))):
                    if not (part := os.read(self._replies, 1 << 16)):
                        return self._died()
                    try:
                        if (outcome := self._read(part)) is not None:
                            return outcome
                    except (ValueError, TypeError, RecursionError) as fault:
                        return self._end("error", f"its answer pipe held something that is no answer: {fault}")
                elif self._guard.poll() is not None:
                    # A process that the worker forked may still have its end of the pipe open.
                    return self._died()
                elif time.monotonic() >= began + allowed:
                    return self._end("timeout", f"no answer within the time limit of {time_limit_s:g} s")
                if (now := time.monotonic()) < polled + pause:
                    continue
                used = _descendants_memory(self._guard.pid)
                polled = time.monotonic()
                pause = max(POLL_SECONDS, 20 * (polled - now))  # Polling takes long on a machine with many processes.
                self.memory_peak = max(self.memory_peak, used)
                if self.memory_limit_bytes is not None and used > self.memory_limit_bytes:
                    bound = f"{self.memory_limit_bytes:,} bytes"
                    return self._end("oom", f"process memory reached {used:,} bytes, over its limit of {bound}")

    def _read(self, part: bytes) -> Outcome | None:
        """Add bytes of the answer pipe; returns the outcome once all of it has arrived."""
        *lines, self._received = (self._received + part).split(b"\n")
        for reply in map(json.loads, lines):
            if "compiling" not in reply:
                return Outcome(**reply)
            if reply["compiling"]:
                self._compiling_since = time.monotonic()
            else:
                self._compiled, self._compiling_since = self._compile_seconds(), 0.0
        return None

    def _compile_seconds(self) -> float:
        return self._compiled + (time.monotonic() - self._compiling_since if self._compiling_since else 0.0)

    def _end(self, status: str, why: str) -> Outcome:
        """End the worker; returns the outcome of its last request."""
        self.close()
        return Outcome(status, why)

    def close(self) -> None:
        """End the worker and all processes that it started; has no effect if it has ended."""
        if not self._alive:
            return
        self._alive = False
        assert self._guard.stdin is not None
        self._guard.stdin.close()  # When its standard input closes, the guard kills all of them.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_DEATH_SECONDS)
        if self._guard.poll() is None:
            self._guard.kill()
            self._guard.wait()
        if self.pid and self._guard.returncode != 0:  # The guard hung or was killed.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._printer.join(1)  # A process that the driver keeps alive may still have the pipe open.
        self._status.close()
        os.close(self._requests)
        os.close(self._replies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _died(self) -> Outcome:
        """Return the outcome after a process ended without an answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_DEATH_SECONDS)
        ended = self._guard.poll() is not None and self.pid
        code = self._status.readline() if ended else ""
        self.close()
        if not code:
            return Outcome("error", "it closed its pipe without an answer")
        if (number := int(code)) >= 0:
            return Outcome("error", f"it ended with exit code {number} and without an answer")
        if number == -signal.SIGKILL:
            return Outcome("killed", "SIGKILL ended it, likely the operating system's out-of-memory killer")
        with contextlib.suppress(ValueError):  # Real-time signals have no names.
            return Outcome("killed", f"{signal.Signals(-number).name} ended it ({signal.strsignal(-number)})")
        return Outcome("killed", f"signal {-number} ended it")

    def _print(self, log: TextIO) -> None:
        """Write the worker's output to the log, with lines cut at `LINE_BYTES` and all output cut at `LOG_BYTES`."""
        assert self._guard.stdout is not None
        left = LOG_BYTES
        with self._guard.stdout as pipe:
            while line := pipe.readline(LINE_BYTES):
                if left <= 0:
                    continue  # The thread keeps reading, so that the pipe never fills up.
                left -= len(self.prefix) + len(line)
                text = line.decode(errors="replace").rstrip("\n")
                with contextlib.suppress(ValueError):  # The log may be closed before the last line arrives.
                    log.write(f"{self.prefix}{text}\n")
                    if left <= 0:
                        log.write(f"{self.prefix}[what it printed after {LOG_BYTES:,} bytes is dropped]\n")
                    log.flush()


def _descendants_memory(pid: int) -> int:
    """The resident memory of all descendants of a process, in bytes, without its own."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests in the worker until the pipe ends. An exception becomes a status and a sentence. The function
    removes the pipes' numbers from ``sys.argv``."""
    requests, replies = map(int, sys.argv[-2:])
    del sys.argv[-2:]
    for end in (requests, replies):
        os.set_inheritable(end, False)
    lock, depth, answers = threading.Lock(), 0, os.fdopen(replies, "w")

    def note(begins: bool) -> None:
        """Tell the owner when the first of the compilations that run at a time begins, and the last one ends."""
        nonlocal depth
        with lock:
            depth += 1 if begins else -1
            if depth == int(begins):
                print(json.dumps({"compiling": begins}), file=answers, flush=True)

    compilations.observers.append(note)
    # A crash writes no core file, which would be as large as the data.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # If memory is exhausted, Linux ends this process and not its owner.
    with os.fdopen(requests) as lines:
        for line in lines:
            reply = attempt(answer, json.loads(line))
            with lock:
                print(reply, file=answers, flush=True)


def attempt(answer: Callable[[dict[str, Any]], Any], message: dict[str, Any]) -> str:
    """Return the outcome of a request as JSON."""
    try:
        return json.dumps(dataclasses.asdict(Outcome("ok", None, answer(message))))
    except MemoryError as error:
        traceback.print_exc()
        status = "refused" if isinstance(error, Refused) else "oom"
        outcome = Outcome(status, _sentence(error) or "host memory is exhausted (MemoryError)")
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        outcome = Outcome("error", f"{type(error).__name__}: {_sentence(error)}")
    return json.dumps(dataclasses.asdict(outcome))


def _sentence(error: BaseException) -> str:
    """Return the message on one line, cut if it is long (such as a compiler's output); the log has all of it."""
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else text[:500] + " ..."
