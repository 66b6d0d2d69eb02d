"""From what a user has to samples that a problem takes: a file, a DataFrame, an AnnData object or an array.

Nothing is filled in, and nothing is left out unasked: missing values are an error unless `MISSING` says what to do, and
what looks mistaken (genes in rows, categories in numbers) is a warning that says how to put it right.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import families
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables import FRAMES, numbers_by_column, read_table

MISSING = ("error", "drop-rows", "pairwise")
"""What is done about missing values: refused; samples that have any are dropped; or each pair of variables has the
samples that hold both."""

FEW_VALUES = 10
"""A column of whole numbers with up to this many different ones may hold categories ..."""

REPEATS = 3
"""... if each occurs this often on average."""

MANY_VARIABLES = 5
"""Times as many variables as samples, from which on a table may have its variables in rows."""

SHOWN = 5
"""Columns that a message names."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Samples in rows and variables in columns.

    Attributes:
        values: an array or a DataFrame.
        names: the variables' names, None where `values` carries them or there are none.
        kind: ``"numbers"``, ``"labels"`` of categories, ``"both"``, of which there are columns of both, or
            ``"correlation"`` for a matrix of these.
        labelled: the columns that hold labels, of a DataFrame.
    """

    values: Any
    names: Sequence[str] | None
    kind: str
    labelled: tuple[str, ...] = ()


def take(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    kind: str | None = None,
    missing: str = "error",
    transpose: bool | None = None,
    header: bool | None = None,
    row_names: bool = False,
    correlation: bool = False,
) -> Table:
    """Read a user's table, turn it and see to its missing values.

    Args:
        data: the path of a file (see `gpupc_impl.tables.read_table`), a DataFrame, an AnnData object or an array.
        names: the variables' names, where the data carry none.
        kind: ``"numbers"``, ``"labels"`` or ``"both"``, by column, where that is known; None finds out.
        missing: one of `MISSING`.
        transpose: whether variables are in rows and samples in columns, as genes often are. The names of a DataFrame's
            rows are then those of the variables. None: no, with a warning where the shape suggests it.
        header, row_names: of a text table or a spreadsheet, see `read_table`.
        correlation: whether it is a correlation matrix, which is taken as it is.

    Raises:
        InvalidProblem: a value is missing, or dropping leaves nothing.
        gpupc_impl.tables.DataError, OSError: a file cannot be used.
    """
    if missing not in MISSING:
        raise InvalidProblem(f"missing is {missing!r}; choose one of: {', '.join(MISSING)}")
    if correlation and (missing != "error" or transpose):
        raise InvalidProblem("n_samples says that data is a correlation matrix; missing and transpose are for samples")
    if isinstance(data, (str, os.PathLike)):
        labels = True if kind in ("labels", "both") else None
        of_text = Path(data).suffix.lower() not in FRAMES
        data, read = read_table(Path(data), header, row_names, labels, missing != "error", bool(transpose))
        data = numbers_by_column(data) if kind == "both" and of_text else data
        names = read if names is None else names
    else:
        if hasattr(data, "obs_names") and hasattr(data, "to_df"):
            data = data.to_df()
        if transpose:
            data, names = _turned(data, names)
    if correlation:
        return Table(data, names, "correlation")
    labelled = _labelled(data)
    found = _kind(data, labelled, kind)
    data = _without_missing(data, names, kind or found, missing)
    if transpose is None:
        _doubt_orientation(data)
    return Table(data, names, found, labelled)


def fitting_family(table: Table, asked: str | None) -> str:
    """The family asked for, or by default that of the table's kind.

    Raises:
        InvalidProblem: the table has labels where the family's test takes numbers, or both without a family for that.
    """
    known = families()
    taking = {kind: [each.name for each in known.values() if each.data == kind] for kind in ("labels", "both")}
    if asked is None:
        kind = "numbers" if table.kind == "correlation" else table.kind
        asked = next((each.name for each in known.values() if each.default and each.data == kind), None)
    if table.kind == "correlation":
        return asked
    if asked is not None and known[asked].data != "numbers":
        return asked
    if table.kind != "numbers":
        ways = []
        if table.kind == "both":
            ways = [f"say family={name!r}, which takes both" for name in taking["both"]]
            ways += ["leave the columns of one kind out", "make numbers of the text (pandas.get_dummies)"]
            categories = "or make categories of the numbers (pandas.qcut) and say"
        else:
            categories = "say"
        ways.append(f"{categories} {' or '.join(f'family={name!r}' for name in taking['labels'])}")
        test = "the default test" if asked is None else f"the {asked} test"
        raise InvalidProblem(
            f"{len(table.labelled)} column(s) ({shown(table.labelled)}) hold text or categories"
            f"{' and the others numbers' if table.kind == 'both' else ''}; {test} takes numbers: {', '.join(ways)}"
        )
    _doubt_numbers(table, asked, taking["labels"])
    return asked


def shown(names: Sequence[Any]) -> str:
    """The first of some names, for a message."""
    more = f", ... {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(str(name)) for name in names[:SHOWN]) + more


def is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "iloc")


# --- orientation -----------------------------------------------------------------------------------------------------


def _turned(data: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """The transposed table, a DataFrame's columns again of one type each, and its names."""
    if not is_frame(data):
        return np.asanyarray(data).T, names
    import pandas as pd

    turned = data.T.infer_objects()
    if names is None and isinstance(data.index, pd.RangeIndex):
        turned.columns = [f"V{k}" for k in range(turned.shape[1])]
    return turned, names


def _doubt_orientation(data: Any) -> None:
    n, p = np.shape(data) if np.ndim(data) == 2 else (0, 0)
    if 0 < n * MANY_VARIABLES <= p:
        _warn(
            f"the table is read as {n:,} samples (rows) of {p:,} variables (columns); if its rows are the variables, "
            "as of genes by samples, say transpose=True (--transpose); transpose=False (--no-transpose): it is right"
        )


# --- kinds -----------------------------------------------------------------------------------------------------------


def _labelled(data: Any) -> tuple[str, ...]:
    """The columns of a DataFrame that hold no numbers."""
    if not is_frame(data):
        return ()
    return tuple(str(name) for name, dtype in data.dtypes.items() if dtype.kind not in "iufc")


def _kind(data: Any, labelled: tuple[str, ...], wanted: str | None) -> str:
    """See `Table.kind`; columns that can be read both ways are what is wanted, and numbers beside numbers."""
    if not labelled:
        return "numbers"
    alone = len(labelled) == data.shape[1]
    if wanted == "labels" or (alone and wanted is None):
        return "labels"
    if all(map(_converts, (data.iloc[:, k] for k in range(data.shape[1])))):
        return "numbers"
    return "labels" if alone else "both"


def _converts(column: Any) -> bool:
    """Whether a column can be read as numbers, such as Booleans and objects that are numbers."""
    if column.dtype.kind in "iufcb":
        return True
    try:
        np.asarray(column.dropna(), np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _doubt_numbers(table: Table, family: str, others: Sequence[str]) -> None:
    """Warn of whole numbers with few values, which may be categories."""
    few = few_values(table.values)
    if few.any() and others:
        p, columns = len(few), np.flatnonzero(few)
        named = (
            table.names if table.names is not None else getattr(table.values, "columns", [f"V{k}" for k in range(p)])
        )
        _warn(
            f"{len(columns):,} of {p:,} columns ({shown([named[k] for k in columns])}) hold whole numbers "
            f"with at most {FEW_VALUES} different values, which the {family} test takes for measurements; if they are "
            f"categories, say {' or '.join(f'family={name!r} (--family {name})' for name in others)}"
        )


def few_values(values: Any) -> np.ndarray:
    """(p,) bool: which columns hold whole numbers, two to `FEW_VALUES` of them, each `REPEATS` times on average."""
    try:
        values = np.asarray(values, np.float64)
    except (TypeError, ValueError):  # the problem says what is wrong
        return np.zeros(0, bool)
    if values.ndim != 2 or len(values) < 2 * REPEATS:
        return np.zeros(0, bool)
    few = np.zeros(values.shape[1], bool)
    with np.errstate(invalid="ignore"):
        some = values[:64]
        candidates = np.flatnonzero(((some == np.rint(some)) | np.isnan(some)).all(axis=0))
    for k in candidates:
        column = values[:, k]
        column = column[np.isfinite(column)]
        if len(column) and (column == np.rint(column)).all():
            different = len(np.unique(column))
            few[k] = 2 <= different <= FEW_VALUES and different * REPEATS <= len(column)
    return few


# --- missing values --------------------------------------------------------------------------------------------------


def _without_missing(data: Any, names: Sequence[str] | None, kind: str, missing: str) -> Any:
    """The data with no value missing; or, asked for pairs, numbers with NaN where one is."""
    absent = _absent(data, kind)
    if absent is None:
        return data
    columns = np.flatnonzero(absent.any(axis=0))
    rows = absent.any(axis=1)
    named = names if names is not None else getattr(data, "columns", [f"V{k}" for k in range(absent.shape[1])])
    where = (
        f"{int(absent.sum()):,} value(s) missing in {len(columns):,} column(s) "
        f"({shown([named[k] for k in columns])}), the first in row {int(rows.argmax())}"
    )
    left = int((~rows).sum())
    if missing == "error":
        pairs = "; missing='pairwise' (Gaussian test only) takes for each pair of variables the samples that hold both"
        raise InvalidProblem(
            f"data has {where}; impute them, or say missing='drop-rows' (--missing drop-rows), which leaves {left:,} "
            f"of {len(rows):,} samples{pairs if kind == 'numbers' else ''}"
        )
    if missing == "pairwise":
        if is_frame(data):  # of nullable types, with one NaN for every way to say missing
            return data.where(~absent, np.nan).astype(np.float64)
        return np.ma.filled(np.ma.asarray(data, np.float64), np.nan)
    if not left:
        worst = [k for k in np.argsort(-absent.sum(axis=0), kind="stable")[:SHOWN] if absent[:, k].any()]
        most = ", ".join(f"{named[k]!r}: {int(absent[:, k].sum()):,}" for k in worst)
        raise InvalidProblem(
            f"data has {where}: no sample is complete, so missing='drop-rows' leaves none; leave out the columns with "
            f"the most ({most}), or impute them"
        )
    _warn(f"{len(rows) - left:,} of {len(rows):,} samples have missing values and are dropped; {left:,} are left")
    return data[~rows] if is_frame(data) else np.asanyarray(data)[~rows]


def _absent(data: Any, kind: str) -> np.ndarray | None:
    """(n, p) bool: which values are missing; None where none is."""
    if is_frame(data):
        absent = data.isna().to_numpy()
    elif isinstance(data, np.ma.MaskedArray):
        absent = np.ma.getmaskarray(data) | (np.isnan(data.data) if data.dtype.kind in "fc" else False)
    else:
        try:
            values = np.asarray(data) if kind == "numbers" or hasattr(data, "dtype") else np.array(data, dtype=object)
        except ValueError:  # ragged: the problem says so
            return None
        if values.dtype.kind in "fc":
            absent = np.isnan(values)
        elif values.dtype.kind == "O":
            import pandas as pd

            absent = pd.isna(values)
        else:
            return None
    return absent if absent.ndim == 2 and absent.any() else None


def _warn(message: str) -> None:
    """To the caller of `gpupc_impl.skeleton`, about: `pc` and the command line are a call further up or down."""
    warnings.warn(message, stacklevel=5)
