"""Measures how the method `distributed` scales with its workers, on generated data (docs/distributed.md).

    python -m workflow.pages.distributed --workers 1 2 4 --out scaling.json
    python -m workflow.pages.distributed --variables 600 --samples 200 --workers 1 2 --backend host --panel 96

For each number of workers the script starts a cluster on this machine, searches a small problem, which compiles kernels
and initializes the devices, and then times a search. All searches must have the same answer. The first of several
repeats also compiles kernels that the small problem does not need, and reads files that are not cached yet: compare the
later ones.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from datasets.wide import regulated_genes
from gpupc_impl.api import skeleton
from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.files import save_json
from gpupc_impl.distributed.cluster import ClientAddress, open_client
from gpupc_impl.distributed.shards import ShardFolder

PACKAGES = ("gpupc", "cupy-cuda12x", "cupy-cuda13x", "dask", "distributed", "numpy", "scipy")
WARM_UP = {"p": 512, "n": 64, "regulators": 8}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the JSON, and return 0, or 1 if the answers differ."""
    options = _parser().parse_args(arguments)
    backend = resolve_backend(options.backend)
    generate_s = time.perf_counter()
    regulators = options.regulators or max(1, options.variables // 100)
    values = regulated_genes(
        options.variables, options.samples, options.seed, regulators, options.coupling, options.weakest
    ).values
    generate_s = time.perf_counter() - generate_s
    results: dict[str, Any] = {
        "problem": {**vars(options), "regulators": regulators, "out": None, "folder": None},
        "versions": versions(),
        "generate_s": generate_s,
        "runs": [],
    }
    for workers in options.workers:
        for _ in range(options.repeats):
            run = measure(values, workers, backend, options)
            results["runs"].append(run)
            print(f"{workers} workers: {run['total_s']:.2f} s, levels {run['level_s']}", file=sys.stderr, flush=True)
            if options.out:
                save_json(results, options.out)
    single_s = min((run["levels_total_s"] for run in results["runs"] if run["workers"] == 1), default=None)
    for run in results["runs"]:
        run["efficiency"] = None if single_s is None else single_s / (run["workers"] * run["levels_total_s"])
    results["same_answer"] = len({json.dumps(run["answer"]) for run in results["runs"]}) == 1
    if options.out:
        save_json(results, options.out)
    else:
        print(json.dumps(results, indent=1))
    return 0 if results["same_answer"] else 1


def measure(values: np.ndarray, workers: int, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Time one search on a new cluster that has been warmed up."""
    how = {"method": "distributed", "backend": backend, "device_memory_limit": options.device_memory_limit}
    how |= {"transpose": False, "max_level": options.max_level}
    with (
        tempfile.TemporaryDirectory(prefix="gpupc-", dir=options.folder) as folder,
        open_client(ClientAddress(""), backend, workers) as client,
    ):
        small = regulated_genes(WARM_UP["p"], WARM_UP["n"], 0, WARM_UP["regulators"], 0.41).values
        skeleton(small, 0.01, client=client, panel=32, **how)
        started = time.perf_counter()
        graph = skeleton(values, options.alpha, client=client, panel=options.panel, folder=folder, **how)
        total = time.perf_counter() - started
        report = graph.facts["distributed"]
        numbers = ShardFolder(Path(folder)).numbers.stat().st_size
        written = sum(each["bytes"] for level in report["levels"] for each in level["workers"].values())
        return {
            "workers": workers,
            "total_s": total,
            "level_s": list(graph.seconds_per_level),
            "levels_total_s": sum(graph.seconds_per_level),
            "prepare_s": total - sum(graph.seconds_per_level),
            "tests_per_level": list(graph.tests_per_level),
            "edges_per_level": list(graph.edges_per_level),
            "stopped_because": graph.stopped_because,
            "bytes": {"numbers_read": numbers * workers, "shards_written": written},
            "peak_rss_bytes": sorted(client.run(_peak_rss).values()),
            "answer": {"edges": graph.sha256, "shards": _digest(Path(folder))},
            "report": report,
        }


def _peak_rss() -> int:
    """Return the peak of the calling process's resident memory in bytes, mapped files included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _digest(folder: Path) -> str:
    """Return a digest of the arrays of all shards, which does not depend on which workers made them."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as stored:
            description = json.loads(str(stored["described"]))
        digest.update(f"{path.relative_to(folder)} {description['sha256']}".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a search on a cluster uses."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.distributed", description=__doc__.splitlines()[0])
    parser.add_argument("--variables", type=int, default=55572)
    parser.add_argument("--samples", type=int, default=3189)
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--regulators", type=int, default=0, help="0: one for a hundred variables")
    parser.add_argument("--coupling", type=float, default=0.41)
    parser.add_argument("--weakest", type=float, default=0.0, help="least magnitude of a gene's loading")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1], help="one run for each number")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--max-level", type=int)
    parser.add_argument("--panel", type=int, default=2048, help="variables a panel; the same for all runs")
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "host"))
    parser.add_argument("--device-memory-limit", type=int, help="bytes a worker")
    parser.add_argument("--folder", type=Path, help="where shards go meanwhile; the system's temporary folder")
    parser.add_argument("--out", type=Path, help="JSON file; standard output without it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
