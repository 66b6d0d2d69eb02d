"""Single CI tests of one table, timed: every implementation on every combination of the table's values."""

import sys
import tempfile
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import save_json
from gpupc_impl.measurement.single_tests import Implementation, measure_tests
from workflow.lib.single_tests import table_cases

params = snakemake.params

with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, tempfile.TemporaryDirectory() as folder:

    def tell(line: str) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    groups, source = table_cases(params.table, params.spec, params.tests, params.parameters, Path(folder))
    memory_mb = params.limits["memory_mb"]
    timed = measure_tests(
        groups,
        [
            Implementation(name, choice.get("method", name), choice.get("params", {}))
            for name, choice in params.implementations.items()
        ],
        backend=params.backend,
        time_limit_s=params.time_limit_s,
        store=params.store,
        memory_limit_bytes=None if memory_mb is None else int(memory_mb * 1_000_000),
        threads=min(snakemake.threads, available_cores()),
        log=log,
        progress=tell,
    )
    save_json(timed | {"source": source}, Path(snakemake.output[0]))
