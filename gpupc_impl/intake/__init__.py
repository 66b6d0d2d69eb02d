"""The conversion of the user's data (a file, a DataFrame, an AnnData object or an array) to a table for a problem.

No value is imputed, and no sample is dropped without a request: missing values are an error unless the user chooses
another of `MISSING`. Probable mistakes (genes in rows, categories written as numbers) cause a warning that explains how
to correct them.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.family import families
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.rows import RowStream
from gpupc_impl.intake.messages import column_names, is_frame, shown, warn
from gpupc_impl.intake.missing import MISSING, without_missing
from gpupc_impl.intake.objects import anndata_frame, check_objects, check_rows, check_shape
from gpupc_impl.tables import Table, read_table
from gpupc_impl.tables import TableFormat as TableFormat
from gpupc_impl.tables.columns import FEW_VALUES, REPEATS, typed
from gpupc_impl.tables.streams import is_streamed

MANY_VARIABLES = 5
"""The ratio of columns to rows from which a table may have its variables in rows."""

FEWEST_SAMPLES = 4
"""The lower bound on the samples with which Fisher's z test can separate two variables."""

NEARLY_UNIQUE = 0.9
"""The share of distinct labels among the rows from which a column is assumed to hold identifiers."""


@dataclasses.dataclass(frozen=True)
class InputTable:
    """The user's data: samples in rows and variables in columns, or a correlation matrix.

    Attributes:
        values: an array, a DataFrame, a `RowStream` of a large table of numbers, or a list of completed tables.
        names: the variables' names; None if `values` contains them or there are none.
        kind: ``"numbers"``; ``"labels"`` of categories; ``"both"``, some columns of each; or ``"correlation"``.
        label_columns: names of the columns of a DataFrame that hold labels.
        summary: a description of the data in one line.
        counts: whether the numbers are known to be counts, and not codes of categories.
    """

    values: Any
    names: Sequence[str] | None
    kind: str
    label_columns: tuple[str, ...] = ()
    summary: str = ""
    counts: bool = False


def read_input(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    kind: str | None = None,
    missing: str = "error",
    transpose: bool | None = None,
    form: TableFormat | None = None,
    correlation: bool = False,
) -> InputTable:
    """Read the user's data, transpose them if requested and handle missing values.

    Args:
        data: the path of a file (see `gpupc_impl.tables.read_table`), a DataFrame, an AnnData object or an array.
        names: the variables' names, if the data have none.
        kind: the kind of the columns, if it is known: ``"numbers"``, ``"labels"`` or ``"both"``; None infers it.
        missing: one of `MISSING`; under ``"imputed"`` the data are a list of tables.
        transpose: whether variables are in rows and samples in columns, as is usual for genes; the row names of a
            DataFrame then name the variables. None means that they are not, with a warning if the shape suggests
            otherwise.
        form: the format of the table; None infers it.
        correlation: whether the data are a correlation matrix, which is not examined here.

    Raises:
        InvalidProblem: a value is missing, no sample is left, or the data look like a correlation matrix.
        gpupc_impl.tables.DataError, OSError: the file, or a column of text, cannot be used.
    """
    if missing not in MISSING:
        raise InvalidProblem(f"missing is {missing!r}; choose one of: {', '.join(MISSING)}")
    if correlation and (missing != "error" or transpose):
        raise InvalidProblem("n_samples says that data is a correlation matrix; missing and transpose are for samples")
    if missing == "imputed":
        return _imputed(data, names=names, kind=kind, transpose=transpose, form=form)
    form = form or TableFormat()
    if isinstance(data, (str, os.PathLike)):
        table = read_table(Path(data), form, kind, bool(transpose), not correlation and kind in (None, "numbers"))
        names = table.names if names is None else names
    else:
        table, names = _in_memory(data, names, kind, form, bool(transpose))
    data = table.values
    check_shape(data)
    if correlation:
        _refuse_indefinite(data)
        return InputTable(data, names, "correlation", summary=f"a correlation matrix of {len(data):,} variables")
    label_columns = _label_columns(data)
    inferred = _kind(data, label_columns, kind)
    rows = np.shape(data)[0] if np.ndim(data) == 2 else 0
    # Otherwise no family supports the data.
    if missing != "pairwise" or _kind(data, label_columns, "numbers") == "numbers":
        data = without_missing(data, names, kind or inferred, missing, table)
    if np.ndim(data) == 2:
        if kind in (None, "numbers") and not label_columns:
            _refuse_correlations(data)
        if transpose is None:
            _warn_of_orientation(data)
        _warn_of_identifiers(data.head if isinstance(data, RowStream) else data, names, label_columns)
        if inferred == "numbers" and kind != "labels" and 0 < len(data) < FEWEST_SAMPLES:
            warn(f"{len(data)} sample(s) are too few to test anything with: every variable stays beside every other")
    only_labels = "labels" in (kind, inferred)
    summary = _summary(data, rows, None if only_labels else len(label_columns), table.remark)
    return InputTable(data, names, inferred, label_columns, summary, table.counts)


def _imputed(tables: Any, **options: Any) -> InputTable:
    """Return the completed tables of a list as one input table, whose values are a list as well."""
    if not isinstance(tables, (list, tuple)) and np.ndim(tables) != 3:
        raise InvalidProblem(
            "missing='imputed' takes a list of completed tables, in each of which other values were imputed; data is "
            f"{type(tables).__name__}"
        )
    read = [read_input(table, **options) for table in tables]
    kinds = {table.kind for table in read}
    if kinds - {"numbers"}:
        raise InvalidProblem("missing='imputed' pools correlations, and a table has columns of text or categories")
    if not read:
        raise InvalidProblem("data has no completed table; give two or more")
    names = [table.names for table in read]
    if any(each != names[0] for each in names):
        raise InvalidProblem("the completed tables have different names; give tables with the same columns")
    summary = f"{len(read)} completed tables, the first of {read[0].summary}"
    return InputTable([table.values for table in read], names[0], "numbers", summary=summary)


def _in_memory(
    data: Any, names: Sequence[str] | None, kind: str | None, form: TableFormat, transpose: bool
) -> tuple[Table, Sequence[str] | None]:
    """Return the table of an object, with the types of a DataFrame's columns inferred from their cells, and its
    names."""
    if hasattr(data, "obs_names") and hasattr(data, "to_df"):
        data = anndata_frame(data)
    check_rows(data)
    if transpose:
        data, names = _transposed(data, names)
    labels = getattr(data, "columns", names)

    def place(row: int, column: int) -> str:
        return f"row {row} of column {str(labels[column] if labels is not None else f'V{column}')!r}"

    remark = ""
    check_objects(data, place)
    if is_frame(data):
        data, remark = typed(data, kind, place, form.decimal, form.missing_values)
    elif kind in (None, "numbers") and mapped.base_memmap(data) is not None and is_streamed(data.shape):
        data = RowStream.of(data)
    elif kind in (None, "numbers") and isinstance(data, np.ndarray) and data.dtype.kind in "OU" and data.ndim == 2:
        data, remark = _typed_array(data, place, form)
    return Table(data, None, place, remark), names


def _typed_array(data: np.ndarray, place: Any, form: TableFormat) -> tuple[Any, str]:
    """Convert an array of text or of objects to float64 if every column holds numbers; otherwise return it
    unchanged."""
    import pandas as pd

    frame, remark = typed(pd.DataFrame(data), None, place, form.decimal, form.missing_values)
    return (data, "") if _label_columns(frame) else (frame.to_numpy(np.float64), remark)


def _summary(data: Any, rows: int, n_labels: int | None, remark: str) -> str:
    """Return a description of the data in one line; `n_labels` is None if all columns are categories."""
    n, p = np.shape(data) if np.ndim(data) == 2 else (0, 0)
    n_labels = p if n_labels is None else n_labels
    parts = [f"{rows:,} rows", f"{p:,} columns ({p - n_labels:,} of numbers, {n_labels:,} of categories)"]
    parts += [f"{rows - n:,} rows dropped"] * (n != rows) + [f"numbers with {remark}"] * bool(remark)
    parts += ["read some rows at a time"] * isinstance(data, RowStream)
    return ", ".join(parts)


def choose_family(table: InputTable, requested: str | None) -> str:
    """Return the requested family, or by default that of the table's kind.

    Raises:
        InvalidProblem: the table has labels and the family's test takes numbers, or the table has columns of both kinds
            and no family is the default for them.
    """
    known = families()
    kind = "numbers" if table.kind == "correlation" else table.kind
    family = requested
    if requested is None:
        family = next((each.name for each in known.values() if each.default and each.data == kind), None)
    if table.kind == "correlation" or (family is not None and known[family].data != "numbers"):
        return family
    if kind != "numbers":
        raise InvalidProblem(_labels_refused(table, family))
    if not table.counts:
        _warn_of_categories(table, family)
    return family


def _labels_refused(table: InputTable, family: str | None) -> str:
    """Return the reason why a test of numbers cannot take the table, and the way out."""
    ways = []
    categories = "say"
    if table.kind == "both":
        ways = [f"say family={name!r} (--family {name}), which takes both" for name in _families_of("both")]
        ways += ["leave the columns of one kind out", "make numbers of the text (pandas.get_dummies)"]
        categories = "or make categories of the numbers (pandas.qcut) and say"
    ways.append(f"{categories} {_options_of('labels')}")
    test = "the default test" if family is None else f"the {family} test"
    return (
        f"{len(table.label_columns)} column(s) ({shown(table.label_columns)}) hold text or categories"
        f"{' and the others numbers' if table.kind == 'both' else ''}; {test} takes numbers: {', '.join(ways)}"
    )


def _families_of(kind: str) -> list[str]:
    """Return the names of the families whose tests take this kind of data."""
    return [family.name for family in families().values() if family.data == kind]


def _options_of(kind: str) -> str:
    """Return the options, in Python and on the command line, that choose a family for this kind of data."""
    return " or ".join(f"family={name!r} (--family {name})" for name in _families_of(kind))


# --- orientation -----------------------------------------------------------------------------------------------------


def _matrix(data: Any) -> np.ndarray | None:
    """Return a square table of at least two rows as float64; None for any other table."""
    n, p = np.shape(data)
    if n != p or n < 2:
        return None
    try:
        return np.asarray(data, np.float64)
    except (TypeError, ValueError):  # The problem reports the fault.
        return None


def _refuse_correlations(data: Any) -> None:
    """Refuse a matrix of correlations that is passed as samples."""
    matrix = _matrix(data)
    if matrix is not None and (np.diag(matrix) == 1).all() and np.array_equal(matrix, matrix.T):
        raise InvalidProblem(
            f"data is a symmetric {len(matrix)} x {len(matrix)} matrix with ones on its diagonal, a correlation "
            "matrix; say n_samples, the number of samples behind it (--correlation --n-samples)"
        )


def _refuse_indefinite(data: Any) -> None:
    """Refuse a correlation matrix that no data can have; the problem reports its other faults."""
    matrix = _matrix(data) if np.ndim(data) == 2 else None
    if matrix is None or not np.isfinite(matrix).all() or not np.array_equal(matrix, matrix.T):
        return
    try:
        np.linalg.cholesky(matrix + INDEFINITE * len(matrix) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(matrix)[0]
        raise InvalidProblem(
            f"the correlation matrix is not positive semi-definite (its least eigenvalue is {least:.3g}), so no data "
            "have it; compute it from complete samples, or give the samples with missing='pairwise'"
        ) from None


INDEFINITE = 1e-6
"""The upper bound on negative eigenvalues, per variable, that count as rounding errors."""


def _warn_of_identifiers(data: Any, names: Sequence[str] | None, label_columns: Sequence[str]) -> None:
    """Warn of a column whose labels differ in nearly every row, and of a first column that counts the rows."""
    n = len(data)
    if n < 2 * REPEATS:
        return
    if is_frame(data):
        unique = [
            name
            for k, name in enumerate(map(str, data.columns))
            if name in label_columns and data.iloc[:, k].nunique() >= NEARLY_UNIQUE * n
        ]
        if unique:
            warn(
                f"{len(unique)} column(s) ({shown(unique)}) hold a label of their own for nearly every row, as names "
                "of rows do; leave them out (--row-names, row_names=True for a first column), since no test finds "
                "anything in them"
            )
    if n < 2 * FEW_VALUES:
        return
    try:
        first = np.asarray(data.iloc[:, 0] if is_frame(data) else np.asarray(data)[:, 0], np.float64)
    except (TypeError, ValueError):
        return
    if np.shape(data)[1] > 1 and float(first[0]).is_integer() and (np.diff(first) == 1).all():
        warn(
            f"the first column ({str(column_names(data, names)[0])!r}) counts the rows from {first[0]:g} on and is "
            "taken for a variable; if it names the rows, leave it out (--row-names, row_names=True)"
        )


def _transposed(data: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Return the transposed table, with the type of each column of a DataFrame inferred again, and its names."""
    if not is_frame(data):
        return np.asanyarray(data).T, names
    import pandas as pd

    frame = data.T.infer_objects()
    if names is None and isinstance(data.index, pd.RangeIndex):
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    return frame, names


def _warn_of_orientation(data: Any) -> None:
    """Warn of a shape that suggests variables in rows."""
    n, p = np.shape(data) if np.ndim(data) == 2 else (0, 0)
    if 0 < n * MANY_VARIABLES <= p:
        warn(
            f"the table is read as {n:,} samples (rows) of {p:,} variables (columns); if its rows are the variables, "
            "as in a table of genes by samples, say transpose=True (--transpose); if the table is right, "
            "transpose=False (--no-transpose) silences this warning"
        )


# --- kinds -----------------------------------------------------------------------------------------------------------


def _label_columns(data: Any) -> tuple[str, ...]:
    """Return the names of the columns of a DataFrame that hold no numbers."""
    if not is_frame(data):
        return ()
    return tuple(str(name) for name, dtype in data.dtypes.items() if dtype.kind not in "iufc")


def _kind(data: Any, label_columns: tuple[str, ...], expected: str | None) -> str:
    """Return `InputTable.kind`; columns that can be read both ways count as the expected kind, and as numbers if other
    columns hold numbers."""
    if not label_columns:
        return "numbers"
    only_labels = len(label_columns) == data.shape[1]
    if expected == "labels" or (only_labels and expected is None):
        return "labels"
    if all(map(_is_numeric, (data.iloc[:, k] for k in range(data.shape[1])))):
        return "numbers"
    return "labels" if only_labels else "both"


def _is_numeric(column: Any) -> bool:
    """Return whether a column can be read as numbers, which includes Booleans and objects that are numbers."""
    if column.dtype.kind in "iufcb":
        return True
    try:
        np.asarray(column.dropna(), np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _warn_of_categories(table: InputTable, family: str) -> None:
    """Warn of columns of integers with few distinct values, which may be categories."""
    few = few_values(table.values)
    options = _options_of("labels")
    if few.any() and options:
        columns, names = np.flatnonzero(few), column_names(table.values, table.names)
        warn(
            f"{len(columns):,} of {len(few):,} columns ({shown([names[k] for k in columns])}) hold whole numbers "
            f"with at most {FEW_VALUES} different values, which the {family} test takes for measurements; if they are "
            f"categories, say {options}"
        )


def few_values(values: Any) -> np.ndarray:
    """Return whether columns hold integers with few distinct values (see `FEW_VALUES` and `REPEATS`): (p,)
    bool."""
    try:
        values = np.asarray(values.head if isinstance(values, RowStream) else values, np.float64)
    except (TypeError, ValueError):  # The problem reports the fault.
        return np.zeros(0, bool)
    if values.ndim != 2 or len(values) < 2 * REPEATS:
        return np.zeros(0, bool)
    few = np.zeros(values.shape[1], bool)
    with np.errstate(invalid="ignore"):
        first = values[:64]
        candidates = np.flatnonzero(((first == np.rint(first)) | np.isnan(first)).all(axis=0))
    for k in candidates:
        column = values[:, k]
        column = column[np.isfinite(column)]
        if len(column) and (column == np.rint(column)).all():
            distinct = len(np.unique(column))
            few[k] = 2 <= distinct <= FEW_VALUES and distinct * REPEATS <= len(column)
    return few
