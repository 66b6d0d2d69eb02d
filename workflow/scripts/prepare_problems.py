"""Writes the problems that all methods receive, and their facts; the file is empty if there is no problem."""

import sys
from pathlib import Path

from workflow.lib.orphans import end_with_parent
from workflow.lib.problems import write_problem
from workflow.lib.sources import get, read

end_with_parent()

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out = snakemake.params, snakemake.output
if params.get("graphs"):  # The data of graphs are not kept.
    sources = ((name, get(name, entry, **params.where)) for name, entry in params.graphs.items())
else:
    sources = [(snakemake.wildcards.dataset, read(snakemake.input[0]))]
for (name, data), parameters, problem, facts in zip(sources, params.parameters, out.problems, out.facts, strict=True):
    write_problem(name, data, parameters, problem, facts)
for matrix in out.get("matrices", []):  # The file is empty if the problem contains its matrix.
    Path(matrix).touch()
