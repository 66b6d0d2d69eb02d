"""The class of data sets, its file format, and its errors."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import open_arrays, write_whole
from gpupc_impl.core.mapped_arrays import update_digest
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables import DataError

BLOCK_BYTES = 1 << 26  # the size of the blocks in which a large data set is generated


class RegistryError(ValueError):
    """A registry entry or a declared spec is invalid, or the registry has no entry of this name."""


class DatasetUnavailable(RuntimeError):
    """The data are not available here; the message explains why and how to provide them.

    Attributes:
        facts: the facts about the data set that are known without its data.
    """

    def __init__(self, why: str, facts: Mapping[str, Any] | None = None):
        super().__init__(why)
        self.facts = dict(facts or {})

    def save(self, path: str | Path) -> None:
        """Write a file from which `Dataset.load` raises this error."""
        _write(path, {"why": str(self), "facts": self.facts})


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one set of variables.

    Attributes:
        name: the name by which the data set was requested.
        values: (samples, variables). For families of labels: uint8 or uint16 codes from 0 in Fortran order, so that a
            variable's codes are contiguous, as the tests read them. For families of numbers: float64, C-contiguous,
            finite.
        names: one name a variable, all different.
        family: the kind of data and of CI test: a name in `gpupc_impl.core.family.families`.
        true_dag: (variables, variables) bool: ``true_dag[i, j]`` means i -> j; None if it is unknown. The network of a
            simulator of gene expressions may have cycles.
        facts: ``source``, ``licence``, ``citation``, ``sha256`` (see `fingerprint`), and others.
        labels: for families of labels, the labels of each variable's codes in order, including labels that the source
            declares but that do not occur. None if the source declares none, and for families of numbers. In families
            of both kinds a numeric variable has no labels.
    """

    name: str
    values: np.ndarray
    names: tuple[str, ...]
    family: str
    true_dag: np.ndarray | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        where = f"data set {self.name!r}"
        if get_family(self.family).data == "labels":
            values = np.asfortranarray(self.values)
            if values.dtype not in (np.uint8, np.uint16):
                raise DataError(f"{where}: codes of categories are uint8 or uint16, not {values.dtype}")
        else:
            values = np.ascontiguousarray(self.values, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(f"{where}: {len(self.names)} names for values of shape {values.shape}")
        if self.labels is not None:
            self._check_labels(values, where)
        object.__setattr__(self, "values", values)
        if "sha256" not in self.facts:
            object.__setattr__(self, "facts", {**self.facts, "sha256": fingerprint(values)})

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz``, from which `load` reads the same bits."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        arrays = {name: fields.pop(name) for name in ("values", "true_dag") if fields[name] is not None}
        _write(path, fields, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Dataset:
        """Read a data set that `save` wrote. DatasetUnavailable is raised if the file states why the data are not
        available, and DataError if it has other content, or is damaged."""
        with open_regular(path) as file:
            try:
                with open_arrays(file) as stored:
                    fields = json.loads(str(stored["fields"]))
                    if "why" in fields:
                        raise DatasetUnavailable(**fields)
                    arrays = {name: stored[name] for name in ("values", "true_dag") if name in stored}
                labels = fields.pop("labels")
                labels = None if labels is None else tuple(map(tuple, labels))
                return cls(**{**fields, "names": tuple(fields["names"]), "labels": labels, **arrays})
            except (DatasetUnavailable, MemoryError):
                raise
            except Exception as error:  # A damaged file can raise almost any exception.
                reason = f"{type(error).__name__}: {error}"
                raise DataError(f"{path} is no data set's file, or is damaged ({reason}); make it again") from error

    def _check_labels(self, values: np.ndarray, where: str) -> None:
        if get_family(self.family).data == "numbers":
            raise DataError(f"{where}: labels belong to discrete or mixed data, not to {self.family} data")
        if len(self.labels) != len(self.names):
            raise DataError(f"{where}: labels for {len(self.labels)} of {len(self.names)} variables")
        for name, column, labels in zip(self.names, values.T, self.labels, strict=True):
            if len(set(labels)) != len(labels):
                raise DataError(f"{where}, variable {name!r}: two categories have the same label")
            if column.max(initial=0) >= len(labels) and (labels or values.dtype.kind != "f"):
                raise DataError(f"{where}, variable {name!r}: code {column.max()} has no label ({len(labels)} labels)")


def graph_of(parents: Mapping[int, Sequence[int]]) -> np.ndarray:
    """Return a (p, p) bool matrix in which [i, j] is True if i is a parent of j, from the parents of each variable."""
    adjacency = np.zeros((len(parents), len(parents)), dtype=bool)
    for child, its in parents.items():
        adjacency[list(its), child] = True
    return adjacency


def _write(path: str | Path, fields: Mapping[str, Any], **arrays: np.ndarray) -> None:
    with write_whole(path) as file:
        np.savez(file, fields=json.dumps(fields), **arrays)


def fingerprint(values: np.ndarray) -> str:
    """Return the SHA-256 (hex) of a matrix's dtype, its shape and its values row by row, whatever its memory order."""
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    update_digest(digest, values)
    return digest.hexdigest()
