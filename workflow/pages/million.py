"""Measures method `distributed` on one device with up to a million variables (docs/scale.md).

    python -m workflow.pages.million --out million.json
    python -m workflow.pages.million --backend host --cases small --out small.json

Every case is written to the JSON as soon as it is measured. If the script is called again with the same JSON, it
measures the missing cases. With `--seconds` no case begins that probably takes longer than the rest of this time.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import logging
import os
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from datasets.wide import regulated_genes
from gpupc_impl.api import skeleton
from gpupc_impl.backends import open_backend, resolve_backend
from gpupc_impl.core.files import read_json, save_json
from workflow.pages.distributed import versions

RECORDED = Path("results/recorded/nvidia-h200/distributed/two-gpus.json")
"""The file of the recorded run that has the right answer to the case `tcga`."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A search of generated genes (datasets/wide.py).

    Attributes:
        seconds: the probable duration on an H100, including the generation of the data.
        panel: the method's parameter, which is not 0 for searches on a cluster.
        threaded: whether the samples are drawn by many threads, from other streams than in `regulated_genes`.
    """

    p: int
    n: int = 1000
    alpha: float = 0.01
    max_level: int | None = None
    regulators: int = 0
    coupling: float = 0.0
    weakest: float = 0.7
    seconds: float = 10.0
    panel: int = 0
    threaded: bool = False


CASES = {
    "warm-up": Case(8_000, seconds=10),
    "100k": Case(100_000, seconds=25),
    "100k-again": Case(100_000, seconds=15),
    "tcga": Case(55_572, 3_189, max_level=1, regulators=555, coupling=0.41, weakest=0.0, seconds=28),
    "300k": Case(300_000, max_level=1, seconds=40, threaded=True),
    "million-1e-6": Case(1_000_000, alpha=1e-6, seconds=50, threaded=True),
    "million": Case(1_000_000, seconds=170, threaded=True),
    "300k-all": Case(300_000, seconds=60, threaded=True),
    "100k-cluster": Case(100_000, seconds=120, panel=2048),
    "small": Case(3_000, 200, seconds=10),
    "small-cluster": Case(3_000, 200, seconds=10, panel=512),
    "small-threaded": Case(3_000, 200, alpha=1e-6, seconds=10, threaded=True),
}
"""The cases in the order in which they are measured."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the JSON, and return 0."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("gpupc_impl").setLevel(logging.INFO)
    started = time.perf_counter()
    backend = resolve_backend(options.backend)
    results: dict[str, Any] = {"versions": versions(), "device": open_backend(backend).describe(), "cases": {}}
    if options.out.exists():
        results["cases"] = dict(read_json(options.out))["cases"]
    values: tuple[Case | None, np.ndarray] = (None, np.empty(0))
    for name in options.cases:
        case = CASES[name]
        if name in results["cases"]:
            continue
        if time.perf_counter() - started + case.seconds > options.seconds:
            print(f"{name}: not enough time is left", file=sys.stderr, flush=True)
            continue
        data = dataclasses.replace(case, alpha=0.0, seconds=0.0, panel=0, max_level=None)
        if values[0] != data:
            values = None, np.empty(0)
            generate_s = time.perf_counter()
            values = data, samples(case, options.seed)
            generate_s = time.perf_counter() - generate_s
        run = measure(case, values[1], backend, options.folder)
        results["cases"][name] = {"problem": dataclasses.asdict(case), "generate_s": generate_s, **run}
        save_json(results, options.out)
        print(f"{name}: {json.dumps(results['cases'][name])}", file=sys.stderr, flush=True)
    return 0


def samples(case: Case, seed: int) -> np.ndarray:
    """(n, p) float64 samples of a case."""
    regulators = case.regulators or case.p // 10
    if not case.threaded:
        return regulated_genes(case.p, case.n, seed, regulators, case.coupling, case.weakest).values
    assert case.coupling == 0.0
    structure = np.random.Generator(np.random.PCG64([seed, 0]))
    position = np.arange(regulators) * case.p // regulators
    module = structure.integers(regulators, size=case.p)
    loading = structure.uniform(-1.0, 1.0, case.p)
    loading = np.copysign(case.weakest + (1 - case.weakest) * np.abs(loading), loading)
    residual = np.sqrt(1 - loading * loading)
    values = np.empty((case.n, case.p))

    def draw(row: int) -> None:
        noise = np.random.Generator(np.random.PCG64([seed, 1, row]))
        own = values[row]
        noise.standard_normal(out=own)
        regulator = own[position]
        own *= residual
        own += regulator[module] * loading
        own[position] = regulator

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(draw, range(case.n)))
    return values


def measure(case: Case, values: np.ndarray, backend: str, folder: Path | None) -> dict[str, Any]:
    """Time one search."""
    how: dict[str, Any] = {"method": "distributed", "backend": backend, "max_level": case.max_level}
    how |= {"transpose": False, "panel": case.panel}
    with tempfile.TemporaryDirectory(prefix="gpupc-", dir=folder or _folder(case)) as temporary:
        # A search without the parameter `folder` computes no fingerprint of its data.
        tempfile.tempdir = temporary
        started = time.perf_counter()
        try:
            graph = skeleton(values, case.alpha, **how)
        finally:
            tempfile.tempdir = None
        total = time.perf_counter() - started
        run = {
            "total_s": total,
            "level_s": list(graph.seconds_per_level),
            "tests_per_level": list(graph.tests_per_level),
            "edges_per_level": list(graph.edges_per_level),
            "undefined_tests": graph.undefined_tests,
            "stopped_because": graph.stopped_because,
            "report": graph.facts["distributed"],
            "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
        started = time.perf_counter()
        if case.p <= 100_000:
            run["edges_sha256"] = graph.sha256
            if case.alpha < 0.1 and case.n <= 1000:
                run["sets_sha256"] = graph.sepsets.sha256
        run["spot_sha256"] = _spot(graph)
        run["digest_s"] = time.perf_counter() - started
        if case == CASES["tcga"]:
            recorded = read_json(RECORDED)["runs"][0]["answer"]["edges"]
            run["as_recorded"] = recorded == run["edges_sha256"]
    return run


def _spot(graph: Any) -> str:
    """Return a digest of the neighbours and of the sets of a few variables."""
    digest, p = hashlib.sha256(), len(graph.names)
    for i in np.linspace(0, p - 1, 5).astype(int).tolist():
        digest.update(np.flatnonzero(graph.adjacency[i]).tobytes())
        digest.update(repr([graph.sepsets.get((i, j)) for j in range(i + 1, min(i + 200, p))]).encode())
    return digest.hexdigest()


def _folder(case: Case) -> str:
    """Return the file system in memory, if it has room for the shards; else the temporary folder."""
    needed = 10 * max(case.alpha, 0.7 if case.coupling else 0.0) * case.p**2 / 2
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > needed:
        return memory
    return tempfile.gettempdir()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.million", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES)[:-3], help="in this order")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "host"))
    parser.add_argument("--folder", type=Path, help="where shards go meanwhile")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
