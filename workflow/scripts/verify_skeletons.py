"""The skeletons of data sets, compared and certified."""

import csv
import sys
from pathlib import Path

from gpupc_impl.verification.verify import verify_files

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = []
for problem in snakemake.input.problems:
    records = [path for path in snakemake.input.records if Path(path).parent.name == Path(problem).stem]
    rows += verify_files(problem, records)
with open(snakemake.output[0], "w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
