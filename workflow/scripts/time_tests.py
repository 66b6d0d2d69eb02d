"""Times the single CI tests of all tables: every implementation on every combination of a table's values."""

import tempfile
from pathlib import Path

from gpupc_impl.measurement.record import save_tests
from gpupc_impl.measurement.single_tests import measure_tests
from workflow.lib.measuring import measuring
from workflow.lib.searches import setting_of
from workflow.lib.single_tests import table_cases

params, tests, store = snakemake.params, snakemake.params.tests, Path(snakemake.params.store)
limits = params.limits | {"device_memory_mb": None}
settings = [setting_of(name, choice, tests, limits) for name, choice in tests["implementations"].items()]

with measuring(snakemake) as (bench, show):
    for table, path in zip(tests["tables"].values(), snakemake.output, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            groups, sources = table_cases(table, tests, params.parameters, Path(folder))
            timed = measure_tests(groups, settings, bench, store=store, progress=show)
        save_tests(timed | {"source": sources}, path)
