"""The p-values of single tests, compared."""

import csv
import json
import sys
from pathlib import Path

from gpupc_impl.measurement.single_tests import verify_tests

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = []
for path in snakemake.input:
    timed = json.loads(Path(path).read_text(encoding="utf-8"))
    rows += [{"table": Path(path).stem, **row} for row in verify_tests(timed["cells"])]
with open(snakemake.output[0], "w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
