"""Compiles what the measurements of this run need before the first of them."""

import os
from pathlib import Path

from workflow.lib.ahead import compile_ahead
from workflow.lib.core_sets import all_cores
from workflow.lib.orphans import end_with_parent

end_with_parent()

log = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115
for stream in (1, 2):  # The processes that compile write there as well.
    os.dup2(log.fileno(), stream)

if cores := all_cores():  # Nothing is measured yet.
    os.sched_setaffinity(0, cores)
compile_ahead(Path(snakemake.params.searches), snakemake.params.backend)
Path(snakemake.output[0]).touch()
