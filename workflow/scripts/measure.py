"""Measures settings side by side, on one data set after another; each setting leaves a record."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.bench import Bench
from workflow.lib.core_sets import measure_parts
from workflow.lib.deadline import TimeLeft
from workflow.lib.gpu_slots import own_gpu
from workflow.lib.orphans import end_with_parent
from workflow.lib.searches import measure_dataset

end_with_parent()

params, resources, time_left = snakemake.params, snakemake.resources, TimeLeft.of_workflow()

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, own_gpu(resources.slots):

    def bench_of(threads: int | None) -> Bench:
        own = min(snakemake.threads, available_cores()) if threads is None else threads
        return Bench(params.backend, own, log, resources.attempt)

    def measure(settings: Mapping[str, Any], bench: Bench) -> None:
        """Measure settings on all data sets of this job."""
        for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
            facts = read_json(path)

            def report(event: object, dataset: str = facts["name"]) -> None:
                """Show progress on the terminal and in the log."""
                for stream in (sys.stderr, log):
                    print(f"{dataset}: {event}", file=stream, flush=True)

            for group in time_left.groups(params.target, facts["name"], settings):
                measure_dataset(
                    problem,
                    facts,
                    group,
                    params.timing,
                    params.limits,
                    bench,
                    out_dir=Path("results/records") / facts["name"],
                    store=Path(params.store),
                    progress=report,
                )

    measure_parts(Path(snakemake.log[0]).stem, params.settings, bench_of, measure)

time_left.end_job(snakemake.log[0])
