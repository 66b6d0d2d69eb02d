"""gpuPC's Table 2: its speedup over disc-cuPC in five dimensions."""

import sys

from gpupc_impl.reporting import experiments, gpupc
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
table = gpupc.gpupc_table2(runs, read_csv(snakemake.input.reported), snakemake.params.sweeps)
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
