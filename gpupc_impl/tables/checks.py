"""The error of a table that cannot be used, and checks of names, shapes and numbers for every kind of file."""

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem


class DataError(InvalidProblem):
    """The content of a file cannot be used; the message names the file and, if possible, the line and the column."""


def only_table(tables: Mapping[str, Any], name: str | None, path: Path) -> Any:
    """Return the two-dimensional table of this name, or the only one if the name is None."""
    matrices = {key: table for key, table in tables.items() if np.ndim(table) == 2}
    content = ", ".join(f"{key} {np.shape(table)}" for key, table in tables.items()) or "nothing"
    if name is not None and name not in matrices:
        raise DataError(f"{path} has no two-dimensional array {name!r}; it holds {content}")
    if name is None and len(matrices) != 1:
        raise DataError(f"{path} must hold exactly one two-dimensional array; it holds {content}")
    return matrices[name] if name is not None else next(iter(matrices.values()))


def checked_names(names: Sequence[Any], path: Path, first: int = 0) -> list[str]:
    """Return the names from index `first` on as text; raises DataError if two are equal, or one is empty."""
    names = [str(name).strip() for name in names]
    if "" in names[first:]:
        column = names.index("", first)
        way_out = "say --row-names if it names the rows" if column == 0 else "name it"
        raise DataError(f"{path}: column {column + 1} has no name; {way_out}")
    repeated = [name for name, count in collections.Counter(names[first:]).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(f"{path}: variable names must differ; repeated: {', '.join(repeated[:5])}{more}")
    return names[first:]


def finite(values: np.ndarray, names: Sequence[str] | None, path: Path, missing: bool = False) -> np.ndarray:
    """Return the matrix as C-contiguous float64; `missing` says whether values may be NaN."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {values.dtype}, not numbers")
    if names is not None and values.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names for {values.shape[1]} variables")
    values = np.ascontiguousarray(values, dtype=np.float64)
    bad = np.argwhere(np.isinf(values) if missing else ~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        name = "" if names is None else f" ({names[column]!r})"
        fault = "missing" if np.isnan(values[row, column]) else "infinite"
        way_out = "; say --missing drop-rows (missing='drop-rows') or impute them" if fault == "missing" else ""
        raise DataError(
            f"{path}, row {row + 1}, column {column + 1}{name}: a value is {fault} ({len(bad)} such in all){way_out}"
        )
    return values
