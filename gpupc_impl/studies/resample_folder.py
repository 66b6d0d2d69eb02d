"""The folder of a bootstrap: a file with the edges of each resample, and a file with the settings of the bootstrap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import checked_path, read_json, read_sealed, save_json, write_sealed, write_whole
from gpupc_impl.core.problem import InvalidProblem

SETTINGS = "bootstrap.json"
"""The name of the file that describes the data and the settings of a folder of resamples."""

UNDIRECTED, DIRECTED = 0, 1
"""Kinds of edges in a resample's file; conflicts count as undirected."""


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Mark a folder as one for resamples of these settings.

    Raises:
        InvalidProblem: the folder already belongs to other settings.
        OSError: the folder cannot be made.
    """
    checked_path(folder).mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        save_json(settings, path)
        return
    try:
        existing = read_json(path)
        if not isinstance(existing, dict):
            raise TypeError("it holds no settings by name")
    except (ValueError, TypeError) as error:
        raise InvalidProblem(f"{path} is damaged ({error}); remove the folder, or name another") from error
    for name in sorted(settings.keys() | existing.keys()):
        if settings.get(name) != existing.get(name):
            what = "other data, or another alpha or test" if name == "data" else f"{name} {existing.get(name)!r}"
            raise InvalidProblem(f"{folder} holds resamples of {what}; name another folder, or remove this one")


def path(folder: Path, k: int) -> Path:
    return folder / f"{k:06d}.npz"


def save(edges: np.ndarray, path: Path, place: Any) -> None:
    """Write a resample's edges, bound to the data, settings and number of the resample."""
    with write_whole(path) as file:
        write_sealed(file, {}, {"edges": edges}, place)


def load(path: Path, p: int, place: Any) -> np.ndarray | None:
    """Return a resample's edges; None if the file does not exist, or has no edges of p variables of this resample."""
    try:
        edges = read_sealed(path, place)[1]["edges"]
    except MemoryError:
        raise
    except Exception:  # a damaged file can raise nearly anything
        return None
    if edges.dtype != np.int32 or edges.ndim != 2 or edges.shape[1] != 3:
        return None
    i, j, kind = edges.T
    in_range = (edges >= 0).all() and (edges[:, :2] < p).all() and (kind <= DIRECTED).all()
    distinct = len(np.unique(np.sort(edges[:, :2], axis=1), axis=0)) == len(edges)
    return edges if in_range and distinct and (i != j).all() and (i < j)[kind == UNDIRECTED].all() else None
