"""The table or figure that is named as the rule."""

import sys

from gpupc_impl.reporting.catalogue import entries

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

entries()[snakemake.rule].write(snakemake.input, snakemake.params.given, snakemake.output)
