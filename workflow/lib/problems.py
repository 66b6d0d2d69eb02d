"""From a data set to the problem that all methods are given, or to the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import datasets
from gpupc_impl.core.problem import InvalidProblem, Problem, problem_class
from gpupc_impl.gaussian.large import LARGE, problem_from_data

TRUE_EDGES = 5000
"""Facts list the edges of a true graph up to this many."""


class Source(NamedTuple):
    """A data set, or why it cannot be had: one that is missing must not cost the others their results, so tables and
    figures show the reason.

    Attributes:
        content: its arrays by name: values, names, labels (as JSON) and true_dag as far as it has them; or none.
        why: the reason as a sentence, where there are none.
    """

    name: str
    facts: Mapping[str, Any]
    content: Mapping[str, np.ndarray]
    why: str | None = None


def get(name: str, entry: Mapping[str, Any], **where: Any) -> Source:
    """Fetch or generate a data set.

    Args:
        entry: its entry in the registry, or one declared in the config.
        where: see `datasets.load`.
    """
    try:
        data = datasets.load(name, spec=None if name in datasets.names() else entry, **where)
    except (datasets.DatasetUnavailable, datasets.DataError) as error:
        print(error)
        return Source(name, entry, {}, str(error))
    content = {"values": data.values, "names": np.array(data.names)}
    if data.true_dag is not None:
        content["true_dag"] = data.true_dag
    if data.labels is not None:
        content["labels"] = np.array(json.dumps(data.labels))
    return Source(name, data.facts, content)


def save(source: Source, path: str | Path) -> None:
    why = {} if source.why is None else {"why": source.why}
    np.savez(path, facts=json.dumps(source.facts), **source.content, **why)


def read(name: str, path: str | Path) -> Source:
    """What `save` wrote."""
    with np.load(path) as stored:
        content = dict(stored)
    why = content.pop("why", None)
    return Source(name, json.loads(str(content.pop("facts"))), content, why and str(why))


def write_problem(
    source: Source, family: str, parameters: Mapping[str, Any], problem_path: str | Path, facts_path: str | Path
) -> None:
    """Write the problem and its facts; an empty file where there is no problem.

    The facts are the data set's and the problem's; ``available``, and ``why`` not; and ``true_edges``, pairs [i, j] for
    i -> j, where the true graph is known and has at most `TRUE_EDGES`.

    Args:
        parameters: what beside the data makes the problem.
    """
    problem, why = None, source.why
    if why is None:
        try:
            problem = _problem(source.content, family, parameters, Path(problem_path).with_suffix(".npy"))
        except InvalidProblem as error:
            why = f"data set {source.name!r} cannot be used: {error}"
    facts = {**parameters, "name": source.name, **source.facts}
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        facts |= problem.facts()
    true_dag = source.content.get("true_dag")
    if true_dag is not None and true_dag.sum() <= TRUE_EDGES:
        facts["true_edges"] = np.argwhere(true_dag).tolist()
    facts |= {"available": problem is not None, "why": why, "problem": problem and problem.facts()}
    Path(facts_path).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _problem(
    content: Mapping[str, np.ndarray], family: str, parameters: Mapping[str, Any], matrix_path: Path
) -> Problem:
    """The problem; a large correlation matrix goes into a file of its own, of which no process needs a copy."""
    values, names = content["values"], tuple(map(str, content["names"]))
    if family == "gaussian" and values.shape[1] > LARGE:
        return problem_from_data(values, matrix_path, names=names, progress=_tell, **parameters)
    if "labels" in content:
        parameters = parameters | {"categories": dict(zip(names, json.loads(str(content["labels"])), strict=True))}
    return problem_class(family).from_data(values, names=names, **parameters)


def _tell(done: int, total: int) -> None:
    if done % max(1, total // 20) == 0:
        print(f"correlations: {done} of {total} tiles", flush=True)
