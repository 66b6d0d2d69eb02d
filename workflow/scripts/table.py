"""The table that is named as the rule, from records and, where there are any, the paper's own numbers."""

import sys

from gpupc_impl.reporting import measured, tables

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

found = measured.load(snakemake.input.records, snakemake.input.verification)
reported = [measured.read_csv(snakemake.input.reported)] if snakemake.input.get("reported") else []
table = getattr(tables, snakemake.rule)(found, *reported)
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
