"""The figure that is named as the rule, from records and, where there are any, the paper's own numbers."""

import sys

from gpupc_impl.reporting import figures, measured, style

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

found = measured.load(snakemake.input.records, snakemake.input.verification)
reported = [measured.read_csv(snakemake.input.reported)] if snakemake.input.get("reported") else []
style.save(getattr(figures, snakemake.rule)(found, *reported), *snakemake.output)
