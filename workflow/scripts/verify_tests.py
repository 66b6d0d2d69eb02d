"""The p-values of single tests, compared."""

import sys
from pathlib import Path

from gpupc_impl.core.files import write_csv
from gpupc_impl.measurement.record import load_tests
from gpupc_impl.verification.single_tests import verify_tests

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = [
    {"table": Path(path).stem, **row} for path in snakemake.input for row in verify_tests(load_tests(path)["cells"])
]
write_csv(snakemake.output[0], rows)
