"""Snakemake called many times: each call is a fork of a process that has imported it, which takes longer than the call.

A fork starts as a process of its own would: with the given environment, module search path and arguments. Of the
project the first process knows modules, and what is in files by their dates and sizes. The scripts of jobs are forks as
well, of the call's process. That the command and its jobs work without that, a test sees that runs it as a user does.
"""

import atexit
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpupc_impl", "baselines", "datasets", "workflow")

LIMIT_S = 600
"""Seconds after which a call is ended."""


class Called(NamedTuple):
    """What came of a call: its exit status, negative for a signal, and all it printed."""

    returncode: int
    stdout: str


def snakemake(arguments: Sequence[object], environment: Mapping[str, str]) -> Called:
    """Call Snakemake, and wait for its end.

    Args:
        arguments: those of its command line.
        environment: all of its environment variables.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile() as out:
        call = {"arguments": list(map(str, arguments)), "environment": dict(environment), "out": out.name}
        server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        returncode = int(server.stdout.readline())
        return Called(returncode, Path(out.name).read_text(encoding="utf-8", errors="replace"))


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that is forked, one for all calls of this one."""
    server = subprocess.Popen(
        [sys.executable, "-P", __file__],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # it ends with its input
    return server


def _serve() -> None:
    import matplotlib.pyplot  # noqa: F401
    import nbformat  # noqa: F401
    import pandas  # noqa: F401
    import scipy.special  # noqa: F401
    import snakemake.cli
    import snakemake.script
    import snakemake.storage

    import datasets
    import gpupc_impl.verification.verify  # noqa: F401
    import workflow.lib.measuring
    import workflow.lib.plan  # noqa: F401, with all that the rules import
    from gpupc_impl.core import registry
    from gpupc_impl.measurement import digest

    snakemake.cli.get_argument_parser()  # which imports Snakemake's plug-ins
    snakemake.script.PythonScript.execute_script = _execute_script
    ours = [path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    for named in (True, False):
        digest.digest(*ours, named=named)
    for method in registry.methods().values():
        for backend in method.backends:
            digest.code_version(method, backend)
    datasets.names()  # of the registry, which takes a while to read
    digest.digest.cache_clear()  # what is in a file is remembered by its date and size
    registry._discover.cache_clear()  # a call has plug-in methods of its own
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(**json.loads(line))
            sys.exit(snakemake.cli.main())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(arguments: Sequence[str], environment: Mapping[str, str], out: str) -> None:
    """Take the place of a process that was started with these."""
    signal.alarm(LIMIT_S)
    nothing, said = os.open(os.devnull, os.O_RDONLY), os.open(out, os.O_WRONLY | os.O_APPEND)
    for ours, standard in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(ours, standard)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["snakemake", *arguments]


def _execute_script(_: object, path: str, edit: bool = False) -> None:
    """Take the place of what starts a process for a script of Python."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            runpy.run_path(path, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise subprocess.CalledProcessError(status, [sys.executable, path])


if __name__ == "__main__":
    _serve()
