"""Samples of the linear Gaussian Bayesian networks that travel inside the pgmpy wheel: no download needed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np

from datasets.dataset import DataError, Dataset, DatasetUnavailable
from datasets.generate import Equation, dag, sample


def network_dataset(network: str, samples: int, seed: int, sha256: str | None = None) -> Dataset:
    """`samples` independent samples of a network, drawn in topological order.

    Args:
        network: file name without ``.json``, for example ``"ecoli70"``.
        samples: number of samples, at least 1.
        seed: seed of the one PCG64 stream used.
        sha256: expected checksum of the network's file; None accepts any.

    Returns:
        values (samples, p) with columns in the file's order; true_dag is the network's.

    Raises:
        DatasetUnavailable: pgmpy is not installed, or does not hold the network.
        DataError: the file is not what was expected.
    """
    path = network_path(network)
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise DataError(
            f"network {network!r} of pgmpy {_pgmpy().version} is not the registered one: "
            f"expected sha256 {sha256}, found {found}"
        )
    names, equations = read_network(json.loads(content), network)
    rng = np.random.Generator(np.random.PCG64(seed))
    return Dataset(
        name=network,
        values=sample(rng, equations, samples),
        names=names,
        family="gaussian",
        true_dag=dag(equations),
        facts={"source": f"{samples} samples, seed {seed}, of {path.name} in pgmpy {_pgmpy().version}"},
    )


def network_path(network: str) -> Path:
    """The network's file in the installed pgmpy, which is not imported: that takes seconds.

    Raises:
        DatasetUnavailable: pgmpy is not installed, or does not hold the network.
    """
    path = Path(_pgmpy().locate_file(f"pgmpy/utils/example_models/{network}.json"))
    if not path.is_file():
        raise DatasetUnavailable(f"pgmpy {_pgmpy().version} does not hold the network {network!r}")
    return path


def read_network(model: dict, label: str) -> tuple[tuple[str, ...], list[Equation]]:
    """Names in the file's order, and equations in topological order, from a network's JSON.

    Raises:
        DataError: arcs and coefficients disagree, or the graph has a cycle.
    """
    names = tuple(model["nodes"])
    position = {name: i for i, name in enumerate(names)}
    parents: dict[str, list[str]] = {name: [] for name in names}
    for tail, head in model["arcs"]:
        parents[head].append(tail)

    equations = []
    try:
        order = list(TopologicalSorter(parents).static_order())
    except ValueError as error:
        raise DataError(f"network {label!r} is not acyclic: {error}") from error
    for name in order:
        coefficients = {key: value[0] for key, value in model["cpds"][name]["coefficients"].items()}
        intercept = coefficients.pop("(Intercept)")
        if set(coefficients) != set(parents[name]):
            raise DataError(f"network {label!r}: the arcs into {name!r} are not those of its coefficients")
        equations.append(
            Equation(
                variable=position[name],
                parents=np.array([position[parent] for parent in coefficients], dtype=np.intp),
                weights=np.array(list(coefficients.values())),
                intercept=intercept,
                sd=float(np.sqrt(model["cpds"][name]["variance"][0])),
            )
        )
    return names, equations


def _pgmpy() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("pgmpy")
    except importlib.metadata.PackageNotFoundError:
        raise DatasetUnavailable("the network's file travels in the package pgmpy, which is not installed") from None
