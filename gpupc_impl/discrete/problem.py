"""A discrete problem: coded data, and everything that changes the answer of a chi-square or G-square search."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from scipy import special

from gpupc_impl.core import placing
from gpupc_impl.core.problem import InvalidProblem, Problem, name_constants, search_parameters, variable_names

TESTS = ("chi-square", "g-square")
DF_RULES = ("full", "adjusted")

MAX_CELLS = 2**62
"""Cells of a contingency table are numbered in 64-bit integers."""

MAX_CATEGORIES = 65_535
"""Categories of one variable: codes have 16 bits."""

MAX_SAMPLES = 2**31 - 2**18
"""Samples are numbered in 32 bits, with room for the step beyond the last: 512 threads that take 256 at a time."""

_DENSE_RANGE = 1 << 20
"""Integers that lie this close together are counted, not sorted, to find which ones occur."""


@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteProblem(Problem):
    """PC-stable with Pearson's chi-square test or the G-square test (gpuPC, section 2.3).

    Build one with `from_data`, which checks its input.

    S separates Vi and Vj when the statistic is at most its critical value, that is p >= alpha. The table of a test
    is that of (min(i, j), max(i, j)) with S ascending; stratum numbers count S[0] fastest. A test without degrees of
    freedom has the statistic 0 and p = 1.

    Attributes:
        codes: (p, n) uint8, or uint16 when a variable has more than 256 categories; C-contiguous, so that a
            variable's values lie together.
        categories: (p,) int32, number of categories of each variable.
        declared: (p,) bool: the source declared the categories (True), or they are those that occur (False).
        labels: for each variable, its categories as text, in the order of their codes.
        test: ``"chi-square"`` or ``"g-square"``.
        df_rule: ``"full"``: (|Vi| - 1)(|Vj| - 1)|S| degrees of freedom, as in the paper; ``"adjusted"``: the sum of
            (r - 1)(c - 1) over the strata that occur, r and c counting the rows and columns that occur in them, as
            causal-learn does.
        tests_per_edge, decay: the workload of the paper's section 4.1 instead of a search, or None. From level 1 on
            every remaining edge gets its first `tests_per_edge` tests, whatever their outcome, and after each level
            `decayed` tells which edges are left.
    """

    family: ClassVar[str] = "discrete"
    PARAMETERS: ClassVar[Mapping[str, Any]] = {
        "test": "chi-square",
        "df_rule": "full",
        "tests_per_edge": None,
        "decay": None,
    }
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ("categories",)

    codes: np.ndarray
    categories: np.ndarray
    declared: np.ndarray
    labels: tuple[tuple[str, ...], ...]
    test: str = "chi-square"
    df_rule: str = "full"
    tests_per_edge: int | None = None
    decay: float | None = None

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        alpha: float = 0.05,
        max_level: int | None = None,
        test: str = "chi-square",
        df_rule: str = "full",
        tests_per_edge: int | None = None,
        decay: float | None = None,
        names: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[Any] | int] | None = None,
    ) -> DiscreteProblem:
        """From samples in rows and variables in columns: a DataFrame or an array of labels.

        A label is a string, a bool, an integer of any value, or a float that is a whole number. The categories of a
        column are those its Categorical dtype or `categories` declares, else those that occur, in sorted order.

        A constant variable is independent of every other: a warning names it, and it ends isolated.

        Args:
            categories: by variable name, the labels in the order of their codes, or how many there are. A column of
                integers under text labels, or under a count, holds codes from 0 on; otherwise it holds labels.

        Raises:
            InvalidProblem: wrong shape, a missing value, a value that is no label or not among the declared ones, or
                a bad parameter. The message names the column and the row.
        """
        columns, names = _columns(data, names)
        if categories is None:
            categories = {}
        if not isinstance(categories, Mapping):
            raise InvalidProblem(
                f"categories is {categories!r}; give a mapping from variable name to labels or to a count"
            )
        if unknown := sorted(set(categories) - set(names), key=str):
            raise InvalidProblem(f"categories are given for {unknown[0]!r}, which is no variable of the data")
        search = search_parameters(alpha, max_level)
        _check_parameters(test, df_rule, tests_per_edge, decay)
        coded, labels, declared = [], [], []
        for name, column in zip(names, columns, strict=True):
            codes, found, is_declared = _encode(name, column, categories.get(name))
            coded.append(codes.astype(np.uint16 if len(found) > 256 else np.uint8))
            labels.append(found)
            declared.append(is_declared)
        matrix = placing.new_array((len(names), len(coded[0])), np.result_type(*coded))
        for row, codes in zip(matrix, coded, strict=True):
            row[:] = codes
        name_constants(names, (matrix == matrix[:, :1]).all(axis=1))
        return cls(
            names=names,
            **search,
            codes=_frozen(matrix),
            categories=_frozen(np.array([len(found) for found in labels], np.int32)),
            declared=_frozen(np.array(declared, bool)),
            labels=tuple(labels),
            test=test,
            df_rule=df_rule,
            tests_per_edge=None if tests_per_edge is None else int(tests_per_edge),
            decay=None if decay is None else float(decay),
        )

    def fault(self) -> str | None:
        p, codes = self.n_variables, self.codes
        if codes.dtype not in (np.uint8, np.uint16) or codes.ndim != 2 or len(codes) != p:
            return f"its codes are {codes.dtype} {codes.shape} for {p} variables"
        for name, dtype in (("categories", np.int32), ("declared", np.bool_)):
            if (array := getattr(self, name)).dtype != dtype or array.shape != (p,):
                return f"its {name} are {array.dtype} {array.shape} for {p} variables"
        if not codes.flags.c_contiguous:
            return "its codes are not in C order"
        beyond = codes.max(axis=1, initial=0) >= self.categories if codes.size else np.zeros(p, bool)
        return f"variable {int(np.argmax(beyond))} has codes of more categories than it has" if beyond.any() else None

    @property
    def n_samples(self) -> int:
        return self.codes.shape[1]

    @property
    def decided_by_tests(self) -> bool:
        return self.tests_per_edge is None

    @functools.cached_property
    def constant(self) -> tuple[str, ...]:
        """Names of the variables of which one category occurs."""
        return tuple(name for name, codes in zip(self.names, self.codes, strict=True) if (codes == codes[0]).all())

    # --- the test ----------------------------------------------------------------------------------------------

    def degrees_of_freedom(self, i: int, j: int, S: Sequence[int] = ()) -> int:
        """(|Vi| - 1)(|Vj| - 1)|S|, the full rule (gpuPC, section 2.3)."""
        strata = math.prod(int(self.categories[v]) for v in S)
        return (int(self.categories[i]) - 1) * (int(self.categories[j]) - 1) * strata

    def critical_value(self, df: int) -> float:
        """The largest statistic that separates: chi-square's quantile 1 - alpha; 0 without degrees of freedom."""
        return _critical_value(self.alpha, int(df))

    def critical_values(self, df: np.ndarray) -> np.ndarray:
        """`critical_value` of an array, bit for bit."""
        df = np.asarray(df)
        return np.where(df > 0, special.chdtri(np.maximum(df, 1).astype(np.float64), self.alpha), 0.0)

    def p_value(self, statistic: float | np.ndarray, df: int | np.ndarray) -> float | np.ndarray:
        """The p-value of statistic(s); 1 without degrees of freedom."""
        df = np.asarray(df, np.float64)
        return np.where(df > 0, special.chdtrc(np.maximum(df, 1.0), statistic), 1.0)[()]

    @functools.cached_property
    def descending(self) -> list[int]:
        """All numbers of categories, the largest first."""
        return sorted(self.categories.tolist(), reverse=True)

    def obstacle(self, level: int) -> str | None:
        largest = self.descending[: level + 2]
        cells = math.prod(largest)
        if cells <= MAX_CELLS:
            return None
        return (
            f"tables too large: {level + 2} variables with up to {largest[0]} categories make up to "
            f"{Decimal(cells):.3g} cells at level {level}, more than the 2^62 that 64-bit indexes number; "
            f"set max_level to {max(level - 1, 0)} or merge categories"
        )

    # --- the workload of the paper's section 4.1 ------------------------------------------------------------------

    def decayed(self, edges: np.ndarray) -> np.ndarray:
        """Which of the (m, 2) sorted edges are kept after a level, (m,) bool: those at floor(k / (1 - decay)).

        A fraction `decay` of the edges goes, equally distributed (gpuPC, section 4.1).
        """
        kept = np.zeros(len(edges), bool)
        most = math.ceil(len(edges) * (1.0 - self.decay)) + 1
        positions = np.floor(np.arange(most) / (1.0 - self.decay))
        kept[positions[positions < len(edges)].astype(np.int64)] = True
        return kept

    # --- identity ---------------------------------------------------------------------------------------------------

    def outline(self) -> dict[str, Any]:
        declared = int(self.declared.sum())
        return {
            **super().outline(),
            "min_categories": self.descending[-1],
            "max_categories": self.descending[0],
            "categories_declared": declared,
            "categories_observed": len(self.declared) - declared,
            "constant_variables": len(self.constant),
        }

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 over everything that changes the answer; names and labels do not."""
        parameters = tuple(getattr(self, name) for name in self.PARAMETERS)
        digest = hashlib.sha256(
            repr((self.family, self.alpha, self.max_level, parameters, self.codes.shape, self.codes.dtype.str)).encode()
        )
        digest.update(self.categories.tobytes())
        digest.update(np.ascontiguousarray(self.codes).reshape(-1))  # as bytes, without a copy of them
        if self.fixed is not None:
            digest.update(self.fixed.digest)
        return digest.hexdigest()


@functools.lru_cache(maxsize=1 << 16)
def _critical_value(alpha: float, df: int) -> float:
    return float(special.chdtri(float(df), alpha)) if df > 0 else 0.0


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _check_parameters(test: str, df_rule: str, tests_per_edge: int | None, decay: float | None) -> None:
    if test not in TESTS:
        raise InvalidProblem(f"test is {test!r}; choose one of: {', '.join(TESTS)}")
    if df_rule not in DF_RULES:
        raise InvalidProblem(f"df_rule is {df_rule!r}; choose one of: {', '.join(DF_RULES)}")
    if (tests_per_edge is None) != (decay is None):
        raise InvalidProblem(
            f"tests_per_edge is {tests_per_edge!r} and decay is {decay!r}; give both for a fixed workload, or neither"
        )
    if tests_per_edge is not None and (tests_per_edge < 1 or int(tests_per_edge) != tests_per_edge):
        raise InvalidProblem(f"tests_per_edge is {tests_per_edge!r}; it must be a whole number of at least 1")
    if decay is not None and not 0 < decay < 1:
        raise InvalidProblem(f"decay is {decay!r}; it must lie strictly between 0 and 1")


# --- labels to codes -------------------------------------------------------------------------------------------------


def _columns(data: Any, names: Sequence[str] | None) -> tuple[Iterator[Any], tuple[str, ...]]:
    """The columns in order, and their names."""
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = [str(name) for name in data.columns] if names is None else names
        shape, columns = data.shape, (data.iloc[:, k] for k in range(data.shape[1]))
    else:
        try:  # objects: NumPy would make text of numbers and missing values beside text
            values = data if hasattr(data, "__array__") else np.array(data, dtype=object)
            values = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        except ValueError as error:
            raise InvalidProblem(f"data is not a matrix of labels: {error}") from error
        if values.ndim != 2:
            raise InvalidProblem(f"data has {values.ndim} dimension(s); it must have 2 (samples x variables)")
        shape, columns = values.shape, (values[:, k] for k in range(values.shape[1]))
    if shape[1] < 1:
        raise InvalidProblem("data has no variables")
    if not 1 <= shape[0] <= MAX_SAMPLES:
        raise InvalidProblem(
            f"data has {shape[0]:,} samples; a test needs at least 1, and takes at most {MAX_SAMPLES:,}"
        )
    return columns, variable_names(names, shape[1])


def _encode(name: str, column: Any, given: Sequence[Any] | int | None) -> tuple[np.ndarray, tuple[str, ...], bool]:
    """A column's codes, its labels, and whether the source declared them."""
    own = getattr(getattr(column, "dtype", None), "categories", None)
    if own is not None:
        codes = np.asarray(column.cat.codes)
        _refuse_missing(name, codes < 0)
        if given is None:
            return codes, _as_text(name, own), True
        values = np.asarray(own)[codes]
    else:
        values = _values(name, column)
    values = _whole(name, values)
    if given is None:
        return *_observed(name, values), False
    return *_among(name, values, given), True


def _values(name: str, column: Any) -> np.ndarray:
    """A column as a one-dimensional array without missing values."""
    import pandas as pd

    missing = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else np.asarray(pd.isna(column))
    _refuse_missing(name, missing)
    if isinstance(column, np.ma.MaskedArray):
        column = column.data
        _refuse_missing(name, np.asarray(pd.isna(column)))
    values = np.asarray(column)
    if values.ndim != 1:
        raise InvalidProblem(f"column {name!r} has values of shape {values.shape[1:]}; a label is a single value")
    if values.dtype == object:
        kinds = {type(value) for value in values.tolist()}
        if kinds and all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
            return values.astype(bool)
        if kinds and all(issubclass(kind, (int, np.integer, float, np.floating)) for kind in kinds):
            if all(issubclass(kind, (int, np.integer)) for kind in kinds):
                try:
                    return values.astype(np.int64)
                except OverflowError:
                    return values
            return values.astype(np.float64)
    return values


def _whole(name: str, values: np.ndarray) -> np.ndarray:
    """Floats as integers."""
    if values.dtype.kind == "c":
        raise InvalidProblem(f"column {name!r} holds complex numbers; a label is a string, a bool or a whole number")
    if values.dtype.kind != "f":
        return values
    bad = np.flatnonzero(~np.isfinite(values) | (values != np.rint(values)) | (np.abs(values) > 2.0**53))
    if len(bad):
        raise InvalidProblem(
            f"column {name!r} holds {float(values[bad[0]])!r} in row {bad[0]}, which is no label; make categories of "
            f"it first, for instance with pandas.qcut(data[{name!r}], 4, labels=False), or use a method for "
            "continuous data"
        )
    return values.astype(np.int64)


def _observed(name: str, values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes and labels of the values that occur, sorted."""
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < _DENSE_RANGE:
            wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)
            offsets = (wide - wide.dtype.type(low)).astype(np.int64)
            occurs = np.bincount(offsets) > 0
            found = np.flatnonzero(occurs)
            _check_count(name, len(found))
            return (np.cumsum(occurs) - 1)[offsets], tuple(str(low + int(k)) for k in found)
    if values.dtype.kind in "OUST" or values.dtype.kind not in "biu":
        import pandas as pd

        codes, uniques = pd.factorize(values)
        found = list(uniques)
        try:
            order = sorted(range(len(found)), key=found.__getitem__)
        except TypeError:  # of several types
            order = sorted(range(len(found)), key=lambda k: str(found[k]))
        position = np.empty(len(found), np.int64)
        position[order] = np.arange(len(found))
        return position[codes], _as_text(name, [found[k] for k in order])
    uniques, codes = np.unique(values, return_inverse=True)
    return codes, _as_text(name, uniques.tolist())


def _among(name: str, values: np.ndarray, given: Sequence[Any] | int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes of values among declared categories."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        _check_count(name, int(given))
        labels = tuple(map(str, range(int(given))))
    elif isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InvalidProblem(f"categories of {name!r} are {given!r}; give a list of labels, or how many there are")
    else:
        given = list(given)
        labels = _as_text(name, given)
    if values.dtype.kind in "biu" and (
        isinstance(given, (int, np.integer)) or all(isinstance(label, str) for label in given)
    ):
        codes = values.astype(np.int64)
        bad = np.flatnonzero((codes < 0) | (codes >= len(labels)))
        if len(bad):
            raise InvalidProblem(
                f"column {name!r} holds the code {values[bad[0]]} in row {bad[0]}; its {len(labels)} declared "
                f"categories have the codes 0 to {len(labels) - 1}"
            )
        return codes, labels
    if isinstance(given, (int, np.integer)):
        raise InvalidProblem(
            f"column {name!r} holds {values[0]!r}; with a number of categories it must hold codes from 0 on, "
            "with text in it the categories must be listed"
        )
    import pandas as pd

    position = {value: k for k, value in enumerate(given)}
    codes, uniques = pd.factorize(values)
    found = np.array([position.get(value, -1) for value in list(uniques)], np.int64)[codes]
    bad = np.flatnonzero(found < 0)
    if len(bad):
        shown = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
        raise InvalidProblem(
            f"column {name!r} holds {_plain(values[bad[0]])!r} in row {bad[0]}, which is not among its declared "
            f"categories: {shown}"
        )
    return found, labels


def _as_text(name: str, values: Any) -> tuple[str, ...]:
    """Labels as text; they must differ."""
    labels = tuple(str(_plain(value)) for value in values)
    _check_count(name, len(labels))
    if len(set(labels)) != len(labels):
        repeated = next(label for label, count in collections.Counter(labels).items() if count > 1)
        raise InvalidProblem(f"column {name!r} has two categories that read {repeated!r}; labels must differ as text")
    return labels


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_count(name: str, count: int) -> None:
    if not 1 <= count <= MAX_CATEGORIES:
        raise InvalidProblem(
            f"column {name!r} has {count} categories; a variable may have 1 to {MAX_CATEGORIES:,}; merge some, or "
            "leave out a column that numbers the samples"
        )


def _refuse_missing(name: str, missing: np.ndarray) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InvalidProblem(
            f"column {name!r} has {len(rows)} missing value(s), the first in row {rows[0]}; drop those rows, impute "
            "them, or make 'missing' a category of its own"
        )
