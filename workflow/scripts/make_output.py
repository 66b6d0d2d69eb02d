"""Makes the table or figure whose name is the rule's."""

import sys

from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.sources import Source

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

entries()[snakemake.rule].write([Source(**facts) for facts in snakemake.params.sources], snakemake.output)
