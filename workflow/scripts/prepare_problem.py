"""A data set into the problem that all methods are given, and its facts; an empty file when there is no problem."""

import json
import sys

import numpy as np

from workflow.scripts.problems import write_problem

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

with np.load(snakemake.input[0]) as stored:
    write_problem(
        snakemake.params.family,
        {"name": snakemake.wildcards.dataset, **json.loads(str(stored["facts"]))},
        snakemake.params.parameters,
        stored.get("values"),
        tuple(map(str, stored.get("names", ()))),
        str(stored["why"]) if "why" in stored else None,
        snakemake.output.problem,
        snakemake.output.facts,
        json.loads(str(stored["labels"])) if "labels" in stored else None,
        stored.get("true_dag"),
    )
