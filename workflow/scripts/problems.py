"""Writing a problem, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, problem_class


def write_problem(
    family: str,
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    values: np.ndarray | None,
    names: Sequence[str] | None,
    why: str | None,
    problem_path: str,
    facts_path: str,
) -> None:
    """The problem that all methods are given, and its facts; an empty file when there is no problem.

    Args:
        facts: of the data set, its name included.
        parameters: what beside the data makes the problem.
        values: samples by variables; None when the data set cannot be had, and then ``why`` says the reason.
    """
    problem = None
    if why is None:
        try:
            problem = problem_class(family).from_data(values, names=names, **parameters)
        except InvalidProblem as error:
            why = f"data set {facts['name']!r} cannot be used: {error}"
    found = {**parameters, **facts}
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        found |= problem.facts()
    found |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
    Path(facts_path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
