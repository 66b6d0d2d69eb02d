"""All records as one CSV: a row for each data set and setting, a column for each fact."""

import sys

from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.records import to_frame

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

to_frame(map(read_json, snakemake.input)).to_csv(snakemake.output[0], index=False, lineterminator="\n")
