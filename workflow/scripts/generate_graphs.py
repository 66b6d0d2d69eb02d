"""The graphs of an experiment, from their seeds to the problems that all methods are given."""

import sys

import datasets
from workflow.scripts.problems import write_problem

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out, registered = snakemake.params, snakemake.output, datasets.names()
graphs = zip(params.entries.items(), params.parameters, out.problems, out.facts, strict=True)
for (name, entry), parameters, problem, facts in graphs:
    try:
        data = datasets.load(name, spec=None if name in registered else entry, **params.where)
    except (datasets.DatasetUnavailable, datasets.DataError) as error:
        # One graph that cannot be had must not cost the others their results: figures show that it is missing.
        print(error)
        data = datasets.DatasetUnavailable(str(error), entry)
    write_problem(name, data, parameters, problem, facts)
