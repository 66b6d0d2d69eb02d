"""Single CI tests of one table, timed: every implementation on every combination of the table's values."""

import itertools
import sys
import tempfile
from pathlib import Path

import datasets
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.measurement.record import Limits, save_tests
from gpupc_impl.measurement.sampler import Setting
from gpupc_impl.measurement.single_tests import Case, draw_tests, measure_tests

params = snakemake.params
DIMENSIONS = ("samples", "permutations", "set_size", "k_cmi")
SEED = 0
"""From which the tests are drawn."""


def case(data: datasets.Dataset, values: dict, folder: Path) -> Case:
    """One combination of values; a case without a problem, and the reason, where they make none."""
    k, own = values["k_cmi"], {"k_cmi": values["k_cmi"], "permutations": values["permutations"]}
    facts = values | {"k_rule": "fixed" if k >= 1 else "adaptive"}
    tests = draw_tests(data.values.shape[1], values["set_size"], params.tests, SEED)
    try:
        problem = get_family(data.family).problem.from_data(data.values, names=data.names, **params.parameters | own)
    except InvalidProblem as error:
        return Case(None, tests, facts, str(error))
    path = folder / f"n{values['samples']}-perm{values['permutations']}-k{k}.npz"
    problem.save(path)
    return Case(path, tests, facts | {"k_cmi": problem.k_cmi})


with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log, tempfile.TemporaryDirectory() as folder:

    def tell(line: str) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(line, file=stream, flush=True)

    lists = {name: params.table[name] for name in DIMENSIONS}
    lists = {name: value if isinstance(value, list) else [value] for name, value in lists.items()}
    drawn = {}
    for n in lists["samples"]:
        spec = params.spec | {"kind": "generated", "parameters": {**params.spec["parameters"], "n": n}}
        drawn[n] = datasets.load(f"single-tests-n{n}", spec=spec)
    fixed = {name: values for name, values in lists.items() if name != params.table["varies"]}
    groups = []
    for value in lists[params.table["varies"]]:
        combinations = (dict(zip(fixed, found, strict=True)) for found in itertools.product(*fixed.values()))
        cases = [combination | {params.table["varies"]: value} for combination in combinations]
        groups.append([case(drawn[values["samples"]], values, Path(folder)) for values in cases])
    memory_mb = params.limits["memory_mb"]
    limits = Limits(params.time_limit_s, None if memory_mb is None else int(memory_mb * 1_000_000))
    timed = measure_tests(
        groups,
        [
            Setting(name, choice.get("method", name), choice.get("params", {}), limits=limits)
            for name, choice in params.implementations.items()
        ],
        backend=params.backend,
        store=Path(params.store),
        threads=min(snakemake.threads, available_cores()),
        log=log,
        progress=tell,
    )
    sources = {str(n): data.facts["source"] for n, data in drawn.items()}
    save_tests(timed | {"source": sources}, snakemake.output[0])
