"""Times a table of single CI tests, whose cases are all combinations of the values that the config lists."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.record import Limits
from gpupc_impl.measurement.single_tests import Case, draw_tests, measure_tests
from workflow.lib.experiments import combinations
from workflow.lib.searches import in_bytes

DIMENSIONS = ("samples", "permutations", "set_size", "k_cmi")

SEED = 0  # the seed with which the tests are drawn


def time_table(
    table: Mapping[str, Any],
    tests: Mapping[str, Any],
    parameters: Mapping[str, Any],
    limits: Mapping[str, Any],
    bench: Bench,
    *,
    store: Path,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Time implementations on all cases of a table, given the table's part of the config, ``ci_tests``, the parameters
    of the problem other than the dimensions of the table, and the limits; returns what `save_tests` writes."""
    implementations = tests["implementations"]
    settings = [
        Setting(
            name,
            choice.get("method", name),
            choice.get("params", {}),
            limits=Limits(choice.get("time_limit_s", tests["time_limit_s"]), in_bytes(limits["memory_mb"])),
        )
        for name, choice in implementations.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        groups, sources = table_cases(table, tests["spec"], tests["tests"], parameters, Path(folder), implementations)
        return measure_tests(groups, settings, bench, store=store, progress=progress) | {"source": sources}


def cases(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of a table, as values of its dimensions."""
    return list(combinations({name: table[name] for name in DIMENSIONS}))


def is_timed(implementation: Mapping[str, Any], case: Mapping[str, Any]) -> bool:
    """Return whether an implementation is timed on a case: on all cases, or on those that its `only` describes."""
    return any(chosen.items() <= case.items() for chosen in implementation.get("only", [{}]))


def table_cases(
    table: Mapping[str, Any],
    spec: Mapping[str, Any],
    tests: int,
    parameters: Mapping[str, Any],
    folder: Path,
    implementations: Mapping[str, Mapping[str, Any]],
) -> tuple[list[list[Case]], dict[str, str]]:
    """Return groups of cases with equal varied values, whose problems the folder keeps, and the source by samples."""
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
            dataclasses.replace(
                _case(drawn[facts["samples"]], facts, tests, parameters, folder),
                left_out=[name for name, choice in implementations.items() if not is_timed(choice, facts)],
            )
            for facts in combinations(fixed | {varied: value})
        ]
        for value in values[varied]
    ]
    return groups, {str(n): data.facts["source"] for n, data in drawn.items()}


def _case(
    data: datasets.Dataset, values: Mapping[str, Any], tests: int, parameters: Mapping[str, Any], folder: Path
) -> Case:
    """Return the case of one combination of values; if they make no problem, the case contains the reason."""
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
