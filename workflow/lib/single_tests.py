"""A table of single CI tests: its cases, every combination of the values that the config lists, and their times."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.measurement.record import Limits
from gpupc_impl.measurement.sampler import Bench, Setting
from gpupc_impl.measurement.single_tests import Case, draw_tests, measure_tests
from workflow.lib.experiments import combinations
from workflow.lib.searches import in_bytes

DIMENSIONS = ("samples", "permutations", "set_size", "k_cmi")

SEED = 0
"""The seed that the tests are drawn with."""


def time_table(
    table: Mapping[str, Any],
    asked: Mapping[str, Any],
    implementations: Mapping[str, Mapping[str, Any]],
    parameters: Mapping[str, Any],
    limits: Mapping[str, Any],
    bench: Bench,
    *,
    store: Path,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Time implementations on all cases of a table.

    Args:
        table: the table in the config.
        asked: the config's ``ci_tests``: where the data come from, how many tests a case has, how long they may take.
        implementations: those of the config's that are timed.
        parameters: of the problem, beside those that are dimensions.
        limits: the config's.
        store: keeps samples.

    Returns:
        What `gpupc_impl.measurement.record.save_tests` writes.
    """
    bounds = Limits(asked["time_limit_s"], in_bytes(limits["memory_mb"]))
    settings = [
        Setting(name, choice.get("method", name), choice.get("params", {}), limits=bounds)
        for name, choice in implementations.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        groups, sources = table_cases(table, asked["spec"], asked["tests"], parameters, Path(folder))
        return measure_tests(groups, settings, bench, store=store, progress=progress) | {"source": sources}


def joined(parts: Sequence[Mapping[str, Any]], implementations: Sequence[str]) -> dict[str, Any]:
    """The times of one table from those of groups of its implementations, in the order of all implementations."""
    cells = [cell for part in parts for cell in part["cells"]]
    return {
        **parts[0],
        "cells": sorted(cells, key=lambda cell: implementations.index(cell["implementation"])),
        "environments": {key: value for part in parts for key, value in part["environments"].items()},
    }


def cases(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases of a table, as values of its dimensions."""
    return list(combinations({name: table[name] for name in DIMENSIONS}))


def table_cases(
    table: Mapping[str, Any], spec: Mapping[str, Any], tests: int, parameters: Mapping[str, Any], folder: Path
) -> tuple[list[list[Case]], dict[str, str]]:
    """The cases, in groups that share the value of what varies, and the source of the data by number of samples.

    Args:
        table: the table in the config: what varies, and the values of each dimension.
        spec: of the generated data; its number of samples is the table's.
        tests: how many of them each case has.
        parameters: of the problem, beside those that are dimensions.
        folder: where the problems are saved.
    """
    values = {name: table[name] for name in DIMENSIONS}
    varied = table["varies"]
    listed = values["samples"] if isinstance(values["samples"], list) else [values["samples"]]
    drawn = {}
    for n in listed:
        own = {**spec, "kind": "generated", "parameters": {**spec["parameters"], "n": n}}
        drawn[n] = datasets.load(f"single-tests-n{n}", spec=own)
    fixed = {name: value for name, value in values.items() if name != varied}
    groups = [
        [
            _case(drawn[facts["samples"]], facts, tests, parameters, folder)
            for facts in combinations(fixed | {varied: value})
        ]
        for value in values[varied]
    ]
    return groups, {str(n): data.facts["source"] for n, data in drawn.items()}


def _case(
    data: datasets.Dataset, values: Mapping[str, Any], tests: int, parameters: Mapping[str, Any], folder: Path
) -> Case:
    """One combination of values; a case without a problem, and the reason, where they make none."""
    k, permutations = values["k_cmi"], values["permutations"]
    facts = {**values, "k_rule": "fixed" if k >= 1 else "adaptive"}
    chosen = draw_tests(data.values.shape[1], values["set_size"], tests, SEED)
    try:
        problem = get_family(data.family).problem.from_data(
            data.values, names=data.names, **{**parameters, "k_cmi": k, "permutations": permutations}
        )
    except InvalidProblem as error:
        return Case(None, chosen, facts, str(error))
    path = folder / f"n{values['samples']}-perm{permutations}-k{k}.npz"
    problem.save(path)
    return Case(path, chosen, facts | {"k_cmi": problem.k_cmi})
