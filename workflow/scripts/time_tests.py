"""Single CI tests of one table, timed: every implementation on every combination of the table's values."""

import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.bench import Bench
from gpupc_impl.measurement.record import save_tests
from workflow.lib.orphans import end_with_parent
from workflow.lib.single_tests import time_table

end_with_parent()

params = snakemake.params

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log:

    def tell(line: str) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    threads = min(snakemake.threads, available_cores())
    bench = Bench(params.backend, threads, log, snakemake.resources.attempt)
    timed = time_table(
        params.table,
        params.tests,
        params.implementations,
        params.parameters,
        params.limits,
        bench,
        store=Path(params.store),
        progress=tell,
    )
    save_tests(timed, snakemake.output[0])
