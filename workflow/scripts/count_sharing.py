"""Counts how many rows of one data set share conditioning sets in level 2."""

import sys

from gpupc_impl.core.files import read_csv, write_csv
from gpupc_impl.reporting import sharing

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = sharing.count_sharing(snakemake.input.records, read_csv(snakemake.input.verification), snakemake.params.kind)
write_csv(snakemake.output[0], rows, sharing.COLUMNS)
