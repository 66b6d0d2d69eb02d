"""Running code that may spin, hang, crash or eat memory, without harm to the caller.

A `Worker` is a process in a group of its own. It answers requests, one JSON line each, over two pipes. Whatever
happens to it becomes an `Outcome` with a status and a sentence:

======== ==================================================================================================
ok       it answered
timeout  no answer within the time limit; the group was killed
oom      memory ran out: our limit (the group was killed), the host's or the device's (it raised MemoryError)
error    it raised something else, or ended without an answer
killed   a signal ended it that was not ours, such as a crash or the operating system's out-of-memory killer
skipped  it was not run (never returned here; measurements use it)
======== ==================================================================================================

The group is killed with SIGKILL, since compiled code does not hear gentler signals. The memory limit is on the
resident memory of the group, looked at every `POLL_SECONDS`: an address-space limit (RLIMIT_AS) would break CUDA,
which reserves far more than it uses. Nothing outlives its owner: if the process that owns the worker dies, even by
SIGKILL, a guard (a shell that waits for the end of its input) kills the group. POSIX only.
"""

from __future__ import annotations

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
from typing import Any, TextIO

import psutil

STATUSES = ("ok", "timeout", "oom", "error", "killed", "skipped")

POLL_SECONDS = 0.1
"""How often the memory of a busy worker is looked at."""

_DEATH_SECONDS = 10
"""How long a killed process may take to disappear (a driver may hold it) before it is left to itself."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a request.

    Attributes:
        status: one of `STATUSES`.
        why: one sentence when the status is not ``ok``.
        value: the answer when it is.
    """

    status: str
    why: str | None = None
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class Worker:
    """A process, in a group of its own, that runs `serve` and answers one request at a time.

    Args:
        argv: the command; the numbers of its two pipes are appended to it.
        env: its environment; None for ours.
        memory_limit_bytes: resident memory its group may have; None for no limit.
        log: where what it prints goes, line by line; None for our stderr.
        prefix: put before each of those lines.
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
        self.memory_limit_bytes = memory_limit_bytes
        self.memory_peak = 0
        """Largest resident memory of the group seen so far, in bytes; shared pages count once a process."""
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        self._process = subprocess.Popen(
            [*argv, str(request_end), str(reply_end)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(request_end, reply_end),
            start_new_session=True,
        )
        os.close(request_end)
        os.close(reply_end)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -KILL "-$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._printer = threading.Thread(target=self._print, args=(log or sys.stderr, prefix), daemon=True)
        self._printer.start()
        self._alive = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return self._alive and self._process.poll() is None

    def request(self, message: Mapping[str, Any], time_limit_s: float | None = None) -> Outcome:
        """Send a message and wait for its outcome. The worker is gone after ``timeout``, ``killed`` and our ``oom``.

        Args:
            message: anything that JSON can hold.
            time_limit_s: seconds it may take; None for no limit.
        """
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        with contextlib.suppress(BrokenPipeError):  # it is dead: found out below
            os.write(self._requests, json.dumps(message).encode() + b"\n")
        reply = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while not reply.endswith(b"\n"):
                remaining = POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if selector.select(min(POLL_SECONDS, max(remaining, 0))):
                    received = os.read(self._replies, 1 << 16)
                    if not received:
                        return self._died()
                    reply += received
                elif self._process.poll() is not None:
                    # Its end of the pipe may live on in a process that it forked.
                    return self._died()
                elif remaining <= 0:
                    self.close()
                    return Outcome("timeout", f"no answer within the time limit of {time_limit_s:g} s")
                else:
                    used = group_memory(self.pid)
                    self.memory_peak = max(self.memory_peak, used)
                    if self.memory_limit_bytes is not None and used > self.memory_limit_bytes:
                        self.close()
                        return Outcome(
                            "oom",
                            f"process memory reached {used:,} bytes, over its limit of "
                            f"{self.memory_limit_bytes:,} bytes",
                        )
        return Outcome(**json.loads(reply))

    def close(self) -> None:
        """End the worker and everything it started; does nothing the second time."""
        if not self._alive:
            return
        self._alive = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._guard.kill()
        for process in (self._process, self._guard):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_SECONDS)
        self._printer.join(1)  # a process that left the group may still hold the pipe
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        os.close(self._requests)
        os.close(self._replies)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _died(self) -> Outcome:
        """What ended a process that we did not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        code = self._process.poll()
        self.close()
        if code is None:
            return Outcome("error", "it closed its pipe without an answer")
        if code >= 0:
            return Outcome("error", f"it ended with exit code {code} and without an answer")
        number = signal.Signals(-code)
        if number == signal.SIGKILL:
            return Outcome("killed", "SIGKILL ended it, likely the operating system's out-of-memory killer")
        return Outcome("killed", f"{number.name} ended it ({signal.strsignal(number)})")

    def _print(self, log: TextIO, prefix: str) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # the log was closed before the last line came
                    log.write(prefix + line.decode(errors="replace").rstrip("\n") + "\n")
                    log.flush()


def group_memory(group: int) -> int:
    """Resident memory of a process group, in bytes."""
    total = 0
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getpgid(pid) == group:
                total += psutil.Process(pid).memory_info().rss
    return total


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """The worker's side: answer requests until the pipe ends. An exception becomes a status and a sentence."""
    requests, replies = map(int, sys.argv[-2:])
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash writes no core file of the data's size
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when memory runs out, Linux is to end this process and not its owner
    with open(requests) as lines, open(replies, "w") as out:
        for line in lines:
            out.write(json.dumps(dataclasses.asdict(_attempt(answer, json.loads(line)))) + "\n")
            out.flush()


def _attempt(answer: Callable[[dict[str, Any]], Any], message: dict[str, Any]) -> Outcome:
    try:
        return Outcome("ok", None, answer(message))
    except MemoryError as error:
        traceback.print_exc()
        return Outcome("oom", _sentence(error) or "host memory is exhausted (MemoryError)")
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return Outcome("error", f"{type(error).__name__}: {_sentence(error)}")


def _sentence(error: BaseException) -> str:
    """The message on one line, cut where a compiler's output would go on; the log has all of it."""
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else text[:500] + " ..."
