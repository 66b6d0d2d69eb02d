"""Samples the Gaussian and discrete Bayesian networks that the pgmpy wheel contains, without a download."""

import hashlib
import importlib.metadata
import json
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np

from datasets import bif
from datasets.dataset import DataError, Dataset, DatasetUnavailable
from datasets.generate import Equation, dag, sample

ENDINGS = {"gaussian": ".json", "discrete": ".bif.gz"}


def network_dataset(family: str, network: str, samples: int, seed: int, sha256: str | None = None) -> Dataset:
    """Return `samples` independent samples of a Gaussian or discrete network, called like its file without the ending,
    with its true_dag and columns in the file's order.

    The labels of a discrete network are the states that its file declares, and the fact ``constant_variables`` counts
    the variables of which only one state occurs. `seed` is that of a PCG64 stream (discrete: see `bif.sample`).

    Raises:
        DatasetUnavailable: pgmpy is not installed, or does not contain the network.
        DataError: the file has another checksum than the expected one, if one is passed.
    """
    path = network_path(family, network)
    content = path.read_bytes()
    actual = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, actual):
        raise DataError(
            f"network {network!r} of pgmpy {_pgmpy().version} is not the registered one: "
            f"expected sha256 {sha256}, found {actual}"
        )
    facts = {"source": f"{samples} samples, seed {seed}, of {path.name} in pgmpy {_pgmpy().version}"}
    if family == "discrete":
        model = bif.read_bif(content, network)
        codes = bif.sample(model, samples, seed)
        facts["constant_variables"] = sum(bool((column == column[0]).all()) for column in codes.T)
        return Dataset(network, codes, model.names, family, model.dag(), facts, model.labels)
    names, equations = read_network(json.loads(content), network)
    values = sample(np.random.Generator(np.random.PCG64(seed)), equations, samples)
    return Dataset(network, values, names, family, dag(equations), facts)


def network_path(family: str, network: str) -> Path:
    """Return the path of the network's file in the installed pgmpy, whose import would take seconds."""
    path = Path(_pgmpy().locate_file(f"pgmpy/utils/example_models/{network}{ENDINGS[family]}"))
    if not path.is_file():
        raise DatasetUnavailable(f"pgmpy {_pgmpy().version} does not hold the {family} network {network!r}")
    return path


def read_network(model: dict, label: str) -> tuple[tuple[str, ...], list[Equation]]:
    """Return names in the file's order, and equations in topological order; DataError names a fault or a cycle."""
    names = tuple(model["nodes"])
    position = {name: i for i, name in enumerate(names)}
    parents: dict[str, list[str]] = {name: [] for name in names}
    for tail, head in model["arcs"]:
        parents[head].append(tail)
    try:
        order = list(TopologicalSorter(parents).static_order())
    except ValueError as error:
        raise DataError(f"network {label!r} is not acyclic: {error}") from error
    equations = []
    for name in order:
        coefficients = {key: value[0] for key, value in model["cpds"][name]["coefficients"].items()}
        intercept = coefficients.pop("(Intercept)")
        if set(coefficients) != set(parents[name]):
            raise DataError(f"network {label!r}: the arcs into {name!r} are not those of its coefficients")
        tails = np.array([position[parent] for parent in coefficients], dtype=np.intp)
        weights, sd = np.array(list(coefficients.values())), float(np.sqrt(model["cpds"][name]["variance"][0]))
        equations.append(Equation(position[name], tails, weights, intercept, sd))
    return names, equations


def _pgmpy() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("pgmpy")
    except importlib.metadata.PackageNotFoundError:
        raise DatasetUnavailable("the network's file travels in the package pgmpy, which is not installed") from None
