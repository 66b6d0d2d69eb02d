"""GPU-CMIknn's Table 5 or 10, named as the rule: whole searches, from records and the paper's own numbers."""

import sys

from gpupc_impl.reporting import cmiknn, experiments
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
table = getattr(cmiknn, snakemake.rule)(runs, read_csv(snakemake.input.reported))
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
