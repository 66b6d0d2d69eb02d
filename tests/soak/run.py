"""Soaking: random problems of every family, solved by every method in one process until the time is up (``make soak``).

Each problem is solved by the serial reference of its family and then by all other methods, on every backend that is
here, with random launch parameters, thread counts and budgets of device memory: edges and separating sets must be the
reference's. The process's memory, file descriptors and threads are written down, and must not grow. Linux tells of its
memory, so there it runs.

The log has a line every few seconds. A later call with the same log goes on behind its last problem, and the summary
counts all of it. A problem is drawn from its number alone: ``--first 1234 --problems 1`` draws number 1234 again.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gpupc_impl import GaussianProblem, InvalidParameter, Skeleton, methods
from gpupc_impl.backends import DeviceMemoryError, backend_class, open_backend
from gpupc_impl.backends.machine import memory_bytes
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, Parameter
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from tests.conformance import (
    test_agreement,
    test_cmiknn_agreement,
    test_discrete_agreement,
    test_kernel_agreement,
    test_mixed_agreement,
    test_regression_agreement,
)

REFERENCES = {
    "gaussian": "stable-serial",
    "discrete": "discrete-serial",
    "nonlinear": "cmiknn-serial",
    "mixed": "mixed-serial",
    "kernel": "kernel-serial",
    "regression": "regression-serial",
}
MOST_SETS = 50_000
"""Tests that the deepest level of a problem could need if no edge were removed."""
THREADS = (1, 1, 2, 2, 3, 5, 16)
BUDGETS = (None, None, None, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 24)
"""Bytes of device memory; a method may say that a problem does not fit, but not answer otherwise."""
DEVICE_MB_STEP = 8
"""Megabytes that are left on a GPU are a multiple of this, as fewer are refused."""

LINE_S = 10.0
"""Seconds between two lines of the log; to look at 30,000 mappings takes half of one."""

SETTLED = 0.25
"""The first part of a process's lines, in which it compiles kernels and caches fill; growth is measured behind it."""

LEAST_LINES = 12
"""A process of fewer lines is not judged by its growth."""

MOST_GROWTH_BYTES = 16 << 20
"""What the smallest memory of the last quarter may exceed that of the first by: a few MB of small blocks that NumPy
keeps, what kernels' libraries take when they are first drawn, an allocator's fragments."""

MOST_DEVICE_GROWTH_BYTES = 1 << 30
"""The same of what is taken on the GPU, by all processes there: each keeps room for the local memory of all threads
that can run at a time, hundreds of MB once a kernel that needs much has been drawn, and their runs come and go."""

STACK_BYTES = 256 << 10
"""A CUDA thread's stack on the host backend, where the environment does not say otherwise."""

MOST_STACKS = 1024 * sum(set(THREADS))
"""Each pool of threads stays, and each thread keeps a stack for every CUDA thread of its largest block so far."""

_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S+) .*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", re.MULTILINE)


def family_of(number: int) -> str:
    """The family of a number's problem: families take turns."""
    return list(REFERENCES)[number % len(REFERENCES)]


def draw_problem(number: int) -> Problem:
    """The problem of a number."""
    rng = np.random.default_rng([number, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant variables are meant
        return DRAW[family_of(number)](rng)


def _gaussian(rng: np.random.Generator) -> Problem:
    p, m = int(rng.integers(2, 25)), int(rng.integers(5, 200))
    data = test_agreement.draw_data(rng, str(rng.choice(test_agreement.STRUCTURES)), p, m)
    noises = test_agreement.COPY_NOISE[rng.integers(len(test_agreement.COPY_NOISE))]
    for noise in rng.choice(noises, rng.integers(4)):
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * data[:, original].std() * rng.standard_normal(m)
    return GaussianProblem.from_data(
        data,
        alpha=float(rng.choice([0.001, 0.01, 0.05, 0.2, 0.5])),
        df_convention=str(rng.choice(["pcalg", "cupc"])),
        pseudo_inverse=str(rng.choice(["near-singular", "always"])),
        max_level=_deepest(p),
    )


def _discrete(rng: np.random.Generator) -> Problem:
    p, n = int(rng.integers(2, 12)), int(10 ** rng.uniform(1, 3.3))
    categories = rng.integers(1, rng.choice([2, 3, 5, 9, 17]) + 1, p)
    structure = str(rng.choice(test_discrete_agreement.STRUCTURES))
    codes = test_discrete_agreement.draw_codes(rng, structure, categories, n, float(rng.choice([1, 3, 8])))
    return test_discrete_agreement.make_problem(
        codes,
        alpha=float(rng.choice([0.001, 0.01, 0.05, 0.2, 0.5, 0.9])),
        test=str(rng.choice(test_discrete_agreement.TESTS)),
        df_rule=str(rng.choice(test_discrete_agreement.DF_RULES)),
        max_level=min(_deepest(p), 3),
    )


def _nonlinear(rng: np.random.Generator) -> Problem:
    return test_cmiknn_agreement.draw_problem(rng, most_samples=60, most_permutations=20)


def _mixed(rng: np.random.Generator) -> Problem:
    return test_mixed_agreement.draw_problem(rng, most_samples=50, most_permutations=20)


def _kernel(rng: np.random.Generator) -> Problem:
    return test_kernel_agreement.draw_problem(rng, most_samples=60)


DRAW: dict[str, Callable[[np.random.Generator], Problem]] = {
    "gaussian": _gaussian,
    "discrete": _discrete,
    "nonlinear": _nonlinear,
    "mixed": _mixed,
    "kernel": _kernel,
    "regression": test_regression_agreement.draw_problem,
}


def _deepest(p: int) -> int:
    """The deepest level that is affordable where no edge goes."""
    sets, level = p * (p - 1), 0
    while level + 3 <= p and sets * (p - 2 - level) / (level + 1) <= MOST_SETS:
        sets, level = sets * (p - 2 - level) / (level + 1), level + 1
    return level


def draw_parameters(method: Method, rng: np.random.Generator) -> dict[str, Any]:
    """Launch parameters of a method: any that it allows, up to a few times the defaults."""

    def value(parameter: Parameter) -> Any:
        if parameter.choices is not None:
            return parameter.choices[rng.integers(len(parameter.choices))]
        if isinstance(parameter.default, bool):
            return bool(rng.integers(2))
        if not isinstance(parameter.default, int):  # a file
            return parameter.default
        low = parameter.minimum or 0
        high = max(16, low + 4 * parameter.default)
        return int(rng.integers(low, min(high, parameter.maximum or high) + 1))

    while True:
        given = {name: value(each) for name, each in method.params.items() if name != "inverse"}
        try:
            return method.parse_params(given)
        except InvalidParameter:  # each is in its range, but not all together
            continue


def settings_here(without: Sequence[str] = ()) -> dict[str, list[tuple[Method, str]]]:
    """By family: the methods that must find the same, with each backend that they run on here.

    Args:
        without: names of methods to leave out.
    """
    return {
        family: [
            (method, backend)
            for method in methods(family).values()
            for backend in method.backends
            if method.canonical
            and not method.cluster
            and method.name not in without
            and method.name != reference
            and unavailable(method, backend) is None
        ]
        for family, reference in REFERENCES.items()
    }


def draw_run(method: Method, backend: str, rng: np.random.Generator) -> dict[str, Any]:
    """How a method is run: what a fault is reported with."""
    params = draw_parameters(method, rng)
    if backend == "cuda" and "device_mb" in params:
        params["device_mb"] *= DEVICE_MB_STEP
    return {
        "method": method.name,
        "backend": backend,
        "params": params,
        "threads": THREADS[rng.integers(len(THREADS))],
        "device_memory_limit": None if backend == "cpu" else BUDGETS[rng.integers(len(BUDGETS))],
    }


def run(method: Method, problem: Problem, how: dict[str, Any]) -> Skeleton | None:
    """A method's answer; None where it says that the problem does not fit.

    Raises:
        DeviceMemoryError: it does not fit though no budget bounds the memory, and the device has more than it asks for:
            other processes have that.
    """
    os.environ["GPUPC_HOST_THREADS"] = str(how["threads"])
    try:
        backend = open_method_backend(method, how["backend"], how["device_memory_limit"])
        return solve(problem, method, backend, how["params"])
    except DeviceMemoryError as error:
        unbounded = how["device_memory_limit"] is None and "device_mb" not in how["params"]
        if unbounded and error.requested <= whole_bytes(how["backend"]):
            raise
        return None


def whole_bytes(backend: str) -> int:
    """The memory of a backend's device, whoever has it."""
    return int(open_backend("cuda").describe()["memory_bytes"]) if backend == "cuda" else memory_bytes()


def difference(found: Skeleton, expected: Skeleton) -> str | None:
    """What differs, as a sentence."""
    if not np.array_equal(found.adjacency, expected.adjacency):
        return f"{np.count_nonzero(found.adjacency != expected.adjacency) // 2} edges differ"
    if found.sepsets != expected.sepsets:
        return "separating sets differ"
    if found.stopped_because != expected.stopped_because:
        return f"it stopped because {found.stopped_because!r}, the reference because {expected.stopped_because!r}"
    return None


@dataclasses.dataclass
class Soak:
    """A soak at work.

    Attributes:
        log: a line of JSON every `LINE_S`.
        number: of the next problem.
        first: whether it has not yet written; a killed process may have left half a line.
        gpu_lost: whether a fault has left the GPU unusable for this process, which then ends.
    """

    log: Path
    number: int
    settings: dict[str, list[tuple[Method, str]]] = dataclasses.field(default_factory=settings_here)
    first: bool = True
    gpu_lost: bool = False
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def one(self) -> None:
        """Solve the next problem in every way."""
        problem, rng = draw_problem(self.number), np.random.default_rng([self.number, 1])
        reference = methods(problem.family)[REFERENCES[problem.family]]
        expected = solve(problem, reference, None)
        self.counts[f"problems of family {problem.family}"] += 1
        for method, backend in self.settings[problem.family]:
            how, found = draw_run(method, backend, rng), None
            try:
                found = run(method, problem, how)
                fault = None if found is None else difference(found, expected)
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            self.counts[f"runs of {method.name} on {backend}"] += found is not None
            self.counts["runs that did not fit in the budget"] += found is None and fault is None
            if fault is not None:
                self.faults.append({"number": self.number, "family": problem.family, "fault": fault, **how})
                print(json.dumps(self.faults[-1]), flush=True)
                if backend == "cuda" and (why := gpu_loss()):
                    print(f"the GPU is lost to this process, which ends: {why}", flush=True)
                    self.gpu_lost = True
                    break
        self.number += 1

    def write(self, seconds: float) -> None:
        """Add a line to the log, and forget what stands in it."""
        process = psutil.Process()
        line = {
            "pid": process.pid,
            "next": self.number,
            "seconds": round(seconds, 2),
            **memory(),
            "device_bytes": 0 if self.gpu_lost else device_bytes(),
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "counts": dict(self.counts),
            "faults": self.faults,
        }
        with self.log.open("a") as file:
            file.write("\n" * self.first + json.dumps(line) + "\n")
        self.first = False
        self.counts, self.faults = Counter(), []

    def until(self, end: float, problems: int | None) -> None:
        began = written = time.monotonic()
        last = None if problems is None else self.number + problems
        while time.monotonic() < end and self.number != last and not self.gpu_lost:
            self.one()
            if time.monotonic() > written + LINE_S:
                self.write(time.monotonic() - written)
                written = time.monotonic()
        if self.counts or began == written:
            self.write(time.monotonic() - written)


def memory() -> dict[str, int]:
    """What the process has in memory, and apart from that the stacks of the host backend's CUDA threads: how many, and
    what of them is in memory. A page of a stack comes when a kernel first reaches so deep there, and stays; before
    each stack of each OS thread has met the deepest kernel, hours go by, in which they grow ever more slowly."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # pages that are free but still here are no growth
    resident = stacks = stack_bytes = guarded = 0
    for low, high, access, kib in _MAPPING.findall(Path("/proc/self/smaps").read_bytes()):
        start, end = int(low, 16), int(high, 16)
        if access == b"rw-p" and end - start == STACK_BYTES and start == guarded:
            stacks, stack_bytes = stacks + 1, stack_bytes + 1024 * int(kib)
        else:
            resident += 1024 * int(kib)
        guarded = end if access == b"---p" and end - start == resource.getpagesize() else 0
    return {"memory_bytes": resident, "stacks": stacks, "stack_bytes": stack_bytes}


def device_bytes() -> int:
    """What is taken on the GPU, by whatever process, and what a backend leaves free there; 0 without a GPU."""
    if backend_class("cuda").unavailable() is not None:
        return 0
    backend = open_backend("cuda")
    return int(backend.describe()["memory_bytes"]) - backend.memory_limit


def gpu_loss() -> str | None:
    """Why this process can no longer use the GPU, as after an illegal address; None if it can."""
    try:
        device_bytes()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; one that a killed process left half-written is passed over."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a log says, as it is published."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line["counts"])
    settled = [_of(lines, pid) for pid in dict.fromkeys(line["pid"] for line in lines)]
    growth = [grown(part) for part in settled if len(part) >= LEAST_LINES]
    faults = [fault for line in lines for fault in line["faults"]]
    return {
        "commit": _commit(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "backends": sorted({backend for each in settings_here().values() for _, backend in each}),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "problems": sum(count for name, count in counts.items() if name.startswith("problems")),
        "runs": sum(count for name, count in counts.items() if name.startswith("runs of")),
        "counts": dict(sorted(counts.items())),
        "differences": faults,
        "processes": growth,
        "flat": all(part["flat"] for part in growth),
    }


def _of(lines: Sequence[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    """A process's lines behind its beginning."""
    own = [line for line in lines if line["pid"] == pid]
    return own[int(SETTLED * len(own)) :]


def grown(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How a process's memory and a GPU's (a quarter's smallest), descriptors, threads and stacks (largest) went from
    the first to the last quarter of its lines. What stacks have in memory is told, and only their number has a
    bound."""
    quarter = max(len(lines) // 4, 1)
    first, last = lines[:quarter], lines[-quarter:]
    found: dict[str, Any] = {"lines": len(lines)}
    flat = True
    for name, most in (("memory_bytes", MOST_GROWTH_BYTES), ("device_bytes", MOST_DEVICE_GROWTH_BYTES)):
        least = found[name] = [min(line.get(name, 0) for line in part) for part in (first, last)]  # 0: an older log's
        flat &= least[1] <= least[0] + most
    for name in ("descriptors", "threads", "stacks", "stack_bytes"):
        found[name] = [max(line[name] for line in part) for part in (first, last)]
    steady = all(found[name][1] <= found[name][0] for name in ("descriptors", "threads"))
    bounded = found["stacks"][1] <= MOST_STACKS
    return found | {"flat": flat and steady and bounded}


def _commit() -> str | None:
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True)
    return said.stdout.strip() or None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--log", type=Path, default=Path("build/soak/log.jsonl"))
    parser.add_argument("--summary", type=Path, default=Path("build/soak/summary.json"))
    parser.add_argument("--first", type=int, help="number of the first problem (default: behind the log's last)")
    parser.add_argument("--problems", type=int, help="how many (default: until the time is up)")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="methods to leave out, such as out-of-core-um where several processes share a GPU: it keeps their memory",
    )
    options = parser.parse_args(argv)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    before = list(read_log(options.log))
    first = options.first if options.first is not None else before[-1]["next"] if before else 0
    end = time.monotonic() + 60 * options.minutes
    Soak(options.log, first, settings_here(options.without)).until(end, options.problems)
    found = summary(list(read_log(options.log)))
    options.summary.write_text(json.dumps(found, indent=1) + "\n")
    done = f"{found['problems']:,} problems, {found['runs']:,} runs in {found['seconds']:,.0f} s"
    use = "flat" if found["flat"] else f"not flat: {found['processes']}"
    print(f"{done}: {len(found['differences'])} differences, {use}")
    return 0 if found["flat"] and not found["differences"] else 1


if __name__ == "__main__":
    sys.exit(main())
