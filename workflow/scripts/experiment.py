"""The figure that is named as the rule, with its numbers, from records and the paper's own numbers."""

import sys

from gpupc_impl.reporting import experiments
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
sweeps = [snakemake.params.sweeps] if snakemake.params.sweeps else []
drawing = getattr(experiments, snakemake.rule)(runs, read_csv(snakemake.input.reported), *sweeps)
drawing.write(*snakemake.output)
