"""Writes all records, and all rows of the verification, as one CSV each."""

import sys

from gpupc_impl.core.files import read_csv, write_csv
from gpupc_impl.measurement.record import Record, to_frame

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

write_csv(snakemake.output.verification, [row for path in snakemake.input.verification for row in read_csv(path)])
frame = to_frame([Record.load(path) for path in snakemake.params.records])
write_csv(snakemake.output.records, frame.astype(object).where(frame.notna(), None).to_dict("records"), frame.columns)
