"""A data set into the problem that all methods are given, and its facts; an empty file when there is no problem."""

import sys

import datasets
from workflow.scripts.problems import write_problem

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

try:
    data = datasets.Dataset.load(snakemake.input[0])
except datasets.DatasetUnavailable as error:
    data = error
out = snakemake.output
write_problem(snakemake.wildcards.dataset, data, snakemake.params.parameters, out.problem, out.facts)
