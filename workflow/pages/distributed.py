"""How method `distributed` grows with its workers, on generated data of the TCGA shape (docs/distributed.md).

    python -m workflow.pages.distributed --workers 1 2 4 --out scaling.json
    python -m workflow.pages.distributed --variables 600 --samples 200 --workers 1 2 --backend host --panel 96

Each number of workers has a cluster of this machine, a first search of a small problem, which compiles kernels and
wakes the devices, and then the search that is timed. All must find the same. The first of several repeats also compiles
what the small problem does not reach, and finds the system's caches cold: compare the later ones.
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
from gpupc_impl.distributed import _shards
from gpupc_impl.distributed._cluster import ClientAddress, open_client

PACKAGES = ("gpupc", "cupy-cuda12x", "cupy-cuda13x", "dask", "distributed", "numpy", "scipy")
WARM_UP = {"p": 512, "n": 64, "regulators": 8}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the JSON, and return 0; 1 where the answers differ."""
    asked = _parser().parse_args(arguments)
    backend = resolve_backend(asked.backend)
    made = time.perf_counter()
    regulators = asked.regulators or max(1, asked.variables // 100)
    values = regulated_genes(
        asked.variables, asked.samples, asked.seed, regulators, asked.coupling, asked.weakest
    ).values
    made = time.perf_counter() - made
    found: dict[str, Any] = {
        "problem": {**vars(asked), "regulators": regulators, "out": None, "folder": None},
        "versions": _versions(),
        "generate_s": made,
        "runs": [],
    }
    for workers in asked.workers:
        for _ in range(asked.repeats):
            run = measure(values, workers, backend, asked)
            found["runs"].append(run)
            print(f"{workers} workers: {run['total_s']:.2f} s, levels {run['level_s']}", file=sys.stderr, flush=True)
            if asked.out:
                save_json(found, asked.out)
    one = min((run["levels_total_s"] for run in found["runs"] if run["workers"] == 1), default=None)
    for run in found["runs"]:
        run["efficiency"] = None if one is None else one / (run["workers"] * run["levels_total_s"])
    found["same_answer"] = len({json.dumps(run["answer"]) for run in found["runs"]}) == 1
    if asked.out:
        save_json(found, asked.out)
    else:
        print(json.dumps(found, indent=1))
    return 0 if found["same_answer"] else 1


def measure(values: np.ndarray, workers: int, backend: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One search, on a cluster of its own that has been warmed up."""
    how = {"method": "distributed", "backend": backend, "device_memory_limit": asked.device_memory_limit}
    how |= {"transpose": False, "max_level": asked.max_level}
    with (
        tempfile.TemporaryDirectory(prefix="gpupc-", dir=asked.folder) as folder,
        open_client(ClientAddress(""), backend, workers) as client,
    ):
        small = regulated_genes(WARM_UP["p"], WARM_UP["n"], 0, WARM_UP["regulators"], 0.41).values
        skeleton(small, 0.01, client=client, panel=32, **how)
        started = time.perf_counter()
        graph = skeleton(values, asked.alpha, client=client, panel=asked.panel, folder=folder, **how)
        total = time.perf_counter() - started
        report = graph.facts["distributed"]
        numbers = _shards.Folder(Path(folder)).numbers.stat().st_size
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
    """The most memory that the calling process has had, mapped files included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _digest(folder: Path) -> str:
    """Of the arrays of all shards: the same of the same panels, whoever made them."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as stored:
            said = json.loads(str(stored["described"]))
        digest.update(f"{path.relative_to(folder)} {said['sha256']}".encode())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
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
