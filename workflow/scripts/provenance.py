"""What machine, software and code the records were made with."""

import sys

from gpupc_impl.reporting import tables
from gpupc_impl.reporting.measured import read_json

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

table = tables.provenance(read_json(snakemake.input.records))
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
