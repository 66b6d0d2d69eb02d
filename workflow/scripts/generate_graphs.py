"""The graphs of an experiment, from their seeds to the problems that all methods are given."""

import sys

import datasets
from workflow.scripts.problems import write_problem

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out, registered = snakemake.params, snakemake.output, datasets.names()
graphs = zip(params.entries.items(), params.parameters, out.problems, out.facts, strict=True)
for (name, entry), parameters, problem, facts in graphs:
    values = names = labels = true_dag = why = None
    try:
        data = datasets.load(name, spec=None if name in registered else entry, **params.where)
        values, names, labels, true_dag, entry = data.values, data.names, data.labels, data.true_dag, data.facts
    except (datasets.DatasetUnavailable, datasets.DataError) as error:
        # One graph that cannot be had must not cost the others their results: figures show that it is missing.
        print(error)
        why = str(error)
    found = {"name": name, **entry}
    write_problem(params.family, found, parameters, values, names, why, problem, facts, labels, true_dag)
