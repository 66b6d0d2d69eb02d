"""The treatment of missing values in a user's table, which are refused, dropped with their samples, or left to a test
that supports them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.rows import RowStream
from gpupc_impl.intake.messages import SHOWN, column_names, is_frame, shown, warn
from gpupc_impl.tables import Table

MISSING = ("error", "drop-rows", "pairwise", "imputed")
"""The ways to treat missing values: refuse the data; drop the samples that have any; compute each correlation from the
samples that have both variables; or pool the tests of several tables in which the missing values are imputed."""

TREATMENTS = MISSING[2:]
"""Those that need a test of their own (`core.family.Family.treatments`)."""


def without_missing(data: Any, names: Sequence[str] | None, kind: str, missing: str, table: Table) -> Any:
    """Return the data without missing values or, under ``"pairwise"``, numbers with NaN for missing values.

    Raises:
        InvalidProblem: a value is missing and `missing` is ``"error"``, or no sample is complete.
    """
    if isinstance(data, RowStream):
        counts, first, incomplete = (
            data.statistics.missing,
            data.statistics.first_missing,
            data.statistics.incomplete_rows,
        )
        if first is None:
            return data
    else:
        absent = _absent(data, kind)
        if absent is None:
            return data
        rows = absent.any(axis=1)
        counts, incomplete = absent.sum(axis=0), int(rows.sum())
        first = int(rows.argmax()), int(absent[rows.argmax()].argmax())
    columns, labels, complete = np.flatnonzero(counts), column_names(data, names), len(data) - incomplete
    summary = (
        f"{int(counts.sum()):,} value(s) missing in {len(columns):,} column(s) "
        f"({shown([labels[k] for k in columns])}), the first in {table.place(*first)}"
    )
    if missing == "error":
        pairs = "; missing='pairwise' (Gaussian test only) takes for each pair of variables the samples that hold both"
        raise InvalidProblem(
            f"data has {summary}; impute them, or say missing='drop-rows' (--missing drop-rows), which leaves "
            f"{complete:,} of {len(data):,} samples{pairs if kind == 'numbers' else ''}"
            f"{_categories_hint(data, columns)}"
        )
    if missing == "pairwise":
        if isinstance(data, RowStream):
            return data
        if is_frame(data):  # Nullable types have several missing values.
            return data.where(~absent, np.nan).astype(np.float64)
        return np.ma.filled(np.ma.asarray(data, np.float64), np.nan)
    if not complete:
        worst = [k for k in np.argsort(-counts, kind="stable")[:SHOWN] if counts[k]]
        most = ", ".join(f"{labels[k]!r}: {int(counts[k]):,}" for k in worst)
        raise InvalidProblem(
            f"data has {summary}: no sample is complete, so missing='drop-rows' leaves none; leave out the columns "
            f"with the most ({most}), or impute them"
        )
    warn(f"{incomplete:,} of {len(data):,} samples have missing values and are dropped; {complete:,} are left")
    if isinstance(data, RowStream):
        return dataclasses.replace(data, shape=(complete, data.shape[1]), complete_only=True)
    return data[~rows] if is_frame(data) else np.asanyarray(data)[~rows]


def _categories_hint(data: Any, columns: np.ndarray) -> str:
    """Return a hint for a message if a category may have the name of a missing value, such as "none"; otherwise ""."""
    if not is_frame(data) or all(data.dtypes.iloc[k].kind in "iuf" for k in columns):
        return ""
    return "; missing_values=[] (--missing-values '') makes a category of every cell that is not empty"


def _absent(data: Any, kind: str) -> np.ndarray | None:
    """Return (n, p) bool that marks missing values; None if no value is missing."""
    if is_frame(data):
        absent = data.isna().to_numpy()
    elif isinstance(data, np.ma.MaskedArray):
        absent = np.ma.getmaskarray(data) | (np.isnan(data.data) if data.dtype.kind in "fc" else False)
    else:
        try:
            values = np.asarray(data) if kind == "numbers" or hasattr(data, "dtype") else np.array(data, dtype=object)
        except ValueError:  # The rows differ in length, which the problem reports.
            return None
        if values.dtype.kind in "fc":
            if values.ndim == 2 and not any(mapped.by_pieces(values, lambda rows: np.isnan(values[rows]).any())):
                return None
            absent = np.isnan(values)
        elif values.dtype.kind == "O":
            import pandas as pd

            absent = pd.isna(values)
        else:
            return None
    return absent if absent.ndim == 2 and absent.any() else None
