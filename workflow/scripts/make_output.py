"""Makes a table or a figure."""

import sys

from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.runs import Source

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

entry = entries()[snakemake.wildcards.name]
entry.write([Source(**facts) for facts in snakemake.params.sources], entry.outputs())
