"""The Gaussian problem: PC-stable with Fisher's z test on a correlation matrix (cuPC, section 4.3)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import special

from gpupc_impl.core import mapped, placing
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.problem import (
    InvalidProblem,
    Problem,
    as_matrix,
    finite_matrix,
    name_constants,
    search_parameters,
)

DF_CONVENTIONS = ("pcalg", "cupc")

CORRELATIONS = ("host", "device")

PSEUDO_INVERSES = ("near-singular", "always")

RESIDUAL_TOLERANCE = 1e-10
"""The default of `GaussianProblem.residual_tolerance`: a residual variance (in units of the variable's own variance) at
or below this counts as zero.

One number serves two rules of the Gaussian CI test, in every method and reference:

- an endpoint whose residual variance given S is that small makes the test *undefined*: it does not separate;
- a Cholesky pivot of the conditioning matrix M2 that small makes M2 *near singular*: its inverse is then the
  Moore-Penrose inverse of cuPC, Algorithm 7, with `PSEUDO_INVERSE_TOLERANCE` for the rank.
"""

PSEUDO_INVERSE_TOLERANCE = 1e-9
"""Rank tolerance of cuPC's Algorithm 7: a pivot of M2^T M2 at or below this times the smallest positive diagonal
entry of M2^T M2 counts as zero (Courrieu 2008, the paper's reference [40])."""

PANEL = 1024
"""Variables whose correlations are made at a time. In one product of 16,000 and 1,000 samples the threads of OpenBLAS
0.3.31 write where they must not; and NumPy makes the mirror image of a large product one entry at a time."""

FAR_OFFSET = 1000
"""A column whose mean is more than this many of its standard deviations is centred in a way that loses no digits to it;
all others as ever, to the bit."""


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianProblem(Problem):
    """PC-stable with Fisher's z test on a correlation matrix (cuPC, section 4.3).

    Build one with `from_data` or `from_correlation`, which check their input.

    Attributes:
        correlation: (p, p) float64, C-contiguous, exactly symmetric, ones on the diagonal; in memory, or a read-only
            mapping of an ``.npy`` file (gaussian/large.py).
        n_samples: m, the number of samples behind the correlations.
        df_convention: ``"pcalg"`` uses m - |S| - 3 degrees of freedom at level |S|, as equation 7 of cuPC;
            ``"cupc"`` uses m - (|S| + 1) - 3, as the published cuPC and GPUCSL code does.
        residual_tolerance: see `RESIDUAL_TOLERANCE`. With 0 a test is whatever the arithmetic makes of it, as in pcalg
            and in the published code: undefined only where its variances have no root, and decided by rounding errors
            where the default would call it undefined (docs/ci-tests.md).
        pseudo_inverse: where M2 takes its Moore-Penrose inverse: ``"near-singular"``, where a Cholesky pivot is at most
            `residual_tolerance`; or ``"always"``, from level 2 on, as cuPC says. The latter also drops what a variable
            of S adds to the others where that is little (`PSEUDO_INVERSE_TOLERANCE`), which may decide otherwise.
        constant: names of constant variables, whose correlations are set to zero.
        correlations: where they are made. ``"host"``: here, once, so that every method has the same bits. ``"device"``:
            methods that run on a device make them there, of the samples; the last bits are then the device's, and
            `correlation` is made here when it is first asked for.
        samples: (m, p) float64, kept where correlations are made on a device, else None.
    """

    family: ClassVar[str] = "gaussian"
    PARAMETERS: ClassVar[Mapping[str, Any]] = {
        "df_convention": "pcalg",
        "residual_tolerance": RESIDUAL_TOLERANCE,
        "pseudo_inverse": "near-singular",
        "correlations": "host",
    }

    correlation: np.ndarray
    n_samples: int
    df_convention: str = "pcalg"
    residual_tolerance: float = RESIDUAL_TOLERANCE
    pseudo_inverse: str = "near-singular"
    constant: tuple[str, ...] = ()
    correlations: str = "host"
    samples: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.samples is not None:
            object.__delattr__(self, "correlation")  # until it is asked for

    def __getattr__(self, name: str) -> Any:
        if name != "correlation":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        correlation, _ = correlation_matrix(self.samples)
        correlation.setflags(write=False)
        object.__setattr__(self, "correlation", correlation)
        return correlation

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        alpha: float = 0.05,
        max_level: int | None = None,
        df_convention: str = "pcalg",
        residual_tolerance: float = RESIDUAL_TOLERANCE,
        pseudo_inverse: str = "near-singular",
        correlations: str = "host",
        names: Sequence[str] | None = None,
    ) -> GaussianProblem:
        """From samples in rows and variables in columns: an array or a DataFrame, finite numbers throughout.

        A constant variable is independent of every other: its correlations are set to zero, a warning names it,
        and it ends isolated.

        Raises:
            InvalidProblem: wrong shape, a value that is missing or infinite, or a bad parameter.
        """
        values, names = finite_matrix(data, names)
        if len(values) < 2:
            raise InvalidProblem(f"data has {len(values)} sample(s); a correlation needs at least 2")
        parameters = gaussian_parameters(
            len(values), alpha, max_level, df_convention, residual_tolerance, pseudo_inverse
        )
        if correlations not in CORRELATIONS:
            raise InvalidProblem(f"correlations is {correlations!r}; choose one of: {', '.join(CORRELATIONS)}")
        correlation = samples = None
        if correlations == "host":
            correlation, constant = correlation_matrix(values)
            correlation.setflags(write=False)
        else:
            samples, constant = placing.placed(values, np.float64), (values == values[0]).all(axis=0)
        parameters |= {"correlations": correlations, "samples": samples}
        return cls(names=names, correlation=correlation, constant=name_constants(names, constant), **parameters)

    @classmethod
    def from_correlation(
        cls,
        correlation: Any,
        *,
        n_samples: int,
        alpha: float = 0.05,
        max_level: int | None = None,
        df_convention: str = "pcalg",
        residual_tolerance: float = RESIDUAL_TOLERANCE,
        pseudo_inverse: str = "near-singular",
        names: Sequence[str] | None = None,
        constant: Sequence[str] = (),
    ) -> GaussianProblem:
        """From a (p, p) correlation matrix (array or DataFrame) and the number of samples it was made from.

        A float64 ``np.load(..., mmap_mode="r")`` is used where it lies, without a copy, and must be exact for that:
        `gpupc_impl.gaussian.large.exact_correlation` makes one that is of any other.

        Raises:
            InvalidProblem: not square, not symmetric (to 1e-8), a diagonal that is not one (to 1e-8), an entry
                outside [-1, 1] (by more than 1e-8) or not finite, a mapped one that is not exact, or a bad parameter.
        """
        if mapped.base_memmap(correlation) is not None and correlation.dtype == np.float64:
            matrix, names = _mapped_correlation(correlation, names)
        else:
            matrix, names = _correlation_in_memory(correlation, names)
        parameters = gaussian_parameters(n_samples, alpha, max_level, df_convention, residual_tolerance, pseudo_inverse)
        return cls(names=names, correlation=matrix, constant=tuple(constant), **parameters)

    @property
    def pivot_tolerance(self) -> float:
        """A Cholesky pivot of M2 up to this makes it take its Moore-Penrose inverse; no pivot is above one."""
        return 1.0 if self.pseudo_inverse == "always" else self.residual_tolerance

    @functools.cached_property
    def by_pseudo_inverse(self) -> GaussianProblem:
        """The same problem with the Moore-Penrose inverse of every M2; made once, its fingerprint included."""
        return dataclasses.replace(self, pseudo_inverse="always")

    def fault(self) -> str | None:
        p, given = self.n_variables, self.correlation if self.samples is None else self.samples
        shape = (p, p) if self.samples is None else (self.n_samples, p)
        if not isinstance(given, np.ndarray) or given.dtype != np.float64 or given.shape != shape:
            return f"its numbers are {getattr(given, 'dtype', None)} {np.shape(given)}, not float64 {shape}"
        return None if given.flags.c_contiguous else "its numbers are not in C order"

    def degrees_of_freedom(self, level: int) -> int:
        """m - |S| - 3 (or one less under ``df_convention="cupc"``); tests need it positive."""
        return self.n_samples - level - 3 - (1 if self.df_convention == "cupc" else 0)

    def threshold(self, level: int) -> float:
        """tau of equation 7 of cuPC: S separates when |Z| <= tau."""
        return _quantile(self.alpha) / math.sqrt(self.degrees_of_freedom(level))

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

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 over everything that changes the answer; names do not."""
        matrix = self.correlation if self.samples is None else self.samples
        told = (self.family, self.n_samples, self.alpha, self.max_level, self.df_convention, matrix.shape)
        if self.residual_tolerance != RESIDUAL_TOLERANCE:
            told += (self.residual_tolerance,)
        if self.pseudo_inverse != "near-singular":
            told += (self.pseudo_inverse,)
        digest = hashlib.sha256(repr(told if self.samples is None else (*told, self.correlations)).encode())
        mapped.update_digest(digest, matrix)
        if self.fixed is not None:
            digest.update(self.fixed.digest)
        return digest.hexdigest()

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"correlation": self.correlation} if self.samples is None else {"samples": self.samples}

    def _plain(self) -> dict[str, Any]:
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if name not in ("correlation", "samples", "fixed")}

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz`` that `load` reads back bit for bit.

        A correlation matrix that is an ``.npy`` file of its own stays where it is: what is written holds its path as
        seen from here, so the two can be moved together, and a digest by which another one is told apart.
        """
        matrix_file = mapped.npy_path(self.correlation) if self.samples is None else None
        if matrix_file is None:
            super().save(path)
            return
        content = {
            "correlation_file": Path(os.path.relpath(matrix_file, Path(path).absolute().parent)).as_posix(),
            "correlation_spot": mapped.spot_sha256(self.correlation),
            "fingerprint": self.fingerprint,
        }
        self._write(path, content)

    @classmethod
    def load(cls, path: str | Path) -> GaussianProblem:
        """Read what `save` wrote; a correlation matrix in a file of its own is mapped, and not read.

        Raises:
            InvalidProblem: that file is missing, or is another matrix (64 of its rows are compared).
        """
        problem = super().load(path)
        with open_arrays(path) as stored:
            if "fingerprint" in stored:
                problem.__dict__["fingerprint"] = str(stored["fingerprint"])  # else it is read whole to be hashed
        return problem

    @classmethod
    def _read_arrays(cls, path: Path, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "correlation_file" in stored:
            return {"correlation": _stored_correlation(path, stored)}
        return {"correlation": None, **super()._read_arrays(path, stored)}


@functools.lru_cache(maxsize=64)
def _quantile(alpha: float) -> float:
    """Phi^-1(1 - alpha / 2); kept, since every level asks for it."""
    half = alpha / 2
    return -float(special.ndtri(half) if half > 0.0 else special.ndtri_exp(math.log(alpha) - math.log(2.0)))


def correlation_matrix(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pearson correlations of the columns of an (m, p) float64 matrix.

    Columns are scaled by their largest magnitude before anything is squared, so values near the ends of the
    float64 range do not overflow (docs/numerics.md).

    Returns:
        (p, p) correlations, exactly symmetric, with zeros for constant columns, and (p,) bool that marks those columns.
    """
    centred, constant = standardized(values)
    p = centred.shape[1]
    correlation = placing.new_array((p, p))
    for columns in mapped.pieces(p, PANEL):
        panel, rest = centred[:, columns], slice(columns.stop, p)
        np.matmul(panel.T, panel, out=correlation[columns, columns])  # one triangle by syrk, and its mirror image
        np.matmul(panel.T, centred[:, rest], out=correlation[columns, rest])
        correlation[rest, columns] = correlation[columns, rest].T
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0, out=correlation), constant


def standardized(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of an (m, p) matrix with mean zero and length one, whose products are the correlations.

    Returns:
        (m, p) such columns, zeros for constant ones, and (p,) bool that marks those.
    """
    values = np.ascontiguousarray(values, dtype=np.float64)  # so that sums have one order in any layout
    constant = (values == values[0]).all(axis=0)
    scale = np.abs(values).max(axis=0)
    centred = values / np.where(scale > 0, scale, 1.0)
    mean = centred.mean(axis=0)
    centred -= mean
    norm = _lengths(centred)
    far = ~constant & (np.abs(mean) * math.sqrt(len(values)) > FAR_OFFSET * norm)
    if far.any():
        centred[:, far] = _centred_without_division(values[:, far])
        norm[far] = _lengths(centred[:, far])
    constant |= norm == 0
    centred /= np.where(constant, 1.0, norm)
    centred[:, constant] = 0.0
    return centred, constant


def _lengths(columns: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->j", columns, columns))


def _centred_without_division(values: np.ndarray) -> np.ndarray:
    """Columns times a power of two, with mean zero: values that are near one another are subtracted without an error.

    A division rounds what a column is far from zero by, not what it varies by.
    """
    _, exponents = np.frexp(np.abs(values).max(axis=0))
    scaled = np.ldexp(values, -exponents)
    scaled -= scaled[0]
    return scaled - scaled.mean(axis=0)


def _correlation_in_memory(correlation: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The checked (p, p) matrix, made exact, and its names."""
    matrix, names = as_matrix(correlation, names)
    p = len(matrix)
    if matrix.shape != (p, p):
        raise InvalidProblem(f"correlation has shape {matrix.shape}; it must be square")
    check_correlations(matrix, matrix.T)
    exact = placing.new_array((p, p))
    np.add(matrix, matrix.T, out=exact)
    exact /= 2
    np.clip(exact, -1.0, 1.0, out=exact)
    np.fill_diagonal(exact, 1.0)
    exact.setflags(write=False)
    return exact, names


def check_correlations(matrix: np.ndarray, transposed: np.ndarray, diagonal: bool = True) -> None:
    """Check that a matrix, or a tile of one, holds correlations, to 1e-8.

    Args:
        transposed: the matrix transposed; of a tile its mirror image, transposed back.
        diagonal: whether it holds its part of the diagonal.

    Raises:
        InvalidProblem: they are not.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(transposed).all()):
        raise InvalidProblem("correlation has entries that are not finite; give constant variables zeros instead")
    worst = float(np.abs(matrix - transposed).max(initial=0.0))
    if worst > 1e-8:
        raise InvalidProblem(f"correlation is not symmetric: it differs from its transpose by {worst:.3g}")
    worst = float(np.abs(np.diagonal(matrix) - 1.0).max(initial=0.0)) if diagonal else 0.0
    if worst > 1e-8:
        raise InvalidProblem(
            f"correlation has a diagonal that differs from one by {worst:.3g}; a covariance matrix must be "
            "scaled to correlations first"
        )
    worst = float(np.abs(matrix).max(initial=0.0))
    if worst > 1 + 1e-8:
        raise InvalidProblem(f"correlation has an entry of size {worst:.6g}; entries must lie in [-1, 1]")


def correlation_fault(matrix: np.ndarray, tile: int = 1024) -> str | None:
    """Why a (p, p) matrix cannot be used as correlations bit for bit, as a sentence; None when it can.

    It must be finite, lie in [-1, 1], have ones on its diagonal and equal its transpose exactly. Two tiles are in
    memory at a time.
    """
    for rows in mapped.pieces(len(matrix), tile):
        for columns in mapped.pieces(len(matrix), tile):
            if columns.start < rows.start:
                continue
            upper, lower = np.asarray(matrix[rows, columns]), np.asarray(matrix[columns, rows]).T
            if not (np.isfinite(upper).all() and np.isfinite(lower).all()):
                return "it has entries that are not finite"
            difference = float(np.abs(upper - lower).max())
            if difference > 0:
                return f"it is not exactly symmetric: it differs from its transpose by {difference:.3g}"
            largest = float(np.abs(upper).max())
            if largest > 1:
                return f"it has an entry of size {largest:.17g}; entries must lie in [-1, 1]"
            if rows == columns and not (np.diagonal(upper) == 1).all():
                worst = float(np.abs(np.diagonal(upper) - 1).max())
                return f"its diagonal differs from one by {worst:.3g}"
            mapped.release(matrix)
    return None


def _mapped_correlation(matrix: np.memmap, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """A mapped matrix as it is, and its names."""
    _, names = as_matrix(matrix, names)
    if matrix.shape != (len(matrix), len(matrix)):
        raise InvalidProblem(f"correlation has shape {matrix.shape}; it must be square")
    fault = correlation_fault(matrix)
    if fault is None and not matrix.flags.c_contiguous:
        fault = "it is not in C order"
    if fault is not None:
        raise InvalidProblem(
            f"correlation lies in a file, so it is used as it is, but {fault}; "
            "gpupc_impl.gaussian.large.exact_correlation writes one that can be used (or give a copy, np.array(...))"
        )
    matrix = matrix.view()
    matrix.setflags(write=False)
    return matrix, names


def _stored_correlation(path: Path, stored: Mapping[str, np.ndarray]) -> np.ndarray:
    """The matrix beside the problem file at `path`, mapped."""
    matrix_file = path.parent / str(stored["correlation_file"])
    try:
        matrix = np.load(matrix_file, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InvalidProblem(
            f"{path.name} is a problem whose correlation matrix lies in {str(stored['correlation_file'])!r} beside it, "
            f"which cannot be read ({error}); move both files together, or make the problem again"
        ) from error
    if mapped.spot_sha256(matrix) != str(stored["correlation_spot"]):
        raise InvalidProblem(
            f"{matrix_file.name} is not the correlation matrix that {path.name} was saved with; make the problem again"
        )
    return matrix


def gaussian_parameters(
    n_samples: float,
    alpha: float,
    max_level: int | None,
    df_convention: str,
    residual_tolerance: float = RESIDUAL_TOLERANCE,
    pseudo_inverse: str = "near-singular",
) -> dict[str, Any]:
    """The parameters of a Gaussian problem by name, checked.

    Raises:
        InvalidProblem: out of range.
    """
    if not float(n_samples).is_integer() or n_samples < 1:
        raise InvalidProblem(f"n_samples is {n_samples!r}; it must be a whole number of at least 1")
    if df_convention not in DF_CONVENTIONS:
        raise InvalidProblem(f"df_convention is {df_convention!r}; choose one of: {', '.join(DF_CONVENTIONS)}")
    if not 0 <= residual_tolerance < 1:
        raise InvalidProblem(f"residual_tolerance is {residual_tolerance!r}; it must be at least 0 and below 1")
    if pseudo_inverse not in PSEUDO_INVERSES:
        raise InvalidProblem(f"pseudo_inverse is {pseudo_inverse!r}; choose one of: {', '.join(PSEUDO_INVERSES)}")
    own = {"df_convention": df_convention, "residual_tolerance": float(residual_tolerance)}
    own |= {"n_samples": int(n_samples), "pseudo_inverse": pseudo_inverse}
    return search_parameters(alpha, max_level) | own
