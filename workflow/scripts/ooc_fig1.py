"""Out-of-Core's Fig. 1, from a recorded run."""

import sys

from gpupc_impl.reporting import out_of_core
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

out_of_core.ooc_fig1(read_csv(snakemake.input[0]), snakemake.params.title).write(*snakemake.output)
