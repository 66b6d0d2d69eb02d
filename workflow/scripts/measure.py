"""Settings measured side by side, on one data set after another; every one of them leaves a record."""

import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.bench import Bench
from workflow.lib.orphans import end_with_parent
from workflow.lib.searches import measure_dataset

end_with_parent()

params = snakemake.params

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log:
    threads = min(snakemake.threads, available_cores())
    bench = Bench(params.backend, threads, log, snakemake.resources.attempt)
    for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
        facts = read_json(path)

        def tell(event: object, dataset: str = facts["name"]) -> None:
            """Progress, on the terminal and in the log."""
            for stream in (sys.stderr, log):
                print(f"{dataset}: {event}", file=stream, flush=True)

        measure_dataset(
            problem,
            facts,
            params.settings,
            params.timing,
            params.limits,
            bench,
            out_dir=Path("results/records") / facts["name"],
            store=Path(params.store),
            progress=tell,
        )
