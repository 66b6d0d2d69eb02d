"""The command line ``gpupc``; `arguments` defines its commands, and `commands` has the functions that they run."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError, KernelCompilationError
from gpupc_impl.cli import output
from gpupc_impl.cli.arguments import parser
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import InvalidParameter, UnknownMethod
from gpupc_impl.views import MissingPackage
from gpupc_impl.views.exports import CannotWrite

# Errors that the user can correct; any other error is a bug.
EXPECTED = (
    output.UsageError,
    InvalidProblem,
    InvalidParameter,
    UnknownMethod,
    BackendUnavailable,
    DeviceMemoryError,
    KernelCompilationError,
    CannotWrite,
    MissingPackage,
    OSError,
)
INTERRUPTED = 130  # exit code after Ctrl-C
REPEAT_SECONDS = 2  # time in seconds after which Ctrl-C is repeated


def run() -> NoReturn:
    """Run a command and end the process; after Ctrl-C at once, without waiting for a thread that compiles."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # The caller closed it (``>&-``), and its descriptor is the first free one.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with _repeated_interrupts():
        status = main()
    if status == INTERRUPTED:
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


@contextlib.contextmanager
def _repeated_interrupts() -> Iterator[None]:
    """Repeat Ctrl-C until the block ends, because imports and callbacks may drop a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # as in the background jobs of a shell
        yield
        return

    def interrupt(number: int, frame: Any) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0; 1 for a bug, 2 for an error of the user, 130 for Ctrl-C. With
    ``GPUPC_DEBUG=1`` in the environment errors keep their traceback."""
    try:
        args = parser().parse_args(argv)
        with output.plain_messages(getattr(args, "verbose", False)):
            outcome = args.run(args)
            output.show(outcome, args)
        sys.stdout.flush()
        return outcome.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if os.environ.get("GPUPC_DEBUG") == "1":
            raise
        if isinstance(error, EXPECTED):
            print(f"error: {output.visible(error)}", file=sys.stderr)
            return 2
        print(f"error: {type(error).__name__}: {output.visible(error)} (GPUPC_DEBUG=1 shows where)", file=sys.stderr)
        return 1
    return 0
