"""Compiles the kernels and references that the measurements of one family need."""

import sys
from pathlib import Path

from workflow.lib.ahead import compile_ahead
from workflow.lib.jobs import end_with_parent, own_cores
from workflow.lib.plan import Plan

end_with_parent()
config = snakemake.config
searches = Plan(config).searches(snakemake.wildcards.family)
# Measurements wait for these kernels. At the beginning a GPU's cores are free, while the others prepare all problems.
with open(snakemake.log[0], "w", buffering=1) as log, own_cores(snakemake.resources.slots):
    if left := compile_ahead(searches, config["backend"], config["timing"]["compile_limit_s"], log):
        for stream in (sys.stderr, log):
            print(left, file=stream, flush=True)
Path(snakemake.output[0]).touch()
