"""Writes the problem that all methods receive, and its facts; the file is empty if there is no problem."""

import sys
from pathlib import Path

from workflow.lib.jobs import end_with_parent
from workflow.lib.problems import get, read, write_problem

end_with_parent()
sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

name, params, out = snakemake.wildcards.dataset, snakemake.params, snakemake.output
data = read(snakemake.input[0]) if snakemake.input else get(name, params.entry, offline=True)
write_problem(name, data, params.parameters, out.problem, out.facts)
if matrix := out.get("matrix"):
    Path(matrix).touch()  # The file is empty if the problem contains its matrix.
