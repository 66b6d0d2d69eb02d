"""Writes a file with a data set, or with the reason why it is not available."""

import sys

from workflow.lib.problems import get

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

get(snakemake.wildcards.dataset, snakemake.params.entry, **snakemake.params.where).save(snakemake.output[0])
