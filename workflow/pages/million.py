"""Measures method `distributed` on one device with up to a million variables (docs/scale.md).

    python -m workflow.pages.million --out million.json
    python -m workflow.pages.million --backend host --cases small --out small.json

Every case runs in a process of its own, which first searches a small problem, and is written to the JSON as soon as it
is measured. A case that takes longer than its limit, or fails, is ended and noted with the last lines of its log, and
the next case begins. If the script is called again with the same JSON, it measures the cases that have no result. With
`--seconds` no case begins that probably takes longer than the rest of this time.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from datasets.wide import regulated_genes
from gpupc_impl.api import skeleton
from gpupc_impl.backends import open_backend, resolve_backend
from gpupc_impl.core.files import read_json, save_json
from workflow.pages import distributed as cluster_runs
from workflow.pages.distributed import versions

RECORDED = Path("results/recorded/nvidia-h200/distributed/two-gpus.json")
"""The file of the recorded run that has the right answer to the case `tcga`."""

LOG_LINES = 60
"""The number of log lines that are kept of a case without a result."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A search of generated genes (datasets/wide.py).

    Attributes:
        seconds: the probable duration on an H100, with the start of the process and the generation of the data.
        panel: the method's parameter, which is not 0 for searches on a cluster.
        workers: the numbers of GPUs of searches on clusters, which `workflow.pages.distributed` measures.
        threaded: whether the samples are drawn by many threads, from other streams than in `regulated_genes`.
        again: whether the process has made the same search before, so that its kernels are compiled.
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
    workers: tuple[int, ...] = ()
    threaded: bool = False
    again: bool = False


WARM_UP = Case(8_000)
CASES = {
    "100k-again": Case(100_000, seconds=60, again=True),
    "300k": Case(300_000, max_level=1, seconds=50, threaded=True),
    "tcga": Case(55_572, 3_189, max_level=1, regulators=555, coupling=0.41, weakest=0.0, seconds=60, again=True),
    "million-1e-6": Case(1_000_000, alpha=1e-6, seconds=120, threaded=True),
    "million": Case(1_000_000, seconds=450, threaded=True),
    "300k-all": Case(300_000, seconds=80, threaded=True),
    "300k-two-gpus": Case(300_000, max_level=1, seconds=330, workers=(1, 2), panel=2048),
    "small": Case(3_000, 200, seconds=10),
    "small-cluster": Case(3_000, 200, seconds=10, panel=512),
    "small-threaded": Case(3_000, 200, alpha=1e-6, seconds=10, threaded=True, again=True),
    "small-workers": Case(600, 200, max_level=1, seconds=30, workers=(1, 2), panel=96),
}
"""The cases in the order in which they are measured."""

DEFAULT_CASES = ("100k-again", "300k", "tcga", "million-1e-6", "million", "300k-all")


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the JSON, and return 0, or 1 if a case has no result."""
    options = _parser().parse_args(arguments)
    if options.alone:
        logging.basicConfig(format="%(asctime)s %(message)s", force=True)
        logging.getLogger("gpupc_impl").setLevel(logging.INFO)
        logging.getLogger("distributed").setLevel(logging.WARNING)
        save_json(measure_alone(CASES[options.alone], options), options.out)
        return 0
    started = time.perf_counter()
    results: dict[str, Any] = {"versions": versions(), "device": {}, "cases": {}, "failed": {}}
    if options.out.exists():
        recorded = read_json(options.out)
        results |= {name: dict(recorded.get(name, {})) for name in ("device", "cases", "failed")}
    for name in options.cases:
        if name in results["cases"]:
            continue
        left = options.seconds - (time.perf_counter() - started)
        if CASES[name].seconds > left:
            print(f"{name}: not enough time is left", file=sys.stderr, flush=True)
            results["failed"].setdefault(name, {"why": "not enough time was left"})
            save_json(results, options.out)
            continue
        result, failure = run_apart(name, options, min(left, options.limit or 4 * CASES[name].seconds))
        if result is None:
            results["failed"][name] = {"problem": dataclasses.asdict(CASES[name]), **failure}
        else:
            results["device"] = result.pop("device")
            results["cases"][name] = {"problem": dataclasses.asdict(CASES[name]), **result}
            results["failed"].pop(name, None)
        save_json(results, options.out)
        shown = {key: value for key, value in (result or failure).items() if key not in ("report", "log", "runs")}
        print(f"{name}: {json.dumps(shown)}", file=sys.stderr, flush=True)
    return 0 if all(name in results["cases"] for name in options.cases) else 1


def run_apart(name: str, options: argparse.Namespace, limit: float) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Measure a case in a process of its own, which is ended after `limit` seconds; returns the result, or None and why
    there is none."""
    lines = collections.deque[str](maxlen=LOG_LINES)
    with tempfile.TemporaryDirectory(prefix="gpupc-") as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", __spec__.name, "--alone", name, "--backend", options.backend]
        command += ["--seed", str(options.seed), "--out", str(out)]
        command += ["--folder", str(options.folder)] if options.folder else []
        started = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line.rstrip())
                print(f"{name}: {lines[-1]}", file=sys.stderr, flush=True)
            status = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        seconds = time.perf_counter() - started
        if status == 0:
            return dict(read_json(out)), {}
        why = f"ended after its limit of {limit:.0f} s" if seconds >= limit else f"ended with status {status}"
        return None, {"why": why, "seconds": seconds, "log": list(lines)}


def measure_alone(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a case in this process."""
    backend = resolve_backend(options.backend)
    if case.workers:
        return measure_cluster(case, backend, options)
    started = time.perf_counter()
    small = WARM_UP if case.p > WARM_UP.p else CASES["small"]
    measure(small, samples(small, options.seed), backend, options.folder)
    warm_up_s = time.perf_counter() - started
    values = samples(case, options.seed)
    generate_s = time.perf_counter() - started - warm_up_s
    logging.getLogger("gpupc_impl").info("warmed up in %.1f s, generated in %.1f s", warm_up_s, generate_s)
    facts = {"warm_up_s": warm_up_s, "generate_s": generate_s}
    if case.again:
        facts["first_total_s"] = measure(case, values, backend, options.folder)["total_s"]
    return {"device": open_backend(backend).describe(), **facts, **measure(case, values, backend, options.folder, True)}


def measure_cluster(case: Case, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure searches on clusters of this machine."""
    with tempfile.TemporaryDirectory(prefix="gpupc-", dir=options.folder or _folder(case)) as folder:
        out = Path(folder) / "runs.json"
        values = {
            "variables": case.p,
            "samples": case.n,
            "alpha": case.alpha,
            "regulators": case.regulators or case.p // 10,
            "coupling": case.coupling,
            "weakest": case.weakest,
            "seed": options.seed,
            "max-level": case.max_level,
            "panel": case.panel,
            "backend": backend,
            "folder": folder,
            "out": out,
        }
        arguments = [each for name, value in values.items() for each in (f"--{name}", str(value))]
        same = cluster_runs.main([*arguments, "--workers", *map(str, case.workers)]) == 0
        return {"device": open_backend(backend).describe(), "same_answer": same, **read_json(out)}


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


def measure(
    case: Case, values: np.ndarray, backend: str, folder: Path | None, with_digests: bool = False
) -> dict[str, Any]:
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
        if not with_digests:
            return run
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
    parser.add_argument("--cases", nargs="+", choices=CASES, default=DEFAULT_CASES, help="in this order")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all cases")
    parser.add_argument("--limit", type=float, help="seconds after which a case is ended; four times the probable ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "host"))
    parser.add_argument("--folder", type=Path, help="where shards go meanwhile")
    parser.add_argument("--alone", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
