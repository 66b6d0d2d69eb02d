"""The parent process of a worker, which outlives it. `isolate.Worker` runs the script guard.py STATUS PASSED COMMAND.

The guard starts the command in a session of its own with the descriptors PASSED (comma separated). It writes the
command's process id and, after the command's end, its exit code (negative for a signal) to the descriptor STATUS, each
on a line. When the command ends, or when standard input ends because the owner closed it or died, the guard kills all
its descendants and ends. It is the reaper of its descendants (PR_SET_CHILD_SUBREAPER): a process whose parent died
becomes its child, even in another session.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import psutil

PR_SET_CHILD_SUBREAPER = 36
DEATH_SECONDS = 10  # the time in seconds to wait for killed processes to end, which a driver may delay


def main() -> None:
    status, passed = int(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, pass_fds=passed, start_new_session=True) as command:
        # The descriptor is closed so that the owner sees the end of the pipe when the command ends.
        for descriptor in passed:
            os.close(descriptor)
        _report(status, command.pid)
        threading.Thread(target=_wait_for_the_owner, args=(command.pid,), daemon=True).start()
        while True:
            pid, code = os.wait()  # This also collects orphans.
            if pid == command.pid:
                command.returncode = os.waitstatus_to_exitcode(code)
                break
        _kill_all(command.pid)
        give_up = time.monotonic() + DEATH_SECONDS
        while _reap() and time.monotonic() < give_up:
            _kill_all(command.pid)  # The children of a killed process are this process's children now.
            time.sleep(0.005)
        _report(status, command.returncode)
    os._exit(0)  # Exit without waiting for the thread.


def _wait_for_the_owner(command: int) -> None:
    """Kill all processes when the owner has closed standard input; the main thread then observes the command's end."""
    while os.read(0, 1 << 10):
        pass
    _kill_all(command)


def _kill_all(command: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(command, signal.SIGKILL)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _reap() -> bool:
    """Collect the children that have ended; returns whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _report(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # The owner has ended.
        os.write(status, f"{number}\n".encode())


if __name__ == "__main__":
    main()
