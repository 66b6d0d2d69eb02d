"""Compiles the kernels or the references that the measurements of this run need."""

import os
from pathlib import Path

from workflow.lib.ahead import KERNELS, compile_ahead
from workflow.lib.core_sets import all_cores
from workflow.lib.orphans import end_with_parent

end_with_parent()

log = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115
for stream in (1, 2):  # The processes that compile write there as well.
    os.dup2(log.fileno(), stream)

part = snakemake.wildcards.part
if (cores := all_cores()) and part == KERNELS:  # Nothing is measured before the kernels are there.
    os.sched_setaffinity(0, cores)
compile_ahead(Path(snakemake.params.searches), snakemake.params.backend, part)
Path(snakemake.output[0]).touch()
