"""Writing a problem, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem

TRUE_EDGES = 5000
"""Facts list the edges of a true graph up to this many."""


def write_problem(
    family: str,
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    values: np.ndarray | None,
    names: Sequence[str] | None,
    why: str | None,
    problem_path: str,
    facts_path: str,
    labels: Sequence[Sequence[str]] | None = None,
    true_dag: np.ndarray | None = None,
) -> None:
    """The problem that all methods are given, and its facts; an empty file when there is no problem.

    Args:
        facts: of the data set, its name included.
        parameters: what beside the data makes the problem.
        values: samples by variables; None when the data set cannot be had, and then ``why`` says the reason.
        labels: discrete data: of each variable, the labels of its codes, where the source declares them.
        true_dag: (variables, variables) bool, [i, j] for i -> j, where it is known; the facts then have
            ``true_edges``, pairs [i, j], unless there are more than `TRUE_EDGES`.
    """
    problem = None
    declared = {} if labels is None else {"categories": dict(zip(names, labels, strict=True))}
    if why is None:
        try:
            problem = get_family(family).prepare(
                values, Path(problem_path), names=names, progress=_tell, **parameters, **declared
            )
        except InvalidProblem as error:
            why = f"data set {facts['name']!r} cannot be used: {error}"
    found = {**parameters, **facts}
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        found |= problem.facts()
    if true_dag is not None and true_dag.sum() <= TRUE_EDGES:
        found["true_edges"] = np.argwhere(true_dag).tolist()
    found |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
    Path(facts_path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _tell(done: int, total: int) -> None:
    if done % max(1, total // 20) == 0:
        print(f"correlations: {done} of {total} tiles", flush=True)
