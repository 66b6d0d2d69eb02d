"""Writing a problem, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datasets.dataset import Dataset, DatasetUnavailable
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import save_json
from gpupc_impl.core.problem import InvalidProblem

TRUE_EDGES = 5000
"""Facts list the edges of a true graph up to this many."""


def write_problem(
    name: str,
    data: Dataset | DatasetUnavailable,
    parameters: Mapping[str, Any],
    problem_path: str,
    facts_path: str,
) -> None:
    """The problem that all methods are given, and its facts; an empty file when there is no problem.

    Where the true graph is known, the facts have ``true_edges``, pairs [i, j] for i -> j, unless there are more than
    `TRUE_EDGES`.

    Args:
        data: the data set, or why there is none.
        parameters: what beside the data makes the problem.
    """
    problem, found = None, {**parameters, "name": name, **data.facts}
    if isinstance(data, DatasetUnavailable):
        why = str(data)
    else:
        labels = {} if data.labels is None else {"categories": dict(zip(data.names, data.labels, strict=True))}
        made = {"names": data.names, **parameters, **labels}
        try:
            problem = get_family(data.family).prepare(data.values, Path(problem_path), progress=_tell, **made)
            why = None
        except InvalidProblem as error:
            why = f"data set {name!r} cannot be used: {error}"
        if data.true_dag is not None and data.true_dag.sum() <= TRUE_EDGES:
            found["true_edges"] = np.argwhere(data.true_dag).tolist()
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        found |= problem.facts()
    found |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
    save_json(found, Path(facts_path))


def makers(entries: Iterable[Mapping[str, Any]], family: str | None) -> list[str]:
    """The modules that make data sets and problems of them: generators of the entries, and how the family prepares."""
    generators = {f"datasets.{entry['generator'].partition('.')[0]}" for entry in entries if "generator" in entry}
    prepares = [get_family(family).problem, get_family(family).prepare_large] if family else []
    return sorted(generators | {maker.__module__ for maker in prepares})


def _tell(done: int, total: int) -> None:
    if done % max(1, total // 20) == 0:
        print(f"correlations: {done} of {total} tiles", flush=True)
