"""Measures settings side by side, on one data set after another; each setting leaves a record."""

import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.measurement.bench import Bench
from workflow.lib.jobs import end_with_parent, own_cores
from workflow.lib.searches import measure_dataset, outcome_of

end_with_parent()

params, resources = snakemake.params, snakemake.resources
outcomes = {}

with (
    open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log,
    own_cores(resources.slots, resources.references),
):
    bench = Bench(params.backend, min(snakemake.threads, available_cores()), log, resources.attempt)
    with bench.open():
        for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
            facts = read_json(path)

            def report(event: object, dataset: str = facts["name"]) -> None:
                """Show progress on the terminal and in the log."""
                for stream in (sys.stderr, log):
                    print(f"{dataset}: {event}", file=stream, flush=True)

            records = measure_dataset(
                problem,
                facts,
                params.settings,
                params.timing,
                params.limits,
                bench,
                out_dir=Path("results/records") / facts["name"],
                store=Path(params.store),
                progress=report,
            )
            outcomes[facts["name"]] = {name: outcome_of(record) for name, record in records.items()}

save_json(outcomes, Path(snakemake.output[0]))
