"""What a data set is, and what can be wrong with one."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np


class RegistryError(ValueError):
    """A registry entry or a declared spec is wrong, or no data set has this name."""


class DataError(ValueError):
    """A file's content cannot be used; the message names the file and, where it can, the row and the column."""


class DatasetUnavailable(RuntimeError):
    """The data cannot be had here and now; the message is one sentence that says why and how to provide them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one set of variables.

    Attributes:
        name: the name it was asked for by.
        values: (samples, variables) float64, C-contiguous, finite.
        names: one name a variable, all different.
        family: ``"gaussian"``, ``"discrete"`` or ``"nonlinear"``: the kind of CI test it is meant for.
        true_dag: (variables, variables) bool, ``true_dag[i, j]`` meaning i -> j; None when unknown.
        facts: ``source``, ``licence``, ``citation``, ``sha256`` (see `fingerprint`), and what else is known.
    """

    name: str
    values: np.ndarray
    names: tuple[str, ...]
    family: str
    true_dag: np.ndarray | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(f"data set {self.name!r}: {len(self.names)} names for values of shape {values.shape}")
        object.__setattr__(self, "values", values)
        if "sha256" not in self.facts:
            object.__setattr__(self, "facts", {**self.facts, "sha256": fingerprint(values)})


def fingerprint(values: np.ndarray) -> str:
    """SHA-256 (hex) of an array's dtype, shape and bytes in C order: equal exactly when the arrays are."""
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
