"""What a process keeps of each step of a run: ``python -m tests.soak.growth --backend cuda --repeats 2000``.

A soak tells that memory grows; this tells with what. Each step is repeated in one process, and the memory that is more
afterwards, stacks of the host backend apart, is shared out among the repeats. A quarter as many go before, in which
kernels are compiled and pools fill.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpupc_impl import GaussianProblem
from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.engine import bit_graph
from tests.soak.run import device_bytes, memory

BYTES = 1 << 16
SMALL_BUDGET = 1 << 10


def steps(name: str) -> dict[str, Callable[[], Any]]:
    """What is repeated, on the backend of that name, from the least of a run to the whole of it."""
    rng, opened, zeros = np.random.default_rng(7), open_backend(name), np.zeros(BYTES, np.uint8)
    kernel = bit_graph.KERNELS["expand"]
    gaussian = GaussianProblem.from_data(rng.normal(size=(100, 20)), alpha=0.1)
    discrete = DiscreteProblem.from_data(rng.integers(0, 3, (500, 12)), alpha=0.1)
    runs = {"pair-scan": gaussian, "cupc-s": gaussian, "gpupc": discrete}

    def there_and_back(backend: Any) -> None:
        backend.download(backend.upload(zeros))

    def refused() -> None:
        try:
            solve(discrete, get_method("gpupc"), open_backend(name, SMALL_BUDGET))
        except DeviceMemoryError:
            return
        raise AssertionError("it fits into the small budget")

    found = {
        "open a backend": lambda: open_backend(name),
        "an array there and back": lambda: there_and_back(opened),
        "open a backend, an array there and back": lambda: there_and_back(open_backend(name)),
        "open a backend, load a kernel": lambda: open_backend(name).kernel(*kernel),
        "a search that has no room": refused,
    }
    for method, problem in runs.items():
        found[f"{method} with one backend"] = lambda m=method, p=problem: solve(p, get_method(m), opened)
        found[f"open a backend, {method}"] = lambda m=method, p=problem: solve(p, get_method(m), open_backend(name))
    return found


def kept(step: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Bytes that stay of a step, as a mean: in the process and on the GPU."""

    def now() -> dict[str, int]:
        return {"memory_bytes": memory()["memory_bytes"], "device_bytes": device_bytes()}

    for _ in range(max(repeats // 4, 1)):
        step()
    before = now()
    for _ in range(repeats):
        step()
    return {name: (after - before[name]) / repeats for name, after in now().items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.growth", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="host")
    parser.add_argument("--repeats", type=int, default=1000)
    arguments = parser.parse_args(argv)
    if arguments.repeats < 1:
        parser.error(f"--repeats is {arguments.repeats}; it must be at least 1")
    for name, step in steps(arguments.backend).items():
        stays = kept(step, arguments.repeats)
        print(
            f"{stays['memory_bytes']:10,.0f} bytes and {stays['device_bytes']:10,.0f} on the device a time: {name}",
            flush=True,
        )


if __name__ == "__main__":
    main()
