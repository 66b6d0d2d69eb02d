"""Counts how many rows of each Gaussian data set share conditioning sets in level 2."""

import sys

from gpupc_impl.core.files import read_csv, write_csv
from gpupc_impl.reporting import sharing

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, rows, verification = snakemake.params, [], read_csv(snakemake.input[0])
for name, kind in params.kinds.items():
    records = [f"results/records/{name}/{setting}.json" for setting in params.settings]
    rows += sharing.count_sharing(records, [row for row in verification if row["dataset"] == name], kind)
write_csv(snakemake.output[0], rows, sharing.COLUMNS)
