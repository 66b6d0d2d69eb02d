"""The claims of cuPC's section 5 beside our records."""

import sys

from gpupc_impl.reporting import claims
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = claims.load(snakemake.input.records, snakemake.input.verification)
table = claims.cupc_claims(runs, read_csv(snakemake.input.sharing), read_csv(snakemake.input.reported))
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
