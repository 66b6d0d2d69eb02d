"""A data set into the problem that all methods are given, and its facts; an empty file when there is no problem."""

import json
import sys
from pathlib import Path

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, problem_class

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

parameters = dict(snakemake.params.parameters)
with np.load(snakemake.input[0]) as stored:
    facts = {"name": snakemake.wildcards.dataset, **parameters, **json.loads(str(stored["facts"]))}
    problem, why = None, str(stored["why"]) if "why" in stored else None
    if why is None:
        try:
            names = tuple(map(str, stored["names"]))
            problem = problem_class(snakemake.params.family).from_data(stored["values"], names=names, **parameters)
        except InvalidProblem as error:
            why = f"data set {facts['name']!r} cannot be used: {error}"
if problem is None:
    Path(snakemake.output.problem).touch()
else:
    problem.save(snakemake.output.problem)
    facts |= problem.facts()
facts |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
Path(snakemake.output.facts).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
