"""Times the single CI tests of one table: every implementation on every combination of the table's values."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.bench import Bench
from gpupc_impl.measurement.record import save_tests
from workflow.lib.core_sets import measure_parts
from workflow.lib.deadline import TimeLeft
from workflow.lib.gpu_slots import own_gpu
from workflow.lib.orphans import end_with_parent
from workflow.lib.single_tests import joined, time_table

end_with_parent()

params, resources, time_left = snakemake.params, snakemake.resources, TimeLeft.of_workflow()
name = snakemake.wildcards.table

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, own_gpu(resources.slots):

    def report(line: str) -> None:
        """Show progress on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    def bench_of(threads: int | None) -> Bench:
        own = min(snakemake.threads, available_cores()) if threads is None else threads
        return Bench(params.backend, own, log, resources.attempt)

    def measure(implementations: Mapping[str, Any], bench: Bench) -> list[dict[str, Any]]:
        """Time implementations on all cases of the table."""
        shared = {"store": Path(params.store), "progress": report}
        return [
            time_table(params.table, params.tests, group, params.parameters, params.limits, bench, **shared)
            for group in time_left.groups(name, name, implementations)
        ]

    measured = measure_parts(name, params.implementations, bench_of, measure)
    parts = [part for group in measured for part in group]

if parts:
    save_tests(joined(parts, list(params.implementations)), snakemake.output[0])
time_left.end_job(snakemake.log[0])
