"""The p-values of single tests, compared."""

import csv
import sys
from pathlib import Path

from gpupc_impl.measurement.record import load_tests
from gpupc_impl.verification.single_tests import verify_tests

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = []
for path in snakemake.input:
    rows += [{"table": Path(path).stem, **row} for row in verify_tests(load_tests(path)["cells"])]
with open(snakemake.output[0], "w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
