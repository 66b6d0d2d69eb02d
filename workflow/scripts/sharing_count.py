"""How many rows share the conditional sets of one data set in level 2."""

import csv
import sys

from gpupc_impl.reporting import sharing
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = sharing.count_sharing(snakemake.input.records, read_csv(snakemake.input.verification), snakemake.params.kind)
with open(snakemake.output[0], "w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, sharing.COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
