"""The checks of the user's table before it becomes a problem. No value is imputed, and no sample is dropped without a
request: missing values are an error unless the user chooses another of `MISSING`. Probable mistakes (genes in rows,
categories written as numbers) cause a warning that explains how to correct them."""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.family import Family, default_family, families
from gpupc_impl.core.mapped_arrays import by_pieces
from gpupc_impl.core.problem import InvalidProblem, check_choice, variable_names
from gpupc_impl.core.rows import RowStream
from gpupc_impl.tables import Table, is_frame, read_table
from gpupc_impl.tables import TableFormat as TableFormat
from gpupc_impl.tables.columns import FEW_VALUES, REPEATS, Place

MISSING = ("error", "drop-rows", "pairwise", "imputed")
TREATMENTS = MISSING[2:]
SHOWN = 5  # number of columns that a message names
MANY_VARIABLES = 5  # columns for each row from which a table may have its variables in rows
FEWEST_SAMPLES = 4  # samples with which Fisher's z test can separate two variables
NEARLY_UNIQUE = 0.9  # share of distinct labels from which a column seems to hold identifiers
FIRST_ROWS = 1 << 12  # rows in which the values of a second header line are looked for
FIRST_STATES = 512  # rows in which categories are counted
FIRST_COLUMNS = 64  # in which a symmetric matrix is looked for first
COPY = 1e-12  # how far the correlation of a copy may be from one
LEAST_CODE, FAR = 9, 3  # of the magnitude of a code, and of its distance from other values in their ranges
DATES = (19000101, 21001231)  # whole numbers between which dates are written
INDEFINITE = 1e-6  # negative eigenvalues per variable up to here are rounding errors


def read_input(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    kind: str | None = None,
    missing: str = "error",
    transpose: bool | None = None,
    form: TableFormat | None = None,
    correlation: bool = False,
) -> Table:
    """Read the user's data, handle missing values and look for probable mistakes. Arguments are as for `skeleton`, but
    `kind` and `form` as for `read_table`; `correlation` says whether the data are a correlation matrix."""
    check_choice("missing", missing, MISSING)
    if correlation and (missing != "error" or transpose):
        raise InvalidProblem("n_samples says that data is a correlation matrix; missing and transpose are for samples")
    if missing == "imputed":
        return _imputed(data, names=names, kind=kind, transpose=transpose, form=form)
    streamed = not correlation and kind in (None, "numbers")
    table = read_table(data, names, form=form, kind=kind, transpose=bool(transpose), streamed=streamed)
    values = table.values
    if np.ndim(values) != 2:  # The problem reports the fault.
        return dataclasses.replace(table, kind="correlation" if correlation else "numbers")
    rows, p = np.shape(values)
    if 0 in (rows, p):
        raise InvalidProblem(
            f"data has {rows:,} samples (rows) and {p:,} variables (columns); give at least one of each"
        )
    if table.names is not None:
        variable_names(table.names, p)  # refuses too few or too many
    if correlation:
        _refuse_indefinite(values)
        return dataclasses.replace(table, kind="correlation", summary=f"a correlation matrix of {rows:,} variables")
    dtypes = values.dtypes if is_frame(values) else {}
    label_columns = tuple(str(name) for name, dtype in dtypes.items() if dtype.kind not in "iufc")
    inferred = _kind(values, label_columns, kind)
    # Otherwise no family supports the data.
    if missing != "pairwise" or _kind(values, label_columns, "numbers") == "numbers":
        values = _without_missing(values, table, kind or inferred, missing)
    head, names = _head(values), column_names(values, table.names)
    _refuse_second_header(head, table.place)
    if table.names is not None or is_frame(head):
        _warn_of_unnamed(names)
    labelled = set(label_columns)
    measured = [k for k in range(p) if str(names[k]) not in labelled] if labelled else slice(None)
    numbers = _as_numbers(head.iloc[:, measured] if is_frame(head) else head) if kind != "labels" else None
    if numbers is not None and numbers.size:
        if not label_columns:
            _refuse_matrix(numbers, len(values))
        of_numbers: Sequence[Any] = np.asarray(names, object)[measured].tolist()
        _warn_of_codes(numbers, of_numbers, table.place)
        _warn_of_copies(numbers, of_numbers)
    if p == 1:
        warn(f"the table has one variable, {str(names[0])!r}; if its cells hold more, say delimiter= (--delimiter)")
    if transpose is None and len(values) * MANY_VARIABLES <= p:
        warn(
            f"the table is read as {len(values):,} samples (rows) of {p:,} variables (columns); if its rows are the "
            "variables, as in a table of genes by samples, say transpose=True (--transpose); if the table is right, "
            "transpose=False (--no-transpose) silences this warning"
        )
    _warn_of_identifiers(head, names, label_columns)
    if inferred == "numbers" and kind != "labels" and len(values) < FEWEST_SAMPLES:
        warn(f"{len(values)} sample(s) are too few to test anything with: every variable stays beside every other")
    n_labels = p if "labels" in (kind, inferred) else len(label_columns)
    summary = f"{rows:,} rows, {p:,} columns ({p - n_labels:,} of numbers, {n_labels:,} of categories)"
    summary += f", {rows - len(values):,} rows dropped" * (rows != len(values))
    summary += f", numbers with {table.remark}" * bool(table.remark)
    summary += ", read some rows at a time" * isinstance(values, RowStream)
    return dataclasses.replace(table, values=values, kind=inferred, label_columns=label_columns, summary=summary)


def _imputed(tables: Any, **options: Any) -> Table:
    if not isinstance(tables, (list, tuple)) and np.ndim(tables) != 3:
        raise InvalidProblem(
            "missing='imputed' takes a list of completed tables, in each of which other values were imputed; data is "
            f"{type(tables).__name__}"
        )
    read = [read_input(table, **options) for table in tables]
    if any(table.kind != "numbers" for table in read):
        raise InvalidProblem("missing='imputed' pools correlations, and a table has columns of text or categories")
    if not read:
        raise InvalidProblem("data has no completed table; give two or more")
    names = [None if table.names is None else list(table.names) for table in read]
    if any(each != names[0] for each in names):
        raise InvalidProblem("the completed tables have different names; give tables with the same columns")
    summary = f"{len(read)} completed tables, the first of {read[0].summary}"
    return dataclasses.replace(read[0], values=[table.values for table in read], names=names[0], summary=summary)


def choose_family(table: Table, family: Family | None = None) -> Family:
    """Return the family, or the default one of such tables; refuse a table that it cannot test, or warn of one."""
    kind = "numbers" if table.kind == "correlation" else table.kind
    family = family or default_family(kind)
    if family is not None and (table.kind == "correlation" or family.data != "numbers"):
        if family.data == "labels" and np.ndim(table.values) == 2:
            _warn_of_sparse(table)
        return family
    if family is None or kind != "numbers":
        raise InvalidProblem(_labels_refused(table, family))
    if not table.counts and (few := few_values(table.values)).any() and (options := " or ".join(_options_of("labels"))):
        columns, names = np.flatnonzero(few), column_names(table.values, table.names)
        warn(
            f"{len(columns):,} of {len(few):,} columns ({shown([names[k] for k in columns])}) hold whole numbers "
            f"with at most {FEW_VALUES} different values, which the {family.name} test takes for measurements; if they "
            f"are categories, say {options}"
        )
    return family


def _warn_of_sparse(table: Table) -> None:
    """Warn of two variables whose table has fewer samples than cells."""
    first, names = _head(table.values)[:FIRST_STATES], column_names(table.values, table.names)
    if not is_frame(first) and first.dtype.kind in "biuf":
        states = 1 + np.count_nonzero(np.diff(np.sort(first, axis=0), axis=0), axis=0)
    else:
        import pandas

        states = pandas.DataFrame(first).nunique(dropna=False).to_numpy()
    most = np.argsort(states, kind="stable")[-2:].tolist()
    cells = int(states[most].prod())
    if len(table.values) < cells and len(most) == 2:
        warn(
            f"the table of {str(names[most[1]])!r} and {str(names[most[0]])!r} has {states[most[1]]} x "
            f"{states[most[0]]} cells, with {len(table.values) / cells:.2g} samples for each; chi-square needs about "
            "five, and with fewer a missing edge is no evidence: merge rare categories"
        )


def _labels_refused(table: Table, family: Family | None) -> str:
    ways = [f"say {' or '.join(_options_of('labels'))}"]
    if table.kind == "both":
        ways = [
            *(f"say {option}, which takes both" for option in _options_of("both")),
            "leave the columns of one kind out",
            "make numbers of the text (pandas.get_dummies)",
            f"or make categories of the numbers (pandas.qcut) and {ways[0]}",
        ]
    test = "the default test" if family is None else f"the {family.name} test"
    return (
        f"{len(table.label_columns)} column(s) ({shown(table.label_columns)}) hold text or categories"
        f"{' and the others numbers' if table.kind == 'both' else ''}; {test} takes numbers: {', '.join(ways)}"
    )


def _options_of(kind: str) -> list[str]:
    names = [family.name for family in families().values() if family.data == kind]
    return [f"family={name!r} (--family {name})" for name in names]


def _head(data: Any) -> Any:
    return data.head if isinstance(data, RowStream) else data


def _by_pieces(values: np.ndarray, function: Callable[[np.ndarray], Any]) -> list[Any]:
    """Call a function with pieces of a matrix that lie in memory one after another, with several threads."""
    values = values.T if values.flags.f_contiguous else values
    return by_pieces(values, lambda rows: function(values[rows]))


def _as_numbers(data: Any) -> np.ndarray | None:
    """Return a table as float64; None if it holds something else, a fault that the problem reports."""
    try:
        return np.asarray(data, np.float64)
    except (TypeError, ValueError):
        return None


def _refuse_matrix(values: np.ndarray, n: int) -> None:
    """Refuse a matrix of correlations, covariances or distances that is passed as samples, in n rows. R's cov.wt writes
    up to two columns of means and numbers of samples beside a matrix, other programs half a matrix, or few digits."""
    if not 2 <= n <= values.shape[1] <= n + 2:
        return
    for rows in (FIRST_COLUMNS, n):  # Few matrices of samples pass the first look.
        matrix = values[:rows, : min(rows, n)]
        if not np.allclose(matrix, matrix.T, rtol=1e-4, equal_nan=True) and np.triu(matrix, 1).any():
            return
    if (np.diag(matrix) == 1).all():
        raise InvalidProblem(
            f"data is a symmetric {n} x {n} matrix with ones on its diagonal, a correlation matrix; say n_samples, the "
            "number of samples behind it (--correlation --n-samples)"
        )
    raise InvalidProblem(
        f"data is a symmetric {n} x {n} matrix, which no samples are; divide covariances by the standard deviations of "
        "both variables, and say n_samples, the number of samples behind them (--correlation --n-samples)"
    )


def _refuse_second_header(data: Any, place: Place) -> None:
    """Refuse categories below a row with a value of its own in every column, such as types; few may be measurements."""
    n, p = np.shape(data)
    many = 0
    if n < 2 * REPEATS or p < 2:
        return
    for k in range(p):
        for rows in (2 * FEW_VALUES, FIRST_ROWS):  # The first rows of measurements already have too many values.
            column = np.asarray(data.iloc[:rows, k] if is_frame(data) else data[:rows, k], object)
            others = set(column[1:])
            if column[0] in others or column[0] != column[0] or len(others) < 2:
                return
            if len(others) > min(FEW_VALUES, n // REPEATS):
                many += 1
                break
        if many > min(FEW_VALUES, p // 2):
            return
    raise InvalidProblem(
        f"{place(0, 0)} begins a row that has, in every column, a value that no other row has, like a second header "
        "line of numbers of categories, types or units; delete it, or move it down if it is a sample"
    )


def _warn_of_unnamed(names: Sequence[Any]) -> None:
    unnamed = [name for name in names if str(name) in ("", "nan", "None") or str(name).startswith("Unnamed: ")]
    if unnamed:
        warn(
            f"{len(unnamed)} column(s) ({shown(unnamed)}) have no name, as an index that was written with its table; "
            "leave them out (--row-names, row_names=True for a first column of a file), or name them"
        )


@np.errstate(invalid="ignore")  # of infinite values, which the problem refuses
def _warn_of_codes(values: np.ndarray, names: Sequence[Any], place: Place) -> None:
    """Warn of repeated extreme values far from others, such as -999, and of dates written as whole numbers."""
    if len(values) < 2 * REPEATS:
        return
    if all(_by_pieces(values, lambda piece: max(piece.max(), -piece.min()) < LEAST_CODE)):
        return  # No value is missing, since comparisons with NaN are false.
    found, firsts = [], 0
    lowest, highest = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    for k in np.flatnonzero((lowest >= DATES[0]) & (highest <= DATES[1])):
        if _are_dates(values[:, k]):
            warn(f"column {str(names[int(k)])!r} holds dates such as {lowest[k]:.0f}; make numbers of days of them")
    for extremes, opposite in ((lowest, highest), (highest, lowest)):
        # Codes are in one half of the range, and all other values in the other half. What is far from those is far from
        # the first ones, which are looked at together.
        first = np.where(abs(values[:64] - extremes) < abs(values[:64] - opposite), np.nan, values[:64])
        near = np.fmin.reduce(np.abs(first - extremes), axis=0)
        spread = np.fmax.reduce(first, axis=0) - np.fmin.reduce(first, axis=0)
        for k in np.flatnonzero((np.abs(extremes) >= LEAST_CODE) & ~(near <= FAR * spread)):
            column = values[np.isfinite(values[:, k]), k]
            are_codes = abs(column - extremes[k]) < abs(column - opposite[k])
            rest, codes = column[~are_codes], np.unique(column[are_codes])
            if not max(codes[0] - rest.max(), rest.min() - codes[-1]) > FAR * np.ptp(rest) > 0 or len(codes) > SHOWN:
                continue
            if len(codes) < are_codes.sum() >= 2 * len(codes) - 1:
                found += [(names[int(k)], str(code).removesuffix(".0")) for code in codes.tolist()]
            else:
                firsts += len(codes) == 1 and values[0, k] == codes[0]
    if firsts == len(names) > 1:
        warn(f"{place(0, 0)} begins a row far from all others, like a second header line; if it is, delete it")
    if found:
        coded, marks = list(dict.fromkeys(name for name, _ in found)), sorted({code for _, code in found})
        warn(
            f"{len(coded)} column(s) ({shown(coded)}) repeat a value far from all others "
            f"({', '.join(marks[:5])}), as codes of missing values do; if they are, say missing_values={marks[:5]!r} "
            f"({' '.join(f'--missing-values={mark}' for mark in marks[:5])}) and missing='drop-rows'"
        )


def _warn_of_copies(values: np.ndarray, names: Sequence[Any]) -> None:
    """Warn of columns that are others, shifted or scaled: no test between them is defined, so all sets are tried."""
    if len(values) >= FEWEST_SAMPLES:
        weights, keys = np.sqrt(np.arange(2, 66))[: len(values), None], np.empty(len(names))
        for start in range(0, len(names), FIRST_ROWS):
            first = values[:64, start : start + FIRST_ROWS]
            with np.errstate(all="ignore"):
                centred = first - first.mean(axis=0)
                scaled = (centred / np.copysign(np.linalg.norm(centred, axis=0), centred[0])).round(9)
                keys[start : start + FIRST_ROWS] = (scaled * weights).T.copy().sum(axis=1)  # those of copies are equal
        _, firsts, of_key = np.unique(keys, return_index=True, return_inverse=True)
        again = np.flatnonzero((firsts[of_key] < np.arange(len(names))) & np.isfinite(keys))
        pairs = zip(firsts[of_key[again]].tolist(), again.tolist(), strict=True)
        alike = [pair for pair in pairs if abs(np.corrcoef(values[:, pair], rowvar=False)[0, 1]) > 1 - COPY]
        if copies := [f"{names[k]} of {names[j]}" for j, k in alike]:
            warn(
                f"{len(copies)} column(s) are copies of others ({shown(copies)}), which keep edges to each other and "
                "those that one of them would have, after very many tests; leave them out"
            )


def _are_dates(column: np.ndarray) -> bool:
    month, day = column // 100 % 100, column % 100
    whole = (column == np.rint(column)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(whole.all()) and len(np.unique(column)) > REPEATS


def _refuse_indefinite(data: Any) -> None:
    matrix = _as_numbers(data)
    if matrix is None or not np.isfinite(matrix).all() or not np.array_equal(matrix, matrix.T):
        return  # The problem reports the fault.
    try:
        np.linalg.cholesky(matrix + INDEFINITE * len(matrix) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(matrix)[0]
        raise InvalidProblem(
            f"the correlation matrix is not positive semi-definite (its least eigenvalue is {least:.3g}), so no data "
            "have it; compute it from complete samples, or give the samples with missing='pairwise'"
        ) from None


def _warn_of_identifiers(data: Any, names: Sequence[Any], label_columns: Sequence[str]) -> None:
    n, p = np.shape(data)
    if n < 2 * REPEATS:
        return
    unique = [
        name
        for k, name in enumerate(map(str, data.columns) if label_columns else ())
        if name in label_columns and data.iloc[:, k].nunique() >= NEARLY_UNIQUE * n
    ]
    if unique:
        warn(
            f"{len(unique)} column(s) ({shown(unique)}) hold a label of their own for nearly every row, as names "
            "of rows do; leave them out (--row-names, row_names=True for a first column), since no test finds "
            "anything in them"
        )
    first = _as_numbers(data.iloc[:, 0] if is_frame(data) else data[:, 0])
    if n < 2 * FEW_VALUES or p < 2 or first is None:
        return
    if float(first[0]).is_integer() and (np.diff(first) == 1).all():
        warn(
            f"the first column ({str(names[0])!r}) counts the rows from {first[0]:g} on and is taken for a variable; "
            "if it names the rows, leave it out (--row-names, row_names=True)"
        )


def _kind(data: Any, label_columns: tuple[str, ...], expected: str | None) -> str:
    """Return `Table.kind`; columns that can be read both ways count as expected, or as numbers beside numbers."""
    if not label_columns:
        return "numbers"
    only_labels = len(label_columns) == data.shape[1]
    if expected == "labels" or (only_labels and expected is None):
        return "labels"
    if all(_as_numbers(data.iloc[:, k].dropna()) is not None for k in range(data.shape[1])):
        return "numbers"  # Booleans and objects can be numbers as well.
    return "labels" if only_labels else "both"


def few_values(values: Any) -> np.ndarray:
    """Return whether columns hold integers with few distinct values (see `FEW_VALUES` and `REPEATS`): (p,) bool."""
    values = _as_numbers(_head(values))
    if values is None or values.ndim != 2 or len(values) < 2 * REPEATS:
        return np.zeros(0, bool)
    few = np.zeros(values.shape[1], bool)
    with np.errstate(invalid="ignore"):
        candidates = np.arange(values.shape[1])
        for rows in (2, 64):  # two samples rule out most columns of a wide table
            some = values[:rows][:, candidates]
            candidates = candidates[((some == np.rint(some)) | np.isnan(some)).all(axis=0)]
    for k in candidates:
        distinct, counts = np.unique(values[np.isfinite(values[:, k]), k], return_counts=True)
        is_few = 2 <= len(distinct) <= FEW_VALUES and len(distinct) * REPEATS <= counts.sum()
        few[k] = is_few and (distinct == np.rint(distinct)).all()
    return few


def _without_missing(data: Any, table: Table, kind: str, missing: str) -> Any:
    """Return values without missing ones or, under ``"pairwise"``, numbers with NaN for missing values."""
    if isinstance(data, RowStream):
        statistics = data.statistics
        counts, first, incomplete = statistics.missing, statistics.first_missing, statistics.incomplete_rows
    elif is_frame(data) or (data.dtype.kind in "fc" and any(_by_pieces(data, lambda piece: np.isnan(piece.min())))):
        absent = np.asarray(data.isna() if is_frame(data) else np.isnan(data))
        rows = absent.any(axis=1)
        counts, incomplete = absent.sum(axis=0), int(rows.sum())
        first = (int(rows.argmax()), int(absent[rows.argmax()].argmax())) if incomplete else None
    else:  # No value is missing, since the least of several is NaN if one is.
        return data
    if first is None:
        return data
    columns, labels, complete = np.flatnonzero(counts), column_names(data, table.names), len(data) - incomplete
    summary = (
        f"{int(counts.sum()):,} value(s) missing in {len(columns):,} column(s) "
        f"({shown([labels[k] for k in columns])}), the first in {table.place(*first)}"
    )
    if missing == "error":
        pairs = "; missing='pairwise' (Gaussian test only) takes for each pair of variables the samples that hold both"
        hint = "; missing_values=[] (--missing-values '') makes a category of every cell that is not empty"
        if not is_frame(data) or all(data.dtypes.iloc[k].kind in "iuf" for k in columns):
            hint = ""  # No category has the name of a missing value, such as "none".
        raise InvalidProblem(
            f"data has {summary}; impute them, or say missing='drop-rows' (--missing drop-rows), which leaves "
            f"{complete:,} of {len(data):,} samples{pairs if kind == 'numbers' else ''}{hint}"
        )
    if missing == "pairwise":
        if is_frame(data):  # Nullable types have several missing values.
            return data.where(~absent, np.nan).astype(np.float64)
        return data if isinstance(data, RowStream) else np.asarray(data, np.float64)
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
    return data[~rows]


def shown(names: Sequence[Any]) -> str:
    """Return the first `SHOWN` names and the number of the others, for a message."""
    more = f", ... {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(str(name)) for name in names[:SHOWN]) + more


def column_names(data: Any, names: Sequence[str] | None) -> Sequence[Any]:
    """Return the names of the columns of (n, p) data for a message."""
    return names if names is not None else getattr(data, "columns", [f"V{k}" for k in range(np.shape(data)[1])])


def warn(message: str) -> None:
    """Issue a warning that is attributed to the user's call of the library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("gpupc_impl."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
