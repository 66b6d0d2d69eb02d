"""The cases of a table of single CI tests: every combination of the values that the config lists for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.measurement.single_tests import Case, draw_tests
from workflow.lib.experiments import combinations

DIMENSIONS = ("samples", "permutations", "set_size", "k_cmi")

SEED = 0
"""The seed that the tests are drawn with."""


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
