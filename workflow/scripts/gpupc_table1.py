"""gpuPC's Table 1: the data sets."""

import sys

from gpupc_impl.reporting import gpupc
from gpupc_impl.reporting.measured import read_csv, read_json

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

table = gpupc.gpupc_table1(read_json(snakemake.input.problems), read_csv(snakemake.input.reported))
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
