"""cuPC's Fig. 9: conditional sets shared by rows."""

import sys

from gpupc_impl.reporting import sharing, style
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

lines, reported = read_csv(snakemake.input.sharing), read_csv(snakemake.input.reported)
style.save(sharing.cupc_fig9(lines, reported), *snakemake.output)
