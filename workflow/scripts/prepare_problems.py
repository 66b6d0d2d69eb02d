"""Data sets into the problems that all methods are given, and their facts; an empty file where there is no problem."""

import sys

from workflow.lib.problems import write_problem
from workflow.lib.sources import get, read

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out = snakemake.params, snakemake.output
if params.get("graphs"):  # made here: many and small, they are not kept
    sources = (get(name, entry, **params.where) for name, entry in params.graphs.items())
else:
    sources = [read(snakemake.wildcards.dataset, snakemake.input[0])]
for source, parameters, problem, facts in zip(sources, params.parameters, out.problems, out.facts, strict=True):
    write_problem(source, params.family, parameters, problem, facts)
