"""Writes all records as one CSV: a row for each data set and setting, a column for each fact."""

import sys

from gpupc_impl.core.files import write_csv
from gpupc_impl.measurement.record import load_records, to_frame

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

frame = to_frame(load_records(snakemake.input))
write_csv(snakemake.output[0], frame.astype(object).where(frame.notna(), None).to_dict("records"), frame.columns)
