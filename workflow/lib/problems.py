"""Gets data sets, and writes their problems. If a data set cannot be had, the reason takes its place, which tables and
figures show, and everything else is measured all the same."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from datasets import Dataset, DatasetUnavailable
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import save_json
from gpupc_impl.core.problem import InvalidProblem

TRUE_EDGES = 5000  # the upper bound on the edges of a true graph that facts list


def get(name: str, entry: Mapping[str, Any], **where: Any) -> Dataset | DatasetUnavailable:
    """Download or generate the data set of an entry; for `where` see `datasets.load`."""
    try:
        return datasets.load(name, spec=None if name in datasets.names() else entry, **where)
    except (DatasetUnavailable, datasets.DataError) as error:
        print(error)
        return DatasetUnavailable(str(error), entry)


def read(path: str | Path) -> Dataset | DatasetUnavailable:
    """Read a data set, or the reason why it is not available, from the file in which it was saved."""
    try:
        return Dataset.load(path)
    except DatasetUnavailable as error:
        return error


def write_problem(
    name: str, data: Dataset | DatasetUnavailable, parameters: Mapping[str, Any], problem_path: str, facts_path: str
) -> None:
    """Write the problem that all methods receive, and its facts; the problem's file is empty if there is no problem.
    The facts contain up to `TRUE_EDGES` known ``true_edges``, pairs [i, j] for i -> j."""
    problem, reason, facts = None, None, {**parameters, "name": name, **data.facts}
    if isinstance(data, DatasetUnavailable):
        reason = str(data)
    else:
        labels = {} if data.labels is None else {"categories": dict(zip(data.names, data.labels, strict=True))}
        options = {"names": data.names, **parameters, **labels}
        try:
            problem = get_family(data.family).prepare(data.values, Path(problem_path), progress=_tell, **options)
        except InvalidProblem as error:
            reason = f"data set {name!r} cannot be used: {error}"
        if data.true_dag is not None and data.true_dag.sum() <= TRUE_EDGES:
            facts["true_edges"] = np.argwhere(data.true_dag).tolist()
    if problem is None:
        Path(problem_path).touch()
    else:
        problem.save(problem_path)
        facts |= problem.facts()
    facts |= {"available": problem is not None, "why": reason, "problem": problem and problem.facts()}
    save_json(facts, Path(facts_path))


def makers(entries: Iterable[Mapping[str, Any]], family: str | None) -> list[str]:
    """Return the modules that generate the entries' data sets and prepare the family's problems."""
    generators = {f"datasets.{entry['generator'].partition('.')[0]}" for entry in entries if "generator" in entry}
    prepares = [get_family(family).problem, get_family(family).prepare_large] if family else []
    return sorted(generators | {maker.__module__ for maker in prepares})


def _tell(done: int, total: int) -> None:
    if done % max(1, total // 20) == 0:
        print(f"correlations: {done} of {total} tiles", flush=True)
