"""Single CI tests of one table, timed: every implementation on every combination of the table's values."""

import sys
import tempfile
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.record import Limits, save_tests
from gpupc_impl.measurement.sampler import Bench, Setting
from gpupc_impl.measurement.single_tests import measure_tests
from workflow.lib.single_tests import table_cases

params = snakemake.params

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, tempfile.TemporaryDirectory() as folder:

    def tell(line: str) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    groups, sources = table_cases(params.table, params.spec, params.tests, params.parameters, Path(folder))
    memory_mb = params.limits["memory_mb"]
    limits = Limits(params.time_limit_s, None if memory_mb is None else int(memory_mb * 1_000_000))
    timed = measure_tests(
        groups,
        [
            Setting(name, choice.get("method", name), choice.get("params", {}), limits=limits)
            for name, choice in params.implementations.items()
        ],
        Bench(params.backend, min(snakemake.threads, available_cores()), log),
        store=Path(params.store),
        progress=tell,
    )
    save_tests(timed | {"source": sources}, snakemake.output[0])
