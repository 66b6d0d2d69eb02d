"""From a data set to the problem that all methods are given, or to the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from workflow.lib.sources import Source

TRUE_EDGES = 5000
"""Facts list the edges of a true graph up to this many."""


def write_problem(
    source: Source, family: str, parameters: Mapping[str, Any], problem_path: str | Path, facts_path: str | Path
) -> None:
    """Write the problem and its facts; an empty file where there is no problem.

    The facts are the data set's and the problem's; ``available``, and ``why`` not; and ``true_edges``, pairs [i, j] for
    i -> j, where the true graph is known and has at most `TRUE_EDGES`.

    Args:
        parameters: what beside the data makes the problem.
    """
    problem, why, content = None, source.why, source.content
    if why is None:
        try:
            names = tuple(map(str, content["names"]))
            labels = json.loads(str(content["labels"])) if "labels" in content else None
            declared = {} if labels is None else {"categories": dict(zip(names, labels, strict=True))}
            own = {"names": names, "progress": _tell, **parameters, **declared}
            problem = get_family(family).prepare(content["values"], Path(problem_path), **own)
        except InvalidProblem as error:
            why = f"data set {source.name!r} cannot be used: {error}"
    facts = {**parameters, "name": source.name, **source.facts}
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        facts |= problem.facts()
    true_dag = content.get("true_dag")
    if true_dag is not None and true_dag.sum() <= TRUE_EDGES:
        facts["true_edges"] = np.argwhere(true_dag).tolist()
    facts |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
    Path(facts_path).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _tell(done: int, total: int) -> None:
    if done % max(1, total // 20) == 0:
        print(f"correlations: {done} of {total} tiles", flush=True)
