"""Writes all records as one CSV: a row for each data set and setting, a column for each fact."""

import sys

from gpupc_impl.measurement.record import load_records, to_frame

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

to_frame(load_records(snakemake.input)).to_csv(snakemake.output[0], index=False, lineterminator="\n")
