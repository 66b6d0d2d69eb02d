"""The figure or table of the Out-of-Core paper that is named as the rule, from records and the paper's own numbers."""

import sys

from gpupc_impl.reporting import experiments, out_of_core
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
sweeps = [snakemake.params.sweeps] if snakemake.params.get("sweeps") else []
made = getattr(out_of_core, snakemake.rule)(runs, read_csv(snakemake.input.reported), *sweeps)
made.write(*snakemake.output)
