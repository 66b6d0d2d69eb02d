"""The skeletons of one data set, compared and certified."""

import csv
import sys

from gpupc_impl.core.verify import verify_files

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = verify_files(snakemake.input.problem, snakemake.input.records)
with open(snakemake.output[0], "w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
