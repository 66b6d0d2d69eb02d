"""Times the single CI tests of all tables: every implementation on every combination of a table's values."""

import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.bench import Bench
from gpupc_impl.measurement.record import save_tests
from workflow.lib.jobs import end_with_parent, own_cores
from workflow.lib.single_tests import time_table

end_with_parent()

params, resources = snakemake.params, snakemake.resources

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, own_cores(resources.slots):

    def report(line: str) -> None:
        """Show progress on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    bench = Bench(params.backend, min(snakemake.threads, available_cores()), log, resources.attempt)
    with bench.open():
        for table, path in zip(params.tests["tables"].values(), snakemake.output, strict=True):
            timed = time_table(
                table, params.tests, params.parameters, params.limits, bench, store=Path(params.store), progress=report
            )
            save_tests(timed, path)
