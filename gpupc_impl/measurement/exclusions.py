"""Lists the code that digests leave out, each with its reason: it cannot change the output, or it is compared
separately.

Keys are patterns of file names relative to the project's folder; ``"FILE:NAME"`` is a function or a class in a file, by
its qualified name.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

EXCLUDED = {
    "datasets/registry.yaml": "a rule has the entry of its data set among its parameters",
    "gpupc_impl/views/*": "no rule and no measurement makes the pictures and files of the library's users",
    "gpupc_impl/core/shown.py": "it calls views",
    "gpupc_impl/core/watching.py": "a display of progress",
}
"""Patterns that are left out of every digest."""

DOCSTRINGS_COUNT = {"gpupc_impl/reporting/*": "the docstring of a table or a figure is its caption"}
"""Files whose docstrings are part of the output."""

EXCLUDED_OF_SCRIPTS = {
    "workflow/lib/deadline.py": "it decides whether a job starts, not what it measures",
    "workflow/lib/gpu_slots.py": "it decides on which GPU a job runs, which the record names",
    "gpupc_impl/backends/*": "a rule that runs kernels has the code of their methods among its parameters",
}
"""Patterns that are left out of the digest of every script."""

_OUTSIDE = "it runs outside of the clock: "

EXCLUDED_OF_METHODS = {
    "baselines/_compile.py:_*": _OUTSIDE + "a cache of compiled code",
    "gpupc_impl/core/checkpoint.py": "no measurement keeps checkpoints",
    "gpupc_impl/core/family.py": "it finds the families; the method's own family counts by itself",
    "gpupc_impl/core/files.py": _OUTSIDE
    + "reading and writing files; `distributed`, which writes in the clock, has no recorded run",
    "gpupc_impl/core/mapped.py:new_npy": _OUTSIDE + "making a file",
    "gpupc_impl/core/problem.py:Problem._write": _OUTSIDE + "writing a problem",
    "gpupc_impl/core/problem.py:search_parameters": "a check of parameters, which are in the origin of a sample",
    "gpupc_impl/core/registry.py": "the method and its parameters, which it decides, are in the origin of a sample",
    "gpupc_impl/core/result.py:Skeleton.__repr__": _OUTSIDE + "a display",
    "gpupc_impl/core/result.py:Skeleton.load": _OUTSIDE + "reading a result",
    "gpupc_impl/core/result.py:Skeleton.save": _OUTSIDE + "writing a result",
    "gpupc_impl/core/result.py:Skeleton.stored_arrays": _OUTSIDE + "writing a result",
    "gpupc_impl/core/result.py:Skeleton.to_*": _OUTSIDE + "conversions for other libraries",
    "gpupc_impl/core/solve.py:choose_method": _OUTSIDE + "the method is in the origin of a sample",
    "gpupc_impl/core/solve.py:unavailable": _OUTSIDE + "the reason why a method is not measured",
    "gpupc_impl/discrete/forecast.py:Forecast.__str__": "a message",
    "gpupc_impl/ownership.py": _OUTSIDE + "it says whose files are used",
    "gpupc_impl/measurement/answers.py": _OUTSIDE + "a check of the answer",
    "gpupc_impl/measurement/compile_clock.py": _OUTSIDE + "it says what counts against a limit",
    "gpupc_impl/measurement/environment.py": "the facts of the machine, which it finds, are in the origin of a sample",
    "gpupc_impl/measurement/isolate.py": _OUTSIDE + "it feeds and ends the process",
    "gpupc_impl/measurement/worker.py:Session._check_problem": _OUTSIDE + "a check of the problem",
    "gpupc_impl/measurement/worker.py:Session.forget": _OUTSIDE + "freeing memory after the measurement",
    "gpupc_impl/measurement/worker.py:Session.save": _OUTSIDE + "writing the answer",
    "gpupc_impl/measurement/worker.py:_print_level": "a display of progress, which only the cold run has",
    "gpupc_impl/measurement/worker.py:peak_process_bytes": _OUTSIDE + "a look at the memory that was used",
    "gpupc_impl/measurement/worker.py:reset_peak": _OUTSIDE + "a look at the memory that was used",
    "gpupc_impl/measurement/worker.py:prepare": _OUTSIDE + "imports",
    "gpupc_impl/measurement/worker.py:probe": _OUTSIDE + "finding out what can be measured",
}
"""Patterns that are left out of the code version of every method; `EXCLUDED_OF_BACKENDS` has more."""

_WITH_KERNELS = {
    "gpupc_impl/backends/machine.py:cpu_name": _OUTSIDE + "a fact for the record",
    "gpupc_impl/backends/machine.py:has_nvidia_driver": "it decides whether to warn",
    "gpupc_impl/backends/simt/build.py:build_replay": "no measurement replays launches",
}

EXCLUDED_OF_BACKENDS = {
    "cpu": {"gpupc_impl/backends/*": "a reference runs on no backend"},
    "host": {
        **_WITH_KERNELS,
        "gpupc_impl/backends/cuda*": "it runs kernels on a GPU",
        "gpupc_impl/backends/nvrtc.py": "it compiles kernels for a GPU",
        "gpupc_impl/backends/simt/replay.cpp": "no measurement replays launches",
    },
    "cuda": {
        **_WITH_KERNELS,
        "gpupc_impl/backends/cuda_memory.py:*.smaller_device": "the memory that it leaves is a parameter of the method",
        "gpupc_impl/backends/host*": "it runs kernels on CPU cores",
        "gpupc_impl/backends/simt/*.cpp": "it runs kernels on CPU cores",
        "gpupc_impl/backends/simt/*.hpp": "it runs kernels on CPU cores",
    },
}


def excludes_file(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns leaves out a whole file."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def excluded_definitions(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the functions and classes of a file that are left out."""
    parts = (pattern.partition(":") for pattern in patterns if ":" in pattern)
    return tuple(definition for file, _, definition in parts if fnmatchcase(name, file))
