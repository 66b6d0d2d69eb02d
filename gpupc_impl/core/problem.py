"""Problems: a problem is the prepared data together with everything that changes the answer. Parameters that change
only the speed (launch shapes, threads, backend) belong to the method instead."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation, mapped_arrays
from gpupc_impl.core.files import open_arrays, parse_json, write_whole
from gpupc_impl.core.fixed_pairs import FixedPairs, sorted_pairs

Check = Callable[[str, Any], Any]  # check of a parameter; see `parameter`


class InvalidProblem(ValueError):
    """The data or a parameter cannot be used; the message names it, its limit and a way out."""


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """The base class of the problems of all families.

    A family's subclass adds fields (arrays, and JSON values), ``n_samples``, and a classmethod ``from_data(data, *,
    alpha, max_level, names, **parameters)`` that checks its arguments. The fields that `parameter` declares are the one
    table of its test's parameters: their defaults and checks, outline, fingerprint and file follow from it.

    Attributes:
        PARAMETERS: the parameters of `from_data` that `parameter` declares, with defaults; `facts` has their values.
        DATA_PARAMETERS: further parameters of `from_data`, which control how the data are read.
        alpha: significance level of each CI test, in (0, 1). A set separates when its p-value is >= alpha.
        max_level: largest conditioning-set size to test, or None for no limit.
        fixed: the edges that background knowledge requires or forbids, which are never tested; None without background
            knowledge. `gpupc_impl.core.knowledge.with_knowledge` sets this field and the next.
        tiers: (p,) int32, the tier of each variable, -1 for a variable in no tier; no separating set has a member that
            is later than both ends of its pair (`gpupc_impl.core.tiers`). None if tiers do not limit separating sets.
    """

    family: ClassVar[str]
    PARAMETERS: ClassVar[Mapping[str, Any]] = {}
    NOT_IN_FINGERPRINT: ClassVar[tuple[str, ...]] = ("names", "constant", "labels")  # names, or derived from others
    _CHECKS: ClassVar[Mapping[str, Check]] = {}
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ()
    from_data: ClassVar[Callable[..., Problem]]

    names: tuple[str, ...]
    alpha: float
    max_level: int | None
    fixed: FixedPairs | None = dataclasses.field(default=None, kw_only=True)
    tiers: np.ndarray | None = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: field for name, field in vars(cls).items() if isinstance(field, dataclasses.Field)}
        declared = {name: field for name, field in own.items() if "check" in field.metadata}
        if declared:
            cls.PARAMETERS = {**cls.PARAMETERS, **{name: field.default for name, field in declared.items()}}
            cls._CHECKS = {**cls._CHECKS, **{name: field.metadata["check"] for name, field in declared.items()}}

    @classmethod
    def checked(
        cls, n_samples: float, *, alpha: float = 0.05, max_level: int | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Return alpha, max_level and the test's parameters, checked or by default; TypeError for an unknown one."""
        if unknown := set(parameters) - set(cls._CHECKS):
            raise TypeError(f"from_data() got an unexpected keyword argument {min(unknown)!r}")
        given = {**cls.PARAMETERS, **parameters}
        values = {name: check(name, given[name]) for name, check in cls._CHECKS.items()}
        return search_parameters(alpha, max_level) | cls.checked_together(n_samples, values)

    @classmethod
    def checked_together(cls, n_samples: float, values: dict[str, Any]) -> dict[str, Any]:
        """Check parameters that depend on each other or on `n_samples`; returns all, perhaps replaced."""
        return values

    @classmethod
    def from_correlation(cls, correlation: Any, *, n_samples: int, **parameters: Any) -> Problem:
        """Make a problem from a (p, p) correlation matrix and the number of samples from which it was computed.
        InvalidProblem is raised if the family's test needs the samples themselves, or an argument is invalid."""
        raise InvalidProblem(
            f"n_samples says that data is a correlation matrix, which a {cls.family} test cannot use; give the samples "
            "themselves, without n_samples"
        )

    @classmethod
    def remark(cls, parameters: Mapping[str, Any]) -> str:
        """What readers of results must know about the test beside its name; "" for nothing."""
        return ""

    @property
    def n_variables(self) -> int:
        return len(self.names)

    @property
    def decided_by_tests(self) -> bool:
        """Whether tests decide which edges are removed; False for a workload, which only imitates a search."""
        return True

    def obstacle(self, level: int) -> str | None:
        """Why no test of this level can be performed, as a sentence; None if tests can be performed."""
        return None

    @property
    def tests_of_level_zero(self) -> int:
        """The number of pairs that are not fixed."""
        return self.n_variables * (self.n_variables - 1) // 2 - (0 if self.fixed is None else len(self.fixed))

    def start_graph(self) -> np.ndarray:
        """The graph before level 0, (p, p) bool: an edge for every pair that is not forbidden."""
        graph = ~np.eye(self.n_variables, dtype=bool)
        if self.fixed is not None:
            self.fixed.apply(graph)
        return graph

    def edges_to_test(self, edges: np.ndarray) -> np.ndarray:
        """Return those of the (k, 2) edges i < j that are not required."""
        if self.fixed is None:
            return edges
        keys = np.array([self.n_variables, 1])
        return edges[~np.isin(edges @ keys, self.fixed.required @ keys)]

    def most_tested_degree(self, degrees: np.ndarray) -> int:
        """Return the largest of the (p,) degrees among the variables with an edge to test."""
        return int(degrees.max()) if self.fixed is None else self.fixed.most_tested_degree(degrees)

    def check(self) -> None:
        """Raise InvalidProblem unless `from_data` could have made this problem; subclasses check theirs too."""
        for name, value in self.checked_parameters().items():
            own = getattr(self, name)
            if type(own) is not type(value) or own != value:
                raise InvalidProblem(f"{name} is {own!r}, which is no {type(value).__name__} that it can be")
        p = len(self.names)
        if not p or variable_names(self.names, p) != self.names:
            raise InvalidProblem("its names are no texts")
        if self.fixed is not None:
            _check_fixed(self.fixed, p)
        if self.tiers is not None and (
            self.tiers.dtype != np.int32 or self.tiers.shape != (p,) or self.tiers.min() < -1
        ):
            raise InvalidProblem(f"its tiers are no {p} whole numbers from -1")

    def checked_parameters(self) -> dict[str, Any]:
        """alpha, max_level and the parameters of the family's test by name, checked as `from_data` checks them."""
        values = {name: getattr(self, name) for name in self._CHECKS}
        n_samples: int = self.n_samples  # type: ignore[attr-defined]  # Each family's own field or property.
        return self.checked(n_samples, alpha=self.alpha, max_level=self.max_level, **values)

    def outline(self) -> dict[str, Any]:
        """Facts about the problem for a result, which exclude the data."""
        fixed = self.fixed
        facts = ("alpha", "max_level", "n_variables", "n_samples", *self.PARAMETERS)
        counts = (
            {} if fixed is None else {"required_edges": len(fixed.required), "forbidden_edges": len(fixed.forbidden)}
        )
        if self.tiers is not None:
            counts["tiers_in_search"] = int(self.tiers.max()) + 1
        return {name: getattr(self, name) for name in facts} | counts

    def facts(self) -> dict[str, Any]:
        """`outline` and the fingerprint, whose computation reads all data, for a record."""
        return {**self.outline(), "fingerprint": self.fingerprint}

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of everything that changes the answer; names do not change it."""
        plain = {name: value for name, value in self._plain().items() if name not in self.NOT_IN_FINGERPRINT}
        digest = hashlib.sha256(json.dumps([self.family, plain]).encode())
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            mapped_arrays.update_digest(digest, array)
        self.update_digest(digest)
        return digest.hexdigest()

    def update_digest(self, digest: Any) -> None:
        """Add the background knowledge, if there is any, to the digest that is the fingerprint."""
        if self.fixed is not None:
            digest.update(self.fixed.digest)
        if self.tiers is not None:
            digest.update(b"tiers" + self.tiers.tobytes())

    @property
    def mapped_arrays(self) -> list[np.memmap]:
        arrays = map(mapped_arrays.base_memmap, self._arrays().values())
        return [array for array in arrays if array is not None]

    def reallocated(self) -> Self:
        """Copy the problem's arrays, except those in files, with the current allocator (allocation.py)."""
        problem = copy.copy(self)
        for name, array in self._arrays().items():
            if mapped_arrays.base_memmap(array) is None:
                object.__setattr__(problem, name, allocation.copied(array))
        return problem

    # --- files ---------------------------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz``, from which `load` reads the same bits."""
        self._write(path, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem that `save` wrote; InvalidProblem if another version wrote it or its arrays do not fit."""
        with open_arrays(path) as stored:
            if "fields" not in stored:
                raise InvalidProblem(f"{Path(path).name} is no problem that this version wrote; make it again")
            arrays = cls._read_arrays(Path(path), stored)
            fields = {name: _frozen(value) for name, value in parse_json(str(stored["fields"])).items()}
            if "required_edges" in stored:
                fields["fixed"] = FixedPairs(stored["required_edges"], stored["forbidden_edges"])
            fields["tiers"] = stored.get("tiers")
        for array in arrays.values():
            if array is not None:
                array.setflags(write=False)
        problem = cls(**(fields | arrays))
        try:
            problem.check()
        except InvalidProblem as error:
            raise InvalidProblem(f"{Path(path).name} holds no {cls.family} problem: {error}; make it again") from error
        return problem

    def _arrays(self) -> dict[str, np.ndarray]:
        """The fields that are arrays, by name, except `tiers`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "tiers"}
        return {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}

    def _plain(self) -> dict[str, Any]:
        """The fields that are no arrays, by name, except `fixed` and `tiers`."""
        arrays = self._arrays()
        names = (field.name for field in dataclasses.fields(self) if field.name not in ("fixed", "tiers"))
        return {name: getattr(self, name) for name in names if name not in arrays}

    def _write(self, path: str | Path, content: Mapping[str, Any]) -> None:
        fixed = self.fixed
        pairs = {} if fixed is None else {"required_edges": fixed.required, "forbidden_edges": fixed.forbidden}
        tiers = {} if self.tiers is None else {"tiers": self.tiers}
        with write_whole(path) as file:
            np.savez(file, family=self.family, fields=json.dumps(self._plain()), **{**content, **pairs, **tiers})

    @classmethod
    def _read_arrays(cls, path: Path, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = {field.name for field in dataclasses.fields(cls)} - {"tiers"}
        return {name: stored[name] for name in stored if name in names}


def _check_fixed(fixed: FixedPairs, p: int) -> None:
    for pairs in (fixed.required, fixed.forbidden):
        if pairs.dtype != np.int32 or pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidProblem(f"its fixed pairs are {pairs.dtype} {pairs.shape}")
        if not np.array_equal(pairs, sorted_pairs(pairs)) or not ((pairs >= 0) & (pairs < p)).all():
            raise InvalidProblem(f"its fixed pairs are no ascending pairs of {p} variables")
    every = np.concatenate([fixed.required, fixed.forbidden])
    if (every[:, 0] == every[:, 1]).any() or len(np.unique(every, axis=0)) != len(every):
        raise InvalidProblem("a pair is fixed twice, or of a variable with itself")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def as_number(value: Any) -> float:
    """Return a real number of any type as a float; NaN for anything else, which includes text."""
    if isinstance(value, (str, bytes)) or np.ndim(value) > 0:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def search_parameters(alpha: float, max_level: int | None) -> dict[str, Any]:
    if not 0 < as_number(alpha) < 1:
        raise InvalidProblem(f"alpha is {alpha!r}; it must be a number strictly between 0 and 1")
    if max_level is not None and not (as_number(max_level) >= 0 and as_number(max_level).is_integer()):
        raise InvalidProblem(f"max_level is {max_level!r}; it must be a whole number of at least 0, or None")
    return {"alpha": float(alpha), "max_level": None if max_level is None else int(max_level)}


def parameter(default: Any, check: Check) -> Any:
    """Declare a field that is a parameter of the test; `check` returns a value as the field holds it, or raises."""
    return dataclasses.field(default=default, metadata={"check": check})


def one_of(*choices: str) -> Check:
    return lambda name, value: check_choice(name, value, choices)


def whole(least: int, most: int) -> Check:
    return lambda name, value: whole_number(name, value, least, most)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise InvalidProblem(f"{name} is {value!r}; choose one of: {', '.join(choices)}")
    return value


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """The value of a parameter as an int, if it is a whole number from `least` to `most`."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != value or not least <= whole <= most:
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
    return whole


def standard_rows(rows: np.ndarray, ddof: int) -> np.ndarray:
    """Rows with mean 0 and variance 1 (divisor n - ddof); dividing by the largest magnitude first avoids overflow."""
    scale = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(scale > 0, scale, 1.0)
    scaled -= scaled.mean(axis=1, keepdims=True)
    deviation = scaled.std(axis=1, ddof=ddof, keepdims=True)
    scaled /= np.where(deviation > 0, deviation, 1.0)
    return scaled


def finite_matrix(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """`as_matrix` of samples by variables without a missing or infinite value."""
    values, names = as_matrix(data, names)
    if not all(mapped_arrays.by_pieces(values, lambda rows: bool(np.isfinite(values[rows]).all()))):
        bad = np.argwhere(~np.isfinite(values))
        row, column = bad[0]
        raise InvalidProblem(
            f"data has {len(bad)} missing or infinite value(s), the first in row {row}, column {names[column]!r}; "
            "drop those rows or impute them first"
        )
    return values, names


def as_matrix(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the data as a two-dimensional float64 array, with the names of its columns."""
    if names is None and hasattr(data, "columns"):
        names = [str(name) for name in data.columns]
    try:
        exact = type(data) is np.ndarray  # which has no mask; NumPy's masked arrays take long to import
        values = np.asarray(data if exact else np.ma.filled(np.ma.asarray(data, dtype=np.float64), np.nan), np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"data is not a matrix of numbers: {_first_text(data, error)}") from error
    if values.ndim != 2:
        raise InvalidProblem(f"data has {values.ndim} dimension(s); it must have 2 (samples x variables)")
    p = values.shape[1]
    if p < 1:
        raise InvalidProblem("data has no variables")
    return values, variable_names(names, p)


def variable_names(names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """The p distinct names of variables: those passed, or V0, V1, ..."""
    names = tuple(f"V{k}" for k in range(p)) if names is None else tuple(map(str, names))
    if len(names) != p:
        raise InvalidProblem(f"{len(names)} names for {p} variables; give one name a variable")
    if len(set(names)) != p:
        repeated = [name for name, count in collections.Counter(names).items() if count > 1][:5]
        raise InvalidProblem(f"variable names must differ; repeated: {', '.join(repeated)}")
    return names


def name_constants(names: Sequence[str], constant: np.ndarray) -> tuple[str, ...]:
    """Return the names of the constant variables, marked by (p,) bool, after a warning that names them."""
    constant_names = tuple(names[int(k)] for k in np.flatnonzero(constant))
    if constant_names:
        shown = ", ".join(constant_names[:5]) + (", ..." if len(constant_names) > 5 else "")
        warnings.warn(
            f"{len(constant_names)} constant variable(s) ({shown}) are independent of all others", stacklevel=3
        )
    return constant_names


def _first_text(data: Any, error: Exception) -> str:
    """Describe data that are no numbers, with the column's name for a DataFrame."""
    if hasattr(data, "columns"):
        for name, column in data.items():
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError) as fault:
                return f"column {str(name)!r}: {fault}"
    return str(error)


# --- columns of numbers and of categories in one table ----------------------------------------------------------------
def coded_columns(categories: Any) -> tuple[str, ...]:
    """Return the names of the columns of numbers that hold codes of categories: from a list, a text with commas, or
    labels by variable, as data sets have them (none for numbers)."""
    if isinstance(categories, (str, int)):  # The command line converts names to numbers.
        return tuple(filter(None, map(str.strip, str(categories).split(","))))
    if hasattr(categories, "items"):
        return tuple(str(name) for name, labels in categories.items() if labels)
    return tuple(map(str, categories))


def numbers_and_codes(
    data: Any, names: Sequence[str] | None, coded: Sequence[str], most: int
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """Return (n, p) float64 numbers and codes of categories, the names, and (p,) bool that marks columns of codes.
    Text, Boolean and categorical columns hold categories, at most `most`, and so do the columns named in `coded`."""
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        array = np.asarray(data)
        if array.ndim != 2:
            raise InvalidProblem(f"data has {array.ndim} dimension(s); it must have 2 (samples x variables)")
        data = pd.DataFrame(array).infer_objects()
    elif names is None:
        names = [str(name) for name in data.columns]
    kinds = pd.api.types
    categorical = np.array([not kinds.is_numeric_dtype(d) or kinds.is_bool_dtype(d) for d in data.dtypes], bool)
    matrix = np.zeros(data.shape)
    _, names = as_matrix(matrix, names)
    if unknown := sorted(set(coded) - set(names)):
        raise InvalidProblem(f"categories are named for {unknown[0]!r}, which is no variable of the data")
    for k in range(len(names)):
        column = data.iloc[:, k]
        if column.dtype.kind in "mMc":
            raise InvalidProblem(
                f"column {names[k]!r} holds {column.dtype}; make real numbers of it, or text for categories"
            )
        missing = np.flatnonzero(pd.isna(column))
        if len(missing):
            raise InvalidProblem(
                f"data has {len(missing)} missing value(s) in column {names[k]!r}, the first in row {missing[0]}; drop "
                "those rows or impute them first"
            )
        if categorical[k] or names[k] in coded:
            categorical[k] = True
            codes, labels = pd.factorize(column)
            if len(labels) > most:
                raise InvalidProblem(
                    f"column {names[k]!r} has {len(labels):,} categories; the most are {most:,}; merge some, "
                    "or give numbers"
                )
            matrix[:, k] = codes
    plain = np.flatnonzero(~categorical)
    if len(plain):
        matrix[:, plain], _ = as_matrix(data.iloc[:, plain], None)
    return matrix, names, categorical
