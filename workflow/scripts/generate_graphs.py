"""The graphs of an experiment, from their seeds to the problems that all methods are given."""

import sys

import datasets
from workflow.scripts.problems import write_problem

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out = snakemake.params, snakemake.output
for (name, entry), problem, facts in zip(params.entries.items(), out.problems, out.facts, strict=True):
    values = names = why = None
    try:
        data = datasets.load(name, spec=entry, offline=True)
        values, names, entry = data.values, data.names, data.facts
    except datasets.DataError as error:
        # One graph that cannot be drawn must not cost the others their results: figures show that it is missing.
        print(error)
        why = str(error)
    write_problem(params.family, {"name": name, **entry}, params.parameters, values, names, why, problem, facts)
