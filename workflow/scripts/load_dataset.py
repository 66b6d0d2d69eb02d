"""A data set into one file: its values, or the reason why it cannot be had."""

import sys

from workflow.lib.sources import get, save

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

save(get(snakemake.wildcards.dataset, snakemake.params.entry, **snakemake.params.where), snakemake.output[0])
