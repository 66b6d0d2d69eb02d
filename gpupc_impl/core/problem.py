"""Problems: a problem is the prepared data together with everything that changes the answer.

Parameters that change only the speed (launch shapes, threads, backend) belong to the method instead.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import mapped, placing
from gpupc_impl.core.files import open_arrays, parse_json, write_whole
from gpupc_impl.core.fixed import FixedPairs, sorted_pairs


class InvalidProblem(ValueError):
    """The data or a parameter cannot be used; the message names it, its limit and a way out."""


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """The base class of the problems of all families.

    A family's subclass adds fields (arrays, and values that JSON can represent), ``n_samples``, and a classmethod
    ``from_data(data, *, alpha, max_level, names, **parameters)`` that checks its arguments.

    Attributes:
        family: the kind of data and test.
        PARAMETERS: the parameters of `from_data` beside data, alpha, max_level and names, with their defaults; `facts`
            contains their values.
        DATA_PARAMETERS: further parameters of `from_data`, which control how the data are read.
        names: the names of the p variables.
        alpha: significance level of each CI test, in (0, 1). A set separates when its p-value is >= alpha.
        max_level: largest conditioning-set size to test, or None for no limit.
        fixed: the edges that background knowledge requires or forbids, which are never tested; None without background
            knowledge. `gpupc_impl.core.knowledge.with_knowledge` sets this field and the next.
        tiers: (p,) int32, the tier of each variable, -1 for a variable in no tier; no separating set has a member that
            is later than both ends of its pair (`gpupc_impl.core.tiers`). None if tiers do not limit separating sets.
    """

    family: ClassVar[str]
    PARAMETERS: ClassVar[Mapping[str, Any]]
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ()
    from_data: ClassVar[Callable[..., Problem]]

    names: tuple[str, ...]
    alpha: float
    max_level: int | None
    fixed: FixedPairs | None = dataclasses.field(default=None, kw_only=True)
    tiers: np.ndarray | None = dataclasses.field(default=None, kw_only=True)

    @classmethod
    def from_correlation(cls, correlation: Any, *, n_samples: int, **parameters: Any) -> Problem:
        """Make a problem from a (p, p) correlation matrix and the number of samples from which it was computed.

        Raises:
            InvalidProblem: the family's test needs the samples themselves, or an argument is invalid.
        """
        raise InvalidProblem(
            f"n_samples says that data is a correlation matrix, which a {cls.family} test cannot use; give the samples "
            "themselves, without n_samples"
        )

    @classmethod
    def remark(cls, parameters: Mapping[str, Any]) -> str:
        """What readers of results must know about the test with these parameters besides its name; "" for nothing."""
        return ""

    @property
    def n_variables(self) -> int:
        return len(self.names)

    @property
    def decided_by_tests(self) -> bool:
        """Whether the outcome of tests decides which edges are removed; False for a workload, which only imitates a
        search."""
        return True

    def obstacle(self, level: int) -> str | None:
        """Why no test of this level can be performed, as a sentence; None if tests can be performed."""
        return None

    @property
    def tests_of_level_zero(self) -> int:
        """The number of pairs that are not fixed."""
        return self.n_variables * (self.n_variables - 1) // 2 - (0 if self.fixed is None else len(self.fixed))

    def start_graph(self) -> np.ndarray:
        """The graph before level 0, (p, p) bool, in which every pair that is not forbidden has an edge."""
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
        """Return the largest of the (p,) degrees among the variables with an edge to test; see
        `LevelOutcome.max_degree`."""
        return int(degrees.max()) if self.fixed is None else self.fixed.most_tested_degree(degrees)

    def fault(self) -> str | None:
        """A sentence that says why `from_data` could not have made this problem; None if it could have.

        `from_data` makes only consistent problems, on which methods and kernels rely, but a file may hold anything.
        """
        try:
            self.check()
        except InvalidProblem as error:
            return str(error)
        return None

    def check(self) -> None:
        """Check everything that `from_data` guarantees; subclasses check their own fields in addition.

        Raises:
            InvalidProblem: a field is invalid.
        """
        for name, value in (search_parameters(self.alpha, self.max_level) | self.checked_parameters()).items():
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
        """The parameters of the family's test by name, checked by the code that checks them in `from_data`."""
        return {}

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
        """Facts about the problem for a record: `outline` and the fingerprint, whose computation reads all data."""
        return {**self.outline(), "fingerprint": self.fingerprint}

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of everything that changes the answer; names do not change it."""
        plain = {name: value for name, value in self._plain().items() if name != "names"}
        digest = hashlib.sha256(json.dumps([self.family, plain]).encode())
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            mapped.update_digest(digest, array)
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
        """The problem's arrays that lie in files."""
        arrays = map(mapped.base_memmap, self._arrays().values())
        return [array for array in arrays if array is not None]

    def placed(self) -> Self:
        """Copy the problem's arrays, except those in files, with the current allocator (placing.py)."""
        problem = copy.copy(self)
        for name, array in self._arrays().items():
            if mapped.base_memmap(array) is None:
                object.__setattr__(problem, name, placing.placed(array))
        return problem

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz``, from which `load` reads the same bits."""
        self._write(path, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem that `save` wrote.

        Raises:
            InvalidProblem: another version wrote the file, a second file that belongs to it is missing or has changed,
                or the arrays are inconsistent.
        """
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
        if fault := problem.fault():
            raise InvalidProblem(f"{Path(path).name} holds no {cls.family} problem: {fault}; make it again")
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
        """Read the fields that are arrays from the open file at a path."""
        names = {field.name for field in dataclasses.fields(cls)} - {"tiers"}
        return {name: stored[name] for name in stored if name in names}


def _check_fixed(fixed: FixedPairs, p: int) -> None:
    """Check required and forbidden edges of p variables."""
    for pairs in (fixed.required, fixed.forbidden):
        if pairs.dtype != np.int32 or pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidProblem(f"its fixed pairs are {pairs.dtype} {pairs.shape}")
        if not np.array_equal(pairs, sorted_pairs(pairs)) or not ((pairs >= 0) & (pairs < p)).all():
            raise InvalidProblem(f"its fixed pairs are no ascending pairs of {p} variables")
    every = np.concatenate([fixed.required, fixed.forbidden])
    if (every[:, 0] == every[:, 1]).any() or len(np.unique(every, axis=0)) != len(every):
        raise InvalidProblem("a pair is fixed twice, or of a variable with itself")


def _frozen(value: Any) -> Any:
    """Replace lists by tuples in a value from JSON, recursively."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def search_parameters(alpha: float, max_level: int | None) -> dict[str, Any]:
    """alpha and max_level by name, checked; raises InvalidProblem if one is no number or out of range."""
    from gpupc_impl.core.scalars import as_number

    if not 0 < as_number(alpha) < 1:
        raise InvalidProblem(f"alpha is {alpha!r}; it must be a number strictly between 0 and 1")
    if max_level is not None and not (as_number(max_level) >= 0 and as_number(max_level).is_integer()):
        raise InvalidProblem(f"max_level is {max_level!r}; it must be a whole number of at least 0, or None")
    return {"alpha": float(alpha), "max_level": None if max_level is None else int(max_level)}


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise InvalidProblem if the value of a parameter is none of these."""
    if value not in choices:
        raise InvalidProblem(f"{name} is {value!r}; choose one of: {', '.join(choices)}")


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """The value of a parameter as an int; raises InvalidProblem if it is no whole number from `least` to `most`."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != value or not least <= whole <= most:
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
    return whole


def standard_rows(rows: np.ndarray, ddof: int) -> np.ndarray:
    """Rows with mean 0 and variance 1, with n - ddof as its divisor; dividing by the largest magnitude first keeps
    squares from overflowing. Constant rows become 0 but for rounding."""
    scale = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(scale > 0, scale, 1.0)
    scaled -= scaled.mean(axis=1, keepdims=True)
    deviation = scaled.std(axis=1, ddof=ddof, keepdims=True)
    scaled /= np.where(deviation > 0, deviation, 1.0)
    return scaled


def finite_matrix(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """`as_matrix` of samples by variables; raises InvalidProblem as well if a value is missing or infinite."""
    values, names = as_matrix(data, names)
    if not all(mapped.by_pieces(values, lambda rows: bool(np.isfinite(values[rows]).all()))):
        bad = np.argwhere(~np.isfinite(values))
        row, column = bad[0]
        raise InvalidProblem(
            f"data has {len(bad)} missing or infinite value(s), the first in row {row}, column {names[column]!r}; "
            "drop those rows or impute them first"
        )
    return values, names


def as_matrix(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the data as a two-dimensional float64 array, with the names of its columns.

    Raises:
        InvalidProblem: the data are not numbers, not two-dimensional or have no columns, or names are invalid.
    """
    if names is None and hasattr(data, "columns"):
        names = [str(name) for name in data.columns]
    try:
        values = np.asarray(np.ma.filled(np.ma.asarray(data, dtype=np.float64), np.nan))
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"data is not a matrix of numbers: {_first_text(data, error)}") from error
    if values.ndim != 2:
        raise InvalidProblem(f"data has {values.ndim} dimension(s); it must have 2 (samples x variables)")
    p = values.shape[1]
    if p < 1:
        raise InvalidProblem("data has no variables")
    return values, variable_names(names, p)


def variable_names(names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """The names of p variables: those passed, or V0, V1, ...; raises InvalidProblem unless they are p distinct
    names."""
    names = tuple(f"V{k}" for k in range(p)) if names is None else tuple(map(str, names))
    if len(names) != p:
        raise InvalidProblem(f"{len(names)} names for {p} variables; give one name a variable")
    if len(set(names)) != p:
        repeated = [name for name, count in collections.Counter(names).items() if count > 1][:5]
        raise InvalidProblem(f"variable names must differ; repeated: {', '.join(repeated)}")
    return names


def name_constants(names: Sequence[str], constant: np.ndarray) -> tuple[str, ...]:
    """Return the names of the constant variables, marked by (p,) bool, after a warning that names them at the caller's
    caller."""
    constant_names = tuple(names[int(k)] for k in np.flatnonzero(constant))
    if constant_names:
        shown = ", ".join(constant_names[:5]) + (", ..." if len(constant_names) > 5 else "")
        warnings.warn(
            f"{len(constant_names)} constant variable(s) ({shown}) are independent of all others", stacklevel=3
        )
    return constant_names


def _first_text(data: Any, error: Exception) -> str:
    """Describe the data that cannot be converted to numbers, with the column's name for a DataFrame."""
    if hasattr(data, "columns"):
        for name, column in data.items():
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError) as fault:
                return f"column {str(name)!r}: {fault}"
    return str(error)
