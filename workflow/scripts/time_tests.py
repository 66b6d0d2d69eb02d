"""Times the single CI tests of all tables: every implementation on every combination of a table's values."""

from pathlib import Path

from gpupc_impl.measurement.record import save_tests
from workflow.lib.measuring import measuring
from workflow.lib.single_tests import time_table

params, store = snakemake.params, Path(snakemake.params.store)

with measuring(snakemake) as (bench, show):
    for table, path in zip(params.tests["tables"].values(), snakemake.output, strict=True):
        timed = time_table(table, params.tests, params.parameters, params.limits, bench, store=store, progress=show)
        save_tests(timed, path)
