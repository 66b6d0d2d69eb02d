"""Measures method `distributed` with up to a million variables; docs/scale.md has the commands.

Every case runs in a process of its own, which first searches a small problem, and is written to the JSON as soon as it
is measured. If the script is called again with the same JSON, it measures the cases that have no result.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import logging
import multiprocessing
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from datasets.wide import regulated_genes
from gpupc_impl.api import skeleton
from gpupc_impl.backends import open_backend, resolve_backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import parse_yaml, read_json, read_text, save_json
from gpupc_impl.distributed.local_cluster import local_cluster
from gpupc_impl.measurement.environment import environment, gpu_process_list
from gpupc_impl.reporting.tables import markdown
from workflow.pages.recorded import replace

RECORDED = Path("results/recorded/wide")
"""The folder of searches with the right answers, of which the page has a table."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A search of generated genes (datasets/wide.py).

    Attributes:
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
    threaded: bool = False
    again: bool = False


WARM_UP = Case(8_000)
CASES = {name: Case(**its) for name, its in parse_yaml(read_text(Path(__file__).with_suffix(".yaml"))).items()}
DEFAULT_CASES = ("100k-again", "300k", "tcga", "million-1e-6", "million", "300k-all")


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the JSON; an error in a case ends the script."""
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.million", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=DEFAULT_CASES, help="in this order")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "host"))
    parser.add_argument("--workers", type=int, default=1, help="GPUs, or workers on CPU cores")
    parser.add_argument("--processes", action="store_true", help="workers are processes of a Dask cluster, not threads")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="JSON file")
    what.add_argument("--page", type=Path, help="a page that gets the table of recorded searches; nothing is measured")
    options = parser.parse_args(arguments)
    if options.page:
        replace(options.page, {"searches": table()})
        return 0
    results: dict[str, Any] = read_json(options.out) if options.out.exists() else {"cases": {}}
    for name in [name for name in options.cases if name not in results["cases"]]:
        case = CASES[name]
        # The peak of the memory is that of a process, and a new process has compiled nothing.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            result = process.submit(measure_alone, case, options).result()
        results["cases"][name] = {"problem": dataclasses.asdict(case), **result}
        save_json(results, options.out)
        shown = {key: value for key, value in result.items() if key != "report"}
        print(f"{name}: {json.dumps(shown)}", file=sys.stderr, flush=True)
    return 0


def measure_alone(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a case in this process, or on processes of a cluster of this machine."""
    logging.basicConfig(format="%(asctime)s %(message)s", force=True)
    logging.getLogger("gpupc_impl").setLevel(logging.INFO)
    backend, others = resolve_backend(options.backend), gpu_process_list()
    cluster = local_cluster(options.workers, backend) if options.processes else contextlib.nullcontext()
    with cluster as client:
        workers = {"client": client} if options.processes else {"workers": options.workers}
        where = {"backend": backend, **workers}
        started = time.perf_counter()
        small = WARM_UP if case.p > WARM_UP.p else CASES["small"]
        measure(small, samples(small, options.seed), where)
        warm_up_s = time.perf_counter() - started
        values = samples(case, options.seed)
        facts = {"warm_up_s": warm_up_s, "generate_s": time.perf_counter() - started - warm_up_s}
        logging.getLogger("gpupc_impl").info("warmed up and generated: %s", facts)
        if case.again:
            facts["first_total_s"] = measure(case, values, where)["total_s"]
        facts["environment"] = environment(available_cores(), options.workers, open_backend(backend), others)
        return facts | measure(case, values, where, with_digests=True)


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


def measure(case: Case, values: np.ndarray, where: dict[str, Any], with_digests: bool = False) -> dict[str, Any]:
    """Time one search; `where` are the backend and the workers."""
    started = time.perf_counter()
    graph = skeleton(values, case.alpha, method="distributed", max_level=case.max_level, transpose=False, **where)
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
    own = {name: value for name, value in dataclasses.asdict(case).items() if name != "again"}
    recorded = [each for each in _recorded() if own.items() <= each["problem"].items()]
    if recorded:
        names = [name for name in ("edges_sha256", "sets_sha256", "spot_sha256") if name in recorded[0]]
        run["as_recorded"] = all(recorded[0][name] == run[name] for name in names)
    return run


def table() -> str:
    """Return the table of the recorded searches."""
    rows = []
    for case in sorted(_recorded(), key=lambda case: (case["problem"]["p"], -case["total_s"])):
        problem, level_s, machine = case["problem"], case["level_s"], case["environment"]
        gpus = f"{case['report'].get('workers', 1)} {machine['device']['device'].split()[1]}"
        row = [f"{problem['p']:,} x {problem['n']:,}", f"{problem['alpha']:g}", gpus, str(machine.get("cores", ""))]
        row += [f"{case['total_s']:.1f}", f"{level_s[0]:.1f}", f"{level_s[1]:.1f}"]
        row += [f"{sum(level_s[2:]):.1f} ({len(level_s) - 2})" if len(level_s) > 2 else ""]
        rows.append([*row, f"{case['peak_rss_bytes'] / 1e9:.0f}"])
    header = ["p x n", "alpha", "GPUs", "cores", "whole", "level 0", "level 1", "later (levels)", "host GB"]
    return markdown(header, rows, range(1, len(header)))


def _recorded() -> list[dict[str, Any]]:
    return [case for path in sorted(RECORDED.glob("*.json")) for case in read_json(path)["cases"].values()]


def _spot(graph: Any) -> str:
    """Return a digest of the neighbours and of the sets of a few variables."""
    digest, p = hashlib.sha256(), len(graph.names)
    for i in np.linspace(0, p - 1, 5).astype(int).tolist():
        own = graph.edges[(graph.edges == i).any(axis=1)]
        digest.update(np.sort(own.sum(axis=1) - i).tobytes())
        digest.update(repr([graph.sepsets.get((i, j)) for j in range(i + 1, min(i + 200, p))]).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
