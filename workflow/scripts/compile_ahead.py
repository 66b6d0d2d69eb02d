"""Compiles the kernels and references that the measurements of one family need."""

import os
import sys
from pathlib import Path

from workflow.lib.ahead import compile_ahead
from workflow.lib.jobs import end_with_parent, own_cores
from workflow.lib.plan import Plan

end_with_parent()

terminal = os.fdopen(os.dup(2), "w")
log = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115
for stream in (1, 2):  # Compilers write there as well.
    os.dup2(log.fileno(), stream)


def give_up(sentence):
    """Show on the terminal and in the log what was not compiled in time; it is left to the measurements."""
    for out in (terminal, sys.stdout):
        print(sentence, file=out, flush=True)
    Path(snakemake.output[0]).touch()


config = snakemake.config
searches = Plan(config).searches(snakemake.wildcards.family)
# Measurements wait for these kernels. At the beginning a GPU's cores are free, while the others prepare all problems.
with own_cores(snakemake.resources.slots):
    compile_ahead(searches, config["backend"], config["timing"]["compile_limit_s"], give_up)
Path(snakemake.output[0]).touch()
