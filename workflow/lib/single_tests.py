"""The cases of a table of single CI tests: all combinations of the values that the config lists."""

from pathlib import Path
from typing import Any

import datasets
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.measurement.single_tests import Case, draw_tests
from workflow.lib.experiments import combinations
from workflow.lib.searches import Config

DIMENSIONS = ("samples", "permutations", "set_size", "k_cmi")
SEED = 0  # the seed with which the tests are drawn


def cases(table: Config) -> list[dict[str, Any]]:
    """Return the cases of a table, as values of its dimensions."""
    return list(combinations({name: table[name] for name in DIMENSIONS}))


def is_timed(implementation: Config, case: Config) -> bool:
    """Return whether an implementation is timed on a case: on all cases, or on those that its `only` describes."""
    return any(chosen.items() <= case.items() for chosen in implementation.get("only", [{}]))


def table_cases(
    table: Config, tests: Config, parameters: Config, folder: Path
) -> tuple[list[list[Case]], dict[str, str]]:
    """Return groups of cases with equal varied values, whose problems the folder keeps, and the source by samples.
    `tests` is ``ci_tests`` of the config, and `parameters` are those of the problem that no table varies."""
    listed = table["samples"] if isinstance(table["samples"], list) else [table["samples"]]
    drawn = {}
    for n in listed:
        own = {**tests["spec"], "kind": "generated", "parameters": {**tests["spec"]["parameters"], "n": n}}
        drawn[n] = datasets.load(f"single-tests-n{n}", spec=own)
    varied = table["varies"]
    fixed = {name: table[name] for name in DIMENSIONS if name != varied}
    groups = []
    for value in table[varied]:
        its = combinations(fixed | {varied: value})
        groups.append([_case(drawn[facts["samples"]], facts, tests, parameters, folder) for facts in its])
    return groups, {str(n): data.facts["source"] for n, data in drawn.items()}


def _case(data: datasets.Dataset, values: Config, tests: Config, parameters: Config, folder: Path) -> Case:
    """Return the case of one combination of values; if they make no problem, the case contains the reason."""
    k, permutations = values["k_cmi"], values["permutations"]
    facts = {**values, "k_rule": "fixed" if k >= 1 else "adaptive"}
    chosen = draw_tests(data.values.shape[1], values["set_size"], tests["tests"], SEED)
    left_out = [name for name, choice in tests["implementations"].items() if not is_timed(choice, values)]
    try:
        problem = get_family(data.family).problem.from_data(
            data.values, names=data.names, **{**parameters, "k_cmi": k, "permutations": permutations}
        )
    except InvalidProblem as error:
        return Case(None, chosen, facts, str(error), left_out)
    path = folder / f"n{values['samples']}-perm{permutations}-k{k}.npz"
    problem.save(path)
    return Case(path, chosen, facts | {"k_cmi": problem.k_cmi}, left_out=left_out)
