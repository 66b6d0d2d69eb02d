"""Makes the tables of docs/start.md on the times of the first and the second call in a process.

``python -m workflow.pages.first_call --backend cuda --page docs/start.md`` measures on this machine and replaces the
table between the page's marks for this backend. Each search runs in fresh processes, first with an empty kernel cache,
so that kernels are compiled, and then with the kernels of archives (``--shipped``, a folder that `make wheel` wrote).
The table shows medians. Imports are not part of a call; a column shows the time of CuPy's import.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpupc_impl.backends import backend_class
from gpupc_impl.reporting.tables import markdown
from workflow.pages.recorded import replace

SEARCHES = {
    "gaussian, 1000 x 100": "skeleton(numbers(1000, 100), backend=backend)",
    "discrete, 1000 x 40": "skeleton((numbers(1000, 40) > 0).astype(np.uint8), family='discrete', backend=backend)",
    "nonlinear, 500 x 10": "skeleton(numbers(500, 10), family='nonlinear', backend=backend)",
    "mixed, 300 x 8": "skeleton(with_categories(numbers(300, 8)), family='mixed', backend=backend)",
    "kernel, 300 x 8": "skeleton(numbers(300, 8), family='kernel', backend=backend)",
    "`stable-serial`, 1000 x 100": "skeleton(numbers(1000, 100), method='stable-serial')",
}
"""The measured calls by name; the last one runs a reference that numba compiles."""

PROGRAM = """
import json, sys, time
import numpy as np, pandas as pd, scipy.special
from gpupc_impl import skeleton

def numbers(n, p):
    values = np.random.default_rng(3).normal(size=(n, p))
    values[:, 1:] += 0.8 * values[:, :-1]
    return values

def with_categories(values):
    table = pd.DataFrame(values).rename(columns=str)
    return table.assign(site=np.where(values[:, 0] > 0, "north", "south"))

backend, call = sys.argv[1:]
clock = [time.perf_counter()]
if backend == "cuda":
    import cupy
clock.append(time.perf_counter())
for _ in range(2):
    eval(call)
    clock.append(time.perf_counter())
print(json.dumps(np.diff(clock).tolist()))
"""
COLUMNS = ("compiled", "from archives", "second call", "importing CuPy")


def seconds(backend: str, call: str, shipped: Path | None) -> list[float]:
    """Return the seconds of CuPy's import and of two calls, in a process with an empty cache or archives."""
    with tempfile.TemporaryDirectory() as folder:
        archives = str(shipped.resolve()) if shipped else folder  # without archives, the folder is empty
        places = {"GPUPC_CACHE_DIR": f"{folder}/cache", "NUMBA_CACHE_DIR": f"{folder}/numba"}
        environment = {**os.environ, **places, "GPUPC_SHIPPED_DIR": archives}
        command = [sys.executable, "-c", PROGRAM, backend, call]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(backend: str, call: str, shipped: Path | None, repeats: int) -> list[str]:
    """Return the cells of a row: the medians of the times in `COLUMNS`."""
    compiled = [seconds(backend, call, None) for _ in range(repeats)]
    ahead = [seconds(backend, call, shipped) for _ in range(repeats)] if shipped and "backend=" in call else []
    imports, first, second = map(statistics.median, zip(*compiled, strict=True))
    from_archives = f"{statistics.median(times[1] for times in ahead):.2f}" if ahead else "-"
    return [f"{first:.2f}", from_archives, f"{second:.3f}", f"{imports:.2f}" if backend == "cuda" else "-"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.first_call", description=__doc__)
    parser.add_argument("--backend", choices=("host", "cuda"), required=True)
    parser.add_argument("--shipped", type=Path, help="a folder of archives (default: nothing is measured with them)")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for each time (default: %(default)s)")
    parser.add_argument("--page", type=Path, help="the page whose table is replaced (default: it is printed)")
    options = parser.parse_args(arguments)
    rows = [[name, *row(options.backend, call, options.shipped, options.repeats)] for name, call in SEARCHES.items()]
    device = backend_class(options.backend)().describe()["device"]
    cores = len(os.sched_getaffinity(0))
    heading = f"Seconds on {device}, {cores} cores, medians of {options.repeats} processes:"
    table = f"{heading}\n\n{markdown(['search', *COLUMNS], rows, range(1, 5))}"
    if not options.page:
        print(table)
        return
    try:
        replace(options.page, {f"first calls, {options.backend}": table})
    except ValueError as error:
        parser.error(f"{options.page}: {error}")


if __name__ == "__main__":
    main()
