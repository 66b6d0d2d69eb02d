"""Measures the numbers of docs/kernel.md: calibration, power, accuracy, speed beside causal-learn's, and whole
searches.

Each backend has a file, to which each measurement adds a line of JSON. A run that was stopped continues after the last
line, and one page can show files of several machines.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from datasets.nonlinear import additive_noise
from gpupc_impl.api import skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import get_family
from gpupc_impl.core.result import Skeleton

LEVELS = range(4)
REPLICATES = 50
"""The number of independent data sets whose variables are columns of one problem, so that all their tests run in one
batch."""

COLUMNS = 3 + 2 * len(LEVELS)
"""Columns of a replicate: three variables from which conditioning sets are formed, then x and y for each level."""

EFFECTS = (np.sin, np.tanh, lambda v: v**2 / 2, lambda v: np.exp(-v * v), lambda v: v)

TESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "RCIT": ("kernel", {"test": "rcit"}),
    "RCIT, published weights": ("kernel", {"test": "rcit", "weights": "published"}),
    "RCoT": ("kernel", {"test": "rcot"}),
    "RCoT, 25 features of S": ("kernel", {"test": "rcot", "set_features": 25}),
    "KCI": ("kernel", {"test": "kci"}),
    "CMIknn": ("nonlinear", {}),
    "Fisher's z": ("gaussian", {}),
}

KERNEL_TESTS = tuple(TESTS)[:-2]
DEFAULTS = ("RCIT", "RCoT", "KCI", "CMIknn", "Fisher's z")
"""The tests whose accuracy is measured."""

CALIBRATED = {
    "host": [(name, n) for n in (200, 1000) for name in KERNEL_TESTS if (name, n) != ("KCI", 1000)],
    "cuda": [("KCI", 1000)],
}
"""Tests and numbers of samples that are calibrated on each backend; KCI with 1,000 samples would take hours on CPU
cores."""

POWER_SAMPLES, POWER = 300, 0.6
GRAPH_VARIABLES, GRAPH_SAMPLES, GRAPH_DENSITY, ALPHA = 8, 300, 0.3, 0.05

ENDS = 8
"""The number of variables whose pairs are tested with each set in the timed batches."""

TIMED = {
    "host": {("rcit", 1000): 8, ("rcit", 10_000): 8, ("kci", 500): 2},
    "cuda": {("rcit", 1000): 100, ("rcit", 10_000): 100, ("kci", 500): 8, ("kci", 1000): 8},
}
"""The number of sets in a timed batch, by test and number of samples."""

REPEATS = 5


class Results:
    """The lines of all files of a folder; new lines are added to the file of the backend.

    Attributes:
        backend: the open backend.
    """

    def __init__(self, folder: Path, backend: str):
        folder.mkdir(parents=True, exist_ok=True)
        self.backend = open_backend(backend)
        self._path = folder / f"{self.backend.name}.jsonl"
        self._lines = read(folder)

    def measure(self, part: str, key: Mapping[str, Any], work: Callable[..., Mapping[str, Any]], *of: Any) -> None:
        """Write the outcome of ``work(self, *of)`` to the file, unless a file already contains it."""
        line = {"part": part, "backend": self.backend.name, **key}
        if any(line.items() <= known.items() for known in self._lines):
            return
        outcome = line | {"device": self.backend.describe()["device"], **work(self, *of)}
        self._lines.append(outcome)
        with self._path.open("a") as file:
            file.write(json.dumps(outcome) + "\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of all files of a folder."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def calibration(results: Results, seeds: int) -> None:
    """Measure p-values under independence."""
    for name, n in CALIBRATED[results.backend.name]:
        for first in range(0, seeds, REPLICATES):
            key = {"test": name, "samples": n, "first": first}
            results.measure("calibration", key, p_values, name, n, first, 0.0)


def power(results: Results, seeds: int) -> None:
    """Measure p-values under dependence."""
    for name in TESTS:
        for first in range(0, seeds, REPLICATES):
            key = {"test": name, "samples": POWER_SAMPLES, "first": first}
            results.measure("power", key, p_values, name, POWER_SAMPLES, first, POWER)


def p_values(results: Results, name: str, n: int, first: int, strength: float) -> dict[str, Any]:
    """Return (levels, REPLICATES) p-values of a test."""
    family, options = TESTS[name]
    numbers = range(first, first + REPLICATES)
    data = np.concatenate([replicate(np.random.default_rng([k, n]), n, strength) for k in numbers], axis=1)
    own = {"seed": first} if "seed" in get_family(family).problem.PARAMETERS else {}
    problem = get_family(family).problem.from_data(data, **options, **own)
    test = get_family(family).strength(problem, results.backend.name)
    begin = COLUMNS * np.arange(REPLICATES)[:, None]
    values = [test(begin + 3 + 2 * k + [0, 1], begin + np.arange(k))[0] for k in LEVELS]
    return {"p_values": [[float(f"{p:.5g}") for p in own] for own in values]}


def replicate(rng: np.random.Generator, n: int, strength: float) -> np.ndarray:
    """Draw (n, COLUMNS) samples in which x and y of a level depend on as many variables as the level, and on a common
    cause with the factor `strength`.

    The common cause is added to x, and its square to y.
    """
    z = rng.standard_normal((n, 3))
    columns = [z]
    for level in LEVELS:
        common = rng.standard_normal(n)
        for response in (common, common**2 - 1):
            total = z[:, :level] @ rng.uniform(0.5, 1.5, level)
            effect = EFFECTS[rng.integers(len(EFFECTS))](total) if level else 0.0
            columns.append((effect + 0.7 * rng.standard_normal(n) + strength * response)[:, None])
    return np.concatenate(columns, axis=1)


def accuracy(results: Results, graphs: int) -> None:
    """Measure the times of searches on additive-noise graphs, and the structural Hamming distances of their
    skeletons."""
    for seed in range(graphs):
        for name in DEFAULTS:
            results.measure("accuracy", {"test": name, "graph": seed}, distance, name, seed)


def distance(results: Results, name: str, seed: int) -> dict[str, Any]:
    """Return the seconds of a search, and the distance of its skeleton from the graph's."""
    data = additive_noise(GRAPH_VARIABLES, GRAPH_SAMPLES, seed, GRAPH_DENSITY)
    seconds, result = timed_search(results, data.values, *TESTS[name])
    wrong = result.adjacency ^ (data.true_dag | data.true_dag.T)
    return {"seconds": seconds, "distance": int(np.count_nonzero(np.triu(wrong)))}


def timed_search(results: Results, data: np.ndarray, family: str, options: Mapping[str, Any]) -> tuple[float, Skeleton]:
    """Return the seconds and the skeleton of a search; a search of five variables runs before, to compile and warm
    up."""
    options = {"family": family, "backend": results.backend.name, **options}
    skeleton(data[:, :5], ALPHA, **options)
    start = time.perf_counter()
    result = skeleton(data, ALPHA, **options)
    return time.perf_counter() - start, result


def speed(results: Results) -> None:
    """Measure the seconds for a test, by turns in batches of this package and one by one in causal-learn on one
    core."""
    for (test, n), count in TIMED[results.backend.name].items():
        for level in (1, 3):
            key = {"test": test, "samples": n, "level": level}
            results.measure("speed", key, race, test, n, level, count)


def race(results: Results, test: str, n: int, level: int, count: int) -> dict[str, Any]:
    """Return the median seconds for a test."""
    from threadpoolctl import threadpool_limits

    others = count if level == 1 else 10
    data = additive_noise(ENDS + others, n, 0, GRAPH_DENSITY).values
    members = itertools.combinations(range(ENDS, ENDS + others), level)
    batch = [*itertools.product(itertools.islice(members, count), itertools.combinations(range(ENDS), 2))]
    sets, pairs = (np.array(each) for each in zip(*batch, strict=True))
    problem = get_family("kernel").problem.from_data(data, test=test)
    ours, theirs = get_family("kernel").strength(problem, results.backend.name), their_test(test)
    ours(pairs, sets)  # compile and warm up
    seconds: tuple[list[float], list[float]] = ([], [])
    for k in range(REPEATS):
        start = time.perf_counter()
        ours(pairs, sets)
        seconds[0].append((time.perf_counter() - start) / len(pairs))
        row = 7 * k % len(pairs)
        x, y = pairs[row]
        columns = [np.ascontiguousarray(problem.values[v].T) for v in ([x], [y], sets[row])]
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            theirs(*columns)
            seconds[1].append(time.perf_counter() - start)
    core = open_backend("host").describe()["device"]
    names = ("seconds", "their_seconds")
    return {name: float(np.median(each)) for name, each in zip(names, seconds, strict=True)} | {
        "tests": len(pairs),
        "threads": results.backend.array_threads,
        "core": core,
    }


def their_test(test: str) -> Callable[..., Any]:
    """Return causal-learn's function for the p-value of x, y and S, with its defaults."""
    if test == "kci":
        from causallearn.utils.KCI.KCI import KCI_CInd

        return KCI_CInd().compute_pvalue
    from causallearn.utils.RCIT.RCIT import RCIT

    return RCIT(rcit=test == "rcit").compute_pvalue


def searches(results: Results) -> None:
    """Measure whole searches: 50 generated variables with RCIT, and proteins of cells with KCI."""
    try:
        name, proteins = "sachs-cd3cd28", datasets.load("sachs-cd3cd28", offline=True).values
    except datasets.DatasetUnavailable:
        name, proteins = "generated, of the shape of sachs-cd3cd28", additive_noise(11, 853, 0, degree=3).values
    generated = additive_noise(50, 1000, 0, degree=3).values
    results.measure("searches", {"data": "generated", "test": "rcit"}, search, generated, "rcit")
    results.measure("searches", {"data": name, "test": "kci"}, search, proteins, "kci")


def search(results: Results, data: np.ndarray, test: str) -> dict[str, Any]:
    """Return the seconds and the outcome of a search."""
    seconds, result = timed_search(results, data, "kernel", {"test": test})
    shape = {"samples": len(data), "variables": len(data.T), "edges": int(result.adjacency.sum()) // 2}
    return shape | {"seconds": seconds, "tests": int(sum(result.tests_per_level)), "levels": result.levels_run}
