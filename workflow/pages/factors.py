"""Measures how many times longer an R package takes than our serial reference on one core.

    python -m workflow.pages.factors pcalg nci-60 mcc
    python -m workflow.pages.factors bnlearn alarm-200000

The lines are kept in results/recorded/cpu_factors.csv, and claims over the package are chained by these factors
(`gpupc_impl.reporting.chains`). CPU times are compared, so that other work on the machine matters little. A line
replaces that of the same package and data set.
"""

import argparse
import datetime
import time
from pathlib import Path
from typing import Any

import datasets
from gpupc_impl.api import skeleton
from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.backends.machine import cpu_name
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import read_csv, write_csv
from workflow.lib.config import complete, read_config
from workflow.lib.plan import ROOT, Plan

FACTORS = ROOT / "results/recorded/cpu_factors.csv"
REFERENCES = {"pcalg": "stable-serial", "bnlearn": "discrete-serial"}
REPEATS = 3
"""The runs of the reference, of which the fastest counts; the package runs once."""


def measured(peer: str, dataset: str, plan: Plan) -> dict[str, Any]:
    """Return a line of the file: both CPU times on one core in seconds, and whether both found the same edges."""
    data = datasets.load(dataset, mirrors=plan.config["mirrors"])
    parameters = plan.problem_parameters(data.family, {})
    labels = {} if data.labels is None else {"categories": dict(zip(data.names, data.labels, strict=True))}
    problem = get_family(data.family).problem.from_data(data.values, names=data.names, **parameters, **labels)
    reference = REFERENCES[peer]
    ours = skeleton(problem, method=reference, backend="cpu")  # Numba compiles, or reads what it compiled before.
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        skeleton(problem, method=reference, backend="cpu")
        seconds.append(time.process_time() - start)
    theirs = skeleton(problem, method=peer, backend="cpu")
    return {
        **{"peer": peer, "reference": reference, "dataset": dataset, "alpha": problem.alpha},
        "peer_cpu_s": f"{theirs.facts['cpu_s']:.4g}",
        "reference_cpu_s": f"{min(seconds):.4g}",
        "edges": theirs.n_edges,
        "differing_edges": int((ours.adjacency != theirs.adjacency).sum()) // 2,
        **{"machine": cpu_name(), "day": datetime.datetime.now(datetime.UTC).date().isoformat()},
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.factors", description=__doc__.partition("\n")[0])
    parser.add_argument("peer", choices=REFERENCES)
    parser.add_argument("dataset", nargs="+")
    parser.add_argument(
        "--config", type=Path, default=ROOT / "config/gpu.yaml", help="the config with the tests' alphas"
    )
    parser.add_argument("--output", type=Path, default=FACTORS)
    options = parser.parse_args(argv)
    config = read_config(options.config)
    complete(config)
    plan = Plan(config)
    lines = {(row["peer"], row["dataset"]): row for row in read_csv(options.output)} if options.output.is_file() else {}
    for dataset in options.dataset:
        try:
            line = measured(options.peer, dataset, plan)
        except BackendUnavailable as error:
            parser.error(str(error))
        lines[options.peer, dataset] = line
        print(line, flush=True)
        write_csv(options.output, list(lines.values()))


if __name__ == "__main__":
    main()
