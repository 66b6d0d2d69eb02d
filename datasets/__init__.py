"""Loads data sets by name: downloaded files, samples of Bayesian networks, and generated data.

    from datasets import load
    data = load("nci-60")
    data.values, data.names, data.true_dag, data.facts

`registry.yaml` lists them. An entry that is declared elsewhere, such as in a workflow config, has the same keys and is
passed as `spec`. `datasets.fetch.fetch` returns the path of a file without reading it.
"""

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets import fetch, networks, readers, registry
from datasets.dataset import DataError, Dataset, DatasetUnavailable, RegistryError
from datasets.registry import names
from gpupc_impl import tables
from gpupc_impl.core.family import get_family
from gpupc_impl.tables.binary import finite

__all__ = ["DataError", "Dataset", "DatasetUnavailable", "RegistryError", "entry", "load", "names"]


def entry(name: str) -> dict[str, Any]:
    """Return a copy of the registry's entry; raises RegistryError if there is none of this name."""
    return registry.resolve(name)


def load(
    name: str,
    *,
    cache_dir: str | Path | None = None,
    mirrors: Sequence[str | Path] = (),
    offline: bool = False,
    spec: Mapping[str, Any] | None = None,
) -> Dataset:
    """Return the data set, which is downloaded, sampled or generated as its entry declares.

    Args:
        name: a registered name, or the name of `spec`, an entry declared outside the registry, with the same keys.
        cache_dir, mirrors, offline: see `datasets.fetch.fetch`.

    Raises:
        RegistryError: the registry has no entry of this name, or the entry is invalid.
        DatasetUnavailable: the data cannot be downloaded or made here; the message explains how to provide them.
        DataError: the file's content differs from what the entry declares.
    """
    entry = registry.resolve(name, spec)
    paths = [fetch.fetch_file(name, file, cache_dir, mirrors, offline) for file in registry.files(entry)]
    network = _read_network(entry["true_network"], paths[-1]) if "true_network" in entry else None
    if entry["kind"] == "file":
        data = _read_file(name, entry, paths[0], network)
    elif entry["kind"] == "table":
        data = _read_own_table(name, entry["family"], paths[0])
    elif entry["kind"] == "network":
        data = networks.network_dataset(
            entry["family"], entry["network"], entry.get("samples", 1000), entry.get("seed", 0), entry.get("sha256")
        )
    else:
        data = _generate(name, entry, network)
    if data.family != entry["family"]:
        raise RegistryError(f"data set {name!r}, key 'family': {entry['family']!r}, but the data are {data.family!r}")
    stated = {key: entry.get(key) for key in ("kind", "licence", "citation", "note")}
    return dataclasses.replace(data, name=name, facts={**data.facts, **stated})


Network = tuple[np.ndarray, tuple[str, ...]]
"""A (p, p) bool matrix, [i, j] for an arc i -> j, with an empty diagonal, and the names of its variables."""


def _read(entry: Mapping[str, Any], path: Path) -> readers.Matrix:
    options = dict(entry["reader"])
    return readers.READERS[options.pop("format")](path, **options)


def _read_network(entry: Mapping[str, Any], path: Path) -> Network:
    values, names = _read(entry, path)
    if values.shape != (entry["variables"],) * 2:
        raise DataError(f"{path}: a matrix of shape {values.shape}; registered: {entry['variables']} variables")
    return (values != 0) & ~np.eye(len(values), dtype=bool), names


def _read_file(name: str, entry: dict[str, Any], path: Path, network: Network | None) -> Dataset:
    values, variables = _read(entry, path)
    registered = (entry["samples"], entry["variables"])
    if values.shape != registered:
        raise DataError(f"{path}: {values.shape} samples x variables; registered for {name!r}: {registered}")
    if get_family(entry["family"]).data == "labels":
        values = _codes(values, variables, path)
    if network is not None and network[1] != variables:
        raise DataError(f"data set {name!r}: the variables of {entry['true_network']['file']} are not those of {path}")
    facts = {"source": entry.get("url", entry["file"])}
    return Dataset(name, values, variables, entry["family"], None if network is None else network[0], facts)


def _read_own_table(name: str, family: str, path: Path) -> Dataset:
    kind = "labels" if get_family(family).data == "labels" else None
    table = tables.read_table(path, kind=kind)
    names = [f"V{k}" for k in range(table.values.shape[1])] if table.names is None else list(table.names)
    if kind is not None:
        codes = table.values.apply(lambda column: column.astype("category").cat.codes).to_numpy()
        if (codes < 0).any():
            raise DataError(f"{path}: a value of column {names[np.argwhere(codes < 0)[0, 1]]!r} is missing")
        values = _codes(codes, names, path)
    else:
        values = finite(np.asarray(table.values), names, path)
    return Dataset(name, values, tuple(names), family, None, {"source": path.name})


def _codes(values: np.ndarray, variables: tuple[str, ...], path: Path) -> np.ndarray:
    """Return integers from 0 to 65535 as uint8, or as uint16 if one exceeds 255."""
    bad = np.argwhere((values < 0) | (values > np.iinfo(np.uint16).max) | (values != np.floor(values)))
    if bad.size:
        row, column = bad[0]
        raise DataError(
            f"{path}, row {row + 1}, column {variables[column]!r}: {values[row, column]:g} is no code of a category "
            "(a whole number from 0 to 65535)"
        )
    return values.astype(np.uint8 if values.max(initial=0) <= np.iinfo(np.uint8).max else np.uint16)


def _generate(name: str, entry: dict[str, Any], network: Network | None) -> Dataset:
    where = f"data set {name!r}, key 'generator'"
    try:
        generator = pkgutil.resolve_name(f"datasets.{entry['generator'].replace('.', ':')}")
    except (ModuleNotFoundError, AttributeError) as error:
        raise RegistryError(f"{where}: {error}") from error
    signature = inspect.signature(generator)
    arguments = entry["parameters"] | ({} if network is None else {"network": network[0], "names": network[1]})
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise RegistryError(f"data set {name!r}, key 'parameters': {error}; it takes {signature}") from error
    try:
        data = generator(**arguments)
    except DataError:  # This error is a ValueError as well, but about the values instead of the parameters.
        raise
    except ValueError as error:
        raise RegistryError(f"data set {name!r}, key 'parameters': {error}") from error
    if not isinstance(data, Dataset):
        raise RegistryError(f"{where}: {entry['generator']} returned {type(data).__name__}, not a Dataset")
    return data
