"""A problem: the prepared data, and everything that changes the answer.

Parameters that change only the speed (launch shapes, threads, backend) belong to a method, never to a problem.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import special

DF_CONVENTIONS = ("pcalg", "cupc")

RESIDUAL_TOLERANCE = 1e-10
"""A residual variance (in units of the variable's own variance) at or below this counts as zero.

One number serves two rules of the Gaussian CI test, in every method and reference:

- an endpoint whose residual variance given S is that small makes the test *undefined*: it does not separate;
- a Cholesky pivot of the conditioning matrix M2 that small makes M2 *near singular*: its inverse is then the
  Moore-Penrose inverse of cuPC, Algorithm 7, with `PSEUDO_INVERSE_TOLERANCE` for the rank.
"""

PSEUDO_INVERSE_TOLERANCE = 1e-9
"""Rank tolerance of cuPC's Algorithm 7: a pivot of M2^T M2 at or below this times the smallest positive diagonal
entry of M2^T M2 counts as zero (Courrieu 2008, the paper's reference [40])."""


class InvalidProblem(ValueError):
    """The data or a parameter cannot be used; the message names it, the limit and the way out."""


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What every family's problem has.

    Attributes:
        names: the variables' names, p of them.
        alpha: significance level of each CI test, in (0, 1). A set separates when its p-value is >= alpha.
        max_level: largest conditioning-set size to test, or None for no limit.
    """

    family: ClassVar[str]

    names: tuple[str, ...]
    alpha: float
    max_level: int | None

    @property
    def n_variables(self) -> int:
        return len(self.names)

    def obstacle(self, level: int) -> str | None:
        """Why no test of this level can be made, as a sentence; None when tests can be made."""
        return None

    def facts(self) -> dict[str, Any]:
        """What a result and a record say about the problem."""
        return {
            "alpha": self.alpha,
            "max_level": self.max_level,
            "n_variables": self.n_variables,
            "fingerprint": self.fingerprint,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianProblem(Problem):
    """PC-stable with Fisher's z test on a correlation matrix (cuPC, section 4.3).

    Build one with `from_data` or `from_correlation`, which check their input.

    Attributes:
        correlation: (p, p) float64, C-contiguous, exactly symmetric, ones on the diagonal.
        n_samples: m, the number of samples behind the correlations.
        df_convention: ``"pcalg"`` uses m - |S| - 3 degrees of freedom at level |S|, as equation 7 of cuPC;
            ``"cupc"`` uses m - (|S| + 1) - 3, as the published cuPC and GPUCSL code does.
        constant: names of constant variables, whose correlations are set to zero.
    """

    family: ClassVar[str] = "gaussian"

    correlation: np.ndarray
    n_samples: int
    df_convention: str = "pcalg"
    constant: tuple[str, ...] = ()

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        alpha: float = 0.05,
        max_level: int | None = None,
        df_convention: str = "pcalg",
        names: Sequence[str] | None = None,
    ) -> GaussianProblem:
        """From samples in rows and variables in columns: an array or a DataFrame, finite numbers throughout.

        A constant variable is independent of every other: its correlations are set to zero, a warning names it,
        and it ends isolated.

        Raises:
            InvalidProblem: wrong shape, a value that is missing or infinite, or a bad parameter.
        """
        values, names = _as_matrix(data, names)
        if len(values) < 2:
            raise InvalidProblem(f"data has {len(values)} sample(s); a correlation needs at least 2")
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            row, column = bad[0]
            raise InvalidProblem(
                f"data has {len(bad)} missing or infinite value(s), the first in row {row}, column "
                f"{names[column]!r}; drop those rows or impute them first"
            )
        correlation, constant = correlation_matrix(values)
        constant_names = tuple(names[k] for k in np.flatnonzero(constant))
        if constant_names:
            shown = ", ".join(constant_names[:5]) + (", ..." if len(constant_names) > 5 else "")
            warnings.warn(
                f"{len(constant_names)} constant variable(s) ({shown}) are independent of all others", stacklevel=2
            )
        return cls.from_correlation(
            correlation,
            n_samples=len(values),
            alpha=alpha,
            max_level=max_level,
            df_convention=df_convention,
            names=names,
            constant=constant_names,
        )

    @classmethod
    def from_correlation(
        cls,
        correlation: Any,
        *,
        n_samples: int,
        alpha: float = 0.05,
        max_level: int | None = None,
        df_convention: str = "pcalg",
        names: Sequence[str] | None = None,
        constant: Sequence[str] = (),
    ) -> GaussianProblem:
        """From a (p, p) correlation matrix (array or DataFrame) and the number of samples it was made from.

        Raises:
            InvalidProblem: not square, not symmetric (to 1e-8), a diagonal that is not one (to 1e-8), an entry
                outside [-1, 1] (by more than 1e-8) or not finite, or a bad parameter.
        """
        matrix, names = _as_matrix(correlation, names)
        p = len(matrix)
        if matrix.shape != (p, p):
            raise InvalidProblem(f"correlation has shape {matrix.shape}; it must be square")
        if not np.isfinite(matrix).all():
            raise InvalidProblem("correlation has entries that are not finite; give constant variables zeros instead")
        worst = float(np.abs(matrix - matrix.T).max(initial=0.0))
        if worst > 1e-8:
            raise InvalidProblem(f"correlation is not symmetric: it differs from its transpose by {worst:.3g}")
        worst = float(np.abs(np.diagonal(matrix) - 1.0).max(initial=0.0))
        if worst > 1e-8:
            raise InvalidProblem(
                f"correlation has a diagonal that differs from one by {worst:.3g}; a covariance matrix must be "
                "scaled to correlations first"
            )
        worst = float(np.abs(matrix).max(initial=0.0))
        if worst > 1 + 1e-8:
            raise InvalidProblem(f"correlation has an entry of size {worst:.6g}; entries must lie in [-1, 1]")
        if not float(n_samples).is_integer() or n_samples < 1:
            raise InvalidProblem(f"n_samples is {n_samples!r}; it must be a whole number of at least 1")
        _check_search_parameters(alpha, max_level)
        if df_convention not in DF_CONVENTIONS:
            raise InvalidProblem(f"df_convention is {df_convention!r}; choose one of: {', '.join(DF_CONVENTIONS)}")
        matrix = np.ascontiguousarray(np.clip((matrix + matrix.T) / 2, -1.0, 1.0))
        np.fill_diagonal(matrix, 1.0)
        matrix.setflags(write=False)
        return cls(
            names=names,
            alpha=float(alpha),
            max_level=None if max_level is None else int(max_level),
            correlation=matrix,
            n_samples=int(n_samples),
            df_convention=df_convention,
            constant=tuple(constant),
        )

    def degrees_of_freedom(self, level: int) -> int:
        """m - |S| - 3 (or one less under ``df_convention="cupc"``); tests need it positive."""
        return self.n_samples - level - 3 - (1 if self.df_convention == "cupc" else 0)

    def threshold(self, level: int) -> float:
        """tau of equation 7 of cuPC: S separates when |Z| <= tau."""
        return -float(special.ndtri(self.alpha / 2)) / math.sqrt(self.degrees_of_freedom(level))

    def critical_r_squared(self, level: int) -> float:
        """The decision without a logarithm: S separates when r^2 <= tanh(tau)^2.

        Kept below one, so that a correlation of exactly one (Z infinite) never counts as independence.
        """
        return min(math.tanh(self.threshold(level)) ** 2, float(np.nextafter(1.0, 0.0)))

    def p_value(self, r_squared: float | np.ndarray, level: int) -> float | np.ndarray:
        """Two-sided p-value of squared partial correlation(s) at a level."""
        with np.errstate(divide="ignore"):
            z = np.arctanh(np.minimum(np.sqrt(r_squared), 1.0)) * math.sqrt(self.degrees_of_freedom(level))
        return 2 * special.ndtr(-z)

    def obstacle(self, level: int) -> str | None:
        if self.degrees_of_freedom(level) <= 0:
            return (
                f"no degrees of freedom: {self.n_samples} samples leave m - |S| - 3 = "
                f"{self.degrees_of_freedom(level)} at level {level} (df_convention {self.df_convention!r})"
            )
        return None

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "n_samples": self.n_samples, "df_convention": self.df_convention}

    @property
    def fingerprint(self) -> str:
        """sha256 over everything that changes the answer; names do not."""
        digest = hashlib.sha256(
            repr(
                (self.family, self.n_samples, self.alpha, self.max_level, self.df_convention, self.correlation.shape)
            ).encode()
        )
        digest.update(self.correlation.tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz`` that `load` reads back bit for bit."""
        with open(path, "wb") as file:
            np.savez(
                file,
                family=self.family,
                correlation=self.correlation,
                names=np.array(self.names, dtype=str),
                constant=np.array(self.constant, dtype=str),
                n_samples=self.n_samples,
                alpha=self.alpha,
                max_level=-1 if self.max_level is None else self.max_level,
                df_convention=self.df_convention,
            )

    @classmethod
    def load(cls, path: str | Path) -> GaussianProblem:
        with np.load(path) as stored:
            max_level = int(stored["max_level"])
            correlation = stored["correlation"]
            correlation.setflags(write=False)
            return cls(
                names=tuple(map(str, stored["names"])),
                alpha=float(stored["alpha"]),
                max_level=None if max_level < 0 else max_level,
                correlation=correlation,
                n_samples=int(stored["n_samples"]),
                df_convention=str(stored["df_convention"]),
                constant=tuple(map(str, stored["constant"])),
            )


def load_problem(path: str | Path) -> Problem:
    """Read a problem of any family that was written by its ``save``."""
    with np.load(path) as stored:
        family = str(stored["family"])
    return problem_class(family).load(path)


def problem_class(family: str) -> type[Problem]:
    """The problem class of a family.

    Raises:
        InvalidProblem: no such family.
    """
    classes = {cls.family: cls for cls in Problem.__subclasses__()}
    if family not in classes:
        raise InvalidProblem(f"family {family!r} is not known; choose one of: {', '.join(sorted(classes))}")
    return classes[family]


def correlation_matrix(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pearson correlations of the columns of an (m, p) float64 matrix.

    Columns are scaled by their largest magnitude before anything is squared, so values near the ends of the
    float64 range do not overflow.

    Returns:
        (p, p) correlations with zeros for constant columns, and (p,) bool that marks those columns.
    """
    values = np.asarray(values, dtype=np.float64)
    constant = (values == values[0]).all(axis=0)
    scale = np.abs(values).max(axis=0)
    centred = values / np.where(scale > 0, scale, 1.0)
    centred -= centred.mean(axis=0)
    norm = np.sqrt(np.einsum("ij,ij->j", centred, centred))
    constant |= norm == 0
    centred /= np.where(constant, 1.0, norm)
    centred[:, constant] = 0.0
    correlation = centred.T @ centred
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0), constant


def _check_search_parameters(alpha: float, max_level: int | None) -> None:
    if not 0 < alpha < 1:
        raise InvalidProblem(f"alpha is {alpha!r}; it must lie strictly between 0 and 1")
    if max_level is not None and (max_level < 0 or int(max_level) != max_level):
        raise InvalidProblem(f"max_level is {max_level!r}; it must be a whole number of at least 0, or None")


def _as_matrix(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """A two-dimensional float64 array and the names of its columns."""
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
    names = tuple(f"V{k}" for k in range(p)) if names is None else tuple(map(str, names))
    if len(names) != p:
        raise InvalidProblem(f"{len(names)} names for {p} variables; give one name a variable")
    if len(set(names)) != p:
        repeated = [name for name, count in collections.Counter(names).items() if count > 1][:5]
        raise InvalidProblem(f"variable names must differ; repeated: {', '.join(repeated)}")
    return values, names


def _first_text(data: Any, error: Exception) -> str:
    """What cannot be converted, with its column where the data are a DataFrame."""
    if hasattr(data, "columns"):
        for name, column in data.items():
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError) as found:
                return f"column {str(name)!r}: {found}"
    return str(error)
