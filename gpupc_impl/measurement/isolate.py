"""Runs code that may loop for ever, hang, crash or exhaust memory, without harm to the caller.

A `Worker` is a process in a session of its own. The process answers requests, one JSON line each, over two pipes. The
result of a request is an `Outcome` with a status and a sentence:

======== ==================================================================================================
ok       it answered
timeout  it did not answer within the time limit and was killed
oom      memory was exhausted: our limit (it was killed), the host's or the device's (it raised MemoryError)
error    it raised another exception, ended without an answer, or wrote something else to its pipe
killed   another signal ended it, such as that of a crash or of the operating system's out-of-memory killer
skipped  it was not run (measurements use this status; no request returns it)
======== ==================================================================================================

Processes are killed with SIGKILL, because compiled code does not react to other signals. The memory limit is on the
resident memory of the worker and its descendants, which is polled every `POLL_SECONDS`: an address-space limit
(RLIMIT_AS) would break CUDA, which reserves far more than it uses. No process outlives its owner: the worker is the
child of a guard (`guard`), which kills all descendants when the worker ends, or when the owner dies, even by SIGKILL.
POSIX only.

The code that a worker runs could write to the worker's pipes. They are therefore moved to descriptors that no child
inherits, an answer must repeat its request's random token, and anything else ends the worker with status ``error``.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import resource
import secrets
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

from gpupc_impl.measurement.compile_clock import CompileClock

STATUSES = ("ok", "timeout", "oom", "error", "killed", "skipped")

POLL_SECONDS = 0.1
"""The interval in seconds at which the memory of a busy worker is polled."""

RECEIPT_SECONDS = 60
"""The time in seconds that a worker which has answered before may take to confirm a request."""

REPLY_BYTES = 1 << 26
"""The upper bound on the length of an answer."""

LINE_BYTES = 1 << 14
"""The length at which lines of a worker's output are cut."""

LOG_BYTES = 1 << 24
"""The upper bound on the logged output of a worker, in bytes."""

_DEATH_SECONDS = 12
"""The time in seconds to wait for a guard that ends all processes; it exceeds `guard.DEATH_SECONDS`."""

_GUARD = Path(__file__).with_name("guard.py")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a request.

    Attributes:
        status: one of `STATUSES`.
        why: the reason for any other status than ``ok``, as a sentence.
        value: the answer; None unless the status is ``ok``.
    """

    status: str
    why: str | None = None
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class Worker:
    """A process, in a session of its own, that runs `serve` and answers one request at a time.

    Args:
        argv: the command, to which the numbers of the worker's two pipes and of its clock are appended.
        env: the worker's environment; None for this process's environment.
        memory_limit_bytes: the limit on the resident memory of the worker and its descendants; None for no limit.
        log: the file for the worker's output, line by line, up to `LOG_BYTES`; None for stderr.
        prefix: the beginning of each of these lines.

    Attributes:
        memory_limit_bytes, prefix: as above; they may be set between two requests.
        busy: whether a message was sent whose outcome nobody has waited for yet.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        memory_limit_bytes: int | None = None,
        log: TextIO | None = None,
        prefix: str = "",
    ):
        self.memory_limit_bytes, self.prefix, self.busy = memory_limit_bytes, prefix, False
        self.memory_peak = 0
        """The largest resident memory of the worker and its descendants so far, in bytes. Pages that processes share
        count for each of them."""
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        status, status_end = os.pipe()
        self._clock = CompileClock()
        ours = request_end, reply_end, self._clock.descriptor
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
        self._alive, self._answered = True, False

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
        """Send a message and wait for its outcome.

        The worker has ended after the outcomes ``timeout`` and ``killed``, after ``oom`` by our limit, and after output
        that is no valid answer.

        Args:
            message: any value that JSON can represent.
            time_limit_s: the upper bound on the seconds until the answer; None for no limit.
        """
        return self.wait(self.send(message), time_limit_s)

    def send(self, message: Mapping[str, Any]) -> str:
        """Send a message; returns the token for `wait`, which must be called before the next message is sent."""
        token, self.busy = secrets.token_hex(16), True
        with contextlib.suppress(BrokenPipeError):  # The worker has ended, which `wait` reports.
            os.write(self._requests, json.dumps({"token": token, "message": message}).encode() + b"\n")
        return token

    def wait(self, token: str, time_limit_s: float | None = None) -> Outcome:
        """Return the outcome of the message that was sent. The time limit begins now; compiling does not count."""
        self.busy = False
        began = polled = time.monotonic()
        deadline = float("inf") if time_limit_s is None else began + time_limit_s - self._clock.seconds()
        pause = POLL_SECONDS
        reply = _Reply(token)
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while True:
                remaining = deadline + self._clock.seconds() - time.monotonic()
                if selector.select(min(POLL_SECONDS, max(remaining, 0))):
                    part = os.read(self._replies, 1 << 16)
                    if not part:
                        return self._died()
                    try:
                        outcome = reply.add(part)
                    except ValueError as fault:
                        return self._end("error", f"its answer pipe held something that is no answer: {fault}")
                    if outcome is not None:
                        self._answered = True
                        return outcome
                elif self._guard.poll() is not None:
                    # A process that the worker forked may still have its end of the pipe open.
                    return self._died()
                now = time.monotonic()
                if now >= deadline + self._clock.seconds():
                    return self._end("timeout", f"no answer within the time limit of {time_limit_s:g} s")
                if self._answered and not reply.confirmed and now > began + RECEIPT_SECONDS:
                    why = (
                        f"it did not confirm a request within {RECEIPT_SECONDS:g} s; what it ran may have read the pipe"
                    )
                    return self._end("error", why)
                if now < polled + pause:
                    continue
                used = _descendants_memory(self._guard.pid)
                polled = time.monotonic()
                pause = max(POLL_SECONDS, 20 * (polled - now))  # Polling takes long on a machine with many processes.
                self.memory_peak = max(self.memory_peak, used)
                if self.memory_limit_bytes is not None and used > self.memory_limit_bytes:
                    limit = f"{self.memory_limit_bytes:,} bytes"
                    return self._end("oom", f"process memory reached {used:,} bytes, over its limit of {limit}")

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
        self._clock.close()
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
                prefix = self.prefix
                left -= len(prefix) + len(line)
                text = line.decode(errors="replace").rstrip("\n")
                with contextlib.suppress(ValueError):  # The log may be closed before the last line arrives.
                    log.write(f"{prefix}{text}\n")
                    if left <= 0:
                        log.write(f"{prefix}[what it printed after {LOG_BYTES:,} bytes is dropped]\n")
                    log.flush()


def _descendants_memory(pid: int) -> int:
    """The resident memory of all descendants of a process, in bytes, without its own."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


class _Reply:
    """The reply to a request in two lines: a receipt, which makes the request `confirmed`, and then the answer."""

    def __init__(self, token: str):
        self.confirmed = False
        self._token, self._received = token, bytearray()

    def add(self, part: bytes) -> Outcome | None:
        """The outcome, once all of it has arrived; None before."""
        self._received += part
        if b"\n" not in part:
            if len(self._received) > REPLY_BYTES:
                raise ValueError(f"a line of more than {REPLY_BYTES:,} bytes")
            return None
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        for line in lines:
            reply = self._read(line)
            if self.confirmed:
                if rest or line is not lines[-1]:
                    raise ValueError("something after the answer")
                return Outcome(**reply)
            self.confirmed = True
        return None

    def _read(self, line: bytes | bytearray) -> dict[str, Any]:
        try:
            reply = json.loads(line)
            if isinstance(reply, dict) and reply.pop("token", None) == self._token:
                return reply
        except (ValueError, RecursionError):
            pass
        raise ValueError(repr(bytes(line[:60])) + ("..." if len(line) > 60 else ""))


class _Pipes:
    """Move the worker's ends of its two pipes to descriptors that its children do not inherit."""

    def __init__(self, requests: int, replies: int):
        # The numbers are high, because code that closes or writes to a descriptor that it no longer owns usually hits a
        # low one.
        lowest = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1024) // 2
        self.requests, self.replies = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, lowest) for end in (requests, replies))
        for end in (requests, replies):
            os.close(end)
        self._received = b""
        os.register_at_fork(after_in_child=self._close)

    def read(self) -> dict[str, Any] | None:
        """Return the next request; None after the last one."""
        while b"\n" not in self._received:
            part = os.read(self.requests, 1 << 16)
            if not part:
                return None
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request

    def write(self, line: str) -> None:
        rest = memoryview(line.encode() + b"\n")
        while rest:
            rest = rest[os.write(self.replies, rest) :]

    def _close(self) -> None:
        for end in (self.requests, self.replies):
            with contextlib.suppress(OSError):
                os.close(end)
        self.requests = self.replies = -1


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests in the worker until the pipe ends. An exception becomes a status and a sentence.

    This must be called before code is imported that must not access the pipes. The function removes the pipes' numbers
    from ``sys.argv``.
    """
    requests, replies, clock = map(int, sys.argv[-3:])
    CompileClock(clock).observe()
    del sys.argv[-3:]
    pipes = _Pipes(requests, replies)
    # A crash writes no core file, which would be as large as the data.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # If memory is exhausted, Linux ends this process and not its owner.
    while (request := pipes.read()) is not None:
        token = {"token": request["token"]}
        pipes.write(json.dumps(token))
        pipes.write(_attempt(answer, request["message"], token))


def _attempt(answer: Callable[[dict[str, Any]], Any], message: dict[str, Any], token: Mapping[str, str]) -> str:
    """Return the line with the outcome of a request."""

    def line(outcome: Outcome) -> str:
        return json.dumps({**token, **dataclasses.asdict(outcome)})

    try:
        return line(Outcome("ok", None, answer(message)))
    except MemoryError as error:
        traceback.print_exc()
        return line(Outcome("oom", _sentence(error) or "host memory is exhausted (MemoryError)"))
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return line(Outcome("error", f"{type(error).__name__}: {_sentence(error)}"))


def _sentence(error: BaseException) -> str:
    """Return the message on one line, cut if it is long (such as a compiler's output); the log has all of it."""
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else text[:500] + " ..."
