"""The Gaussian problem: PC-stable with Fisher's z test on a correlation matrix (cuPC, section 4.3)."""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation, mapped_arrays
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.problem import (
    InvalidProblem,
    Problem,
    finite_matrix,
    name_constants,
    one_of,
    parameter,
    variable_names,
)
from gpupc_impl.core.rows import RowStream
from gpupc_impl.gaussian.matrix import (
    constant_columns,
    correlation_fault,
    correlation_in_memory,
    correlation_matrix,
    mapped_correlation,
    spot,
    stored_correlation,
    streamed_correlations,
)

RESIDUAL_TOLERANCE = 1e-10
"""The default of `residual_tolerance`: a residual variance up to this, relative to the variable's, counts as zero.

Two rules of the Gaussian CI test use this tolerance, in every method and reference:

- If the residual variance of an endpoint given S counts as zero, the test is *undefined*, and S does not separate.
- If a Cholesky pivot of the conditioning matrix M2 counts as zero, M2 is *near singular*, and its inverse is the
  Moore-Penrose inverse of cuPC, Algorithm 7, with the rank tolerance `PSEUDO_INVERSE_TOLERANCE`."""

PSEUDO_INVERSE_TOLERANCE = 1e-9
"""The rank tolerance of cuPC, Algorithm 7: a pivot of M2^T M2 counts as zero if its ratio to the smallest positive
diagonal entry of M2^T M2 is at most this (Courrieu 2008, reference [40] of cuPC)."""


def _checked_tolerance(name: str, value: Any) -> float:
    if not 0 <= value < 1:
        raise InvalidProblem(f"{name} is {value!r}; it must be at least 0 and below 1")
    return float(value)


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianProblem(Problem):
    """PC-stable with Fisher's z test on a correlation matrix (cuPC, section 4.3). Build one with `from_data` or
    `from_correlation`, which check their input.

    Attributes:
        correlation: (p, p) float64, C-contiguous, exactly symmetric, with ones on the diagonal; an array in memory, or
            a read-only mapping of an ``.npy`` file (gaussian/large.py).
        n_samples: m, the number of samples from which the correlations were computed.
        df_convention: ``"pcalg"`` means m - |S| - 3 degrees of freedom at level |S|, as in equation 7 of cuPC;
            ``"cupc"`` means m - (|S| + 1) - 3, as in the published code of cuPC and GPUCSL.
        residual_tolerance: see `RESIDUAL_TOLERANCE`. With 0, as in pcalg and in the published code, a test is undefined
            only if a residual variance is exactly zero, and rounding errors decide tests that are undefined under the
            default (docs/ci-tests.md).
        pseudo_inverse: which M2 are inverted by Moore-Penrose: under ``"near-singular"``, those with a Cholesky pivot
            of at most `residual_tolerance`; under ``"always"``, all from level 2 on, as cuPC prescribes. Skeletons can
            differ, since ``"always"`` also drops a variable of S that adds little (`PSEUDO_INVERSE_TOLERANCE`).
        constant: names of constant variables, whose correlations are set to zero.
        correlations: where correlations are computed. Under ``"host"``, `from_data` computes them once, so that all
            methods use the same bits. Under ``"device"``, each method computes them from the samples on its device, so
            that the last bits depend on the device; `correlation` is then computed in host memory on first access.
        samples: (m, p) float64 if correlations are computed on a device; otherwise None.
    """

    family: ClassVar[str] = "gaussian"

    correlation: np.ndarray
    n_samples: int
    df_convention: str = parameter("pcalg", one_of("pcalg", "cupc"))
    residual_tolerance: float = parameter(RESIDUAL_TOLERANCE, _checked_tolerance)
    pseudo_inverse: str = parameter("near-singular", one_of("near-singular", "always"))
    constant: tuple[str, ...] = ()
    correlations: str = parameter("host", one_of("host", "device"))
    samples: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.samples is not None:
            object.__delattr__(self, "correlation")  # Without the attribute, __getattr__ computes the matrix.

    def __getattr__(self, name: str) -> Any:
        if name != "correlation":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        correlation, _ = correlation_matrix(self.samples)
        correlation.setflags(write=False)
        object.__setattr__(self, "correlation", correlation)
        return correlation

    @classmethod
    def from_data(
        cls, data: Any, *, correlations: str = "host", names: Sequence[str] | None = None, **parameters: Any
    ) -> Self:
        """Make a problem from finite numbers, with samples in rows and variables in columns: an array, a DataFrame or a
        `RowStream`, which is not read as a whole if correlations are computed on the host. The parameters are alpha
        (0.05), max_level (None) and the fields above with their defaults. A constant variable counts as independent of
        every other: its correlations are zero, and a warning names it.

        Raises:
            InvalidProblem: the shape is wrong, a value is missing or infinite, or a parameter is invalid.
        """
        streamed = isinstance(data, RowStream) and correlations == "host"
        values, names = (checked_stream if streamed else finite_samples)(data, names)
        checked = cls.checked(len(values), correlations=correlations, **parameters)
        correlation = samples = None
        if correlations == "host":
            correlation, constant = (streamed_correlations if streamed else correlation_matrix)(values)
            correlation.setflags(write=False)
        else:
            samples, constant = allocation.copied(values, np.float64), constant_columns(values)
        arrays = {"correlation": correlation, "samples": samples}
        return cls(names=names, constant=name_constants(names, constant), **arrays, **checked)

    @classmethod
    def from_correlation(
        cls,
        correlation: Any,
        *,
        n_samples: int,
        names: Sequence[str] | None = None,
        constant: Sequence[str] = (),
        **parameters: Any,
    ) -> Self:
        """Make a problem from a (p, p) correlation matrix (array or DataFrame) and its `n_samples`. A mapped float64
        matrix, ``np.load(..., mmap_mode="r")``, is not copied, so it must be exact (gaussian/matrix.py). The parameters
        are alpha, max_level, df_convention, residual_tolerance and pseudo_inverse, as for `from_data`.

        Raises:
            InvalidProblem: the matrix is not square, not symmetric or has a diagonal other than one (to 1e-8), has an
                entry not finite or outside [-1, 1] (to 1e-8), is mapped and not exact; or a parameter is invalid.
        """
        if mapped_arrays.base_memmap(correlation) is not None and correlation.dtype == np.float64:
            matrix, names = mapped_correlation(correlation, names)
        else:
            matrix, names = correlation_in_memory(correlation, names)
        checked = cls.checked(n_samples, **parameters)
        return cls(names=names, correlation=matrix, constant=tuple(constant), **checked)

    @property
    def pivot_tolerance(self) -> float:
        """The bound on the Cholesky pivots for which M2 takes its Moore-Penrose inverse; none is above one."""
        return 1.0 if self.pseudo_inverse == "always" else self.residual_tolerance

    @functools.cached_property
    def by_pseudo_inverse(self) -> Self:
        """The problem with Moore-Penrose inverses of every M2, kept since computing its fingerprint takes long."""
        return dataclasses.replace(self, pseudo_inverse="always")

    @classmethod
    def checked_together(cls, n_samples: float, values: dict[str, Any]) -> dict[str, Any]:
        if not float(n_samples).is_integer() or n_samples < 1:
            raise InvalidProblem(f"n_samples is {n_samples!r}; it must be a whole number of at least 1")
        return {"n_samples": int(n_samples), **values}

    def check(self) -> None:
        super().check()
        p, matrix = self.n_variables, self.correlation if self.samples is None else self.samples
        shape = (p, p) if self.samples is None else (self.n_samples, p)
        if not isinstance(matrix, np.ndarray) or matrix.dtype != np.float64 or matrix.shape != shape:
            found = f"{getattr(matrix, 'dtype', None)} {np.shape(matrix)}"
            raise InvalidProblem(f"its numbers are {found}, not float64 {shape}")
        if not matrix.flags.c_contiguous:
            raise InvalidProblem("its numbers are not in C order")
        if self.correlations != ("host" if self.samples is None else "device"):
            raise InvalidProblem(f"correlations is {self.correlations!r}, and its numbers are others")
        if not set(self.constant) <= set(self.names):
            raise InvalidProblem("its constant variables are not among its variables")
        if self.samples is not None:
            finite_samples(self.samples, self.names)
        elif fault := correlation_fault(matrix if mapped_arrays.base_memmap(matrix) is None else spot(matrix)):
            raise InvalidProblem(f"its correlation matrix cannot be used: {fault}")

    def spent(self, level: int) -> int:
        """Return the number that is subtracted from a sample size to get the degrees of freedom of a level."""
        return level + 3 + (self.df_convention == "cupc")

    def degrees_of_freedom(self, level: int) -> int:
        """Return m - |S| - 3, or one less under ``df_convention="cupc"``; a test needs a positive number."""
        return self.n_samples - self.spent(level)

    def threshold(self, level: int) -> float:
        """Return tau of equation 7 of cuPC: S separates if |Z| <= tau."""
        return _quantile(self.alpha) / math.sqrt(self.degrees_of_freedom(level))

    def critical_r_squared(self, level: int) -> float:
        """Return tanh(tau)^2: S separates if r^2 <= tanh(tau)^2, a decision that needs no logarithm. The value is
        clamped to less than one, so that a correlation of one (Z infinite) never counts as independence."""
        return min(math.tanh(self.threshold(level)) ** 2, float(np.nextafter(1.0, 0.0)))

    def p_value(self, r_squared: float | np.ndarray, level: int) -> float | np.ndarray:
        """Return the two-sided p-value of squared partial correlation(s) at a level."""
        from scipy import special

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

    def _arrays(self) -> dict[str, np.ndarray]:
        unused = "correlation" if self.samples is not None else "samples"
        names = [field.name for field in dataclasses.fields(self) if field.name not in (unused, "tiers")]
        return {name: value for name in names if isinstance(value := getattr(self, name), np.ndarray)}

    def _plain(self) -> dict[str, Any]:
        others = {"correlation", "samples", "fixed", "tiers", *self._arrays()}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in others}

    def save(self, path: str | Path) -> None:
        """Write an uncompressed ``.npz`` that `load` reads back bit for bit. A correlation matrix that is mapped from
        an ``.npy`` file stays there; the problem's file then holds a digest that identifies the matrix, and the path of
        its file relative to the problem's file, so that both files can be moved together."""
        matrix_file = mapped_arrays.npy_path(self.correlation) if self.samples is None else None
        if matrix_file is None:
            super().save(path)
            return
        content = {
            "correlation_file": Path(os.path.relpath(matrix_file, Path(path).absolute().parent)).as_posix(),
            "correlation_spot": mapped_arrays.spot_sha256(self.correlation),
            "fingerprint": self.fingerprint,
        }
        self._write(path, content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a problem that `save` wrote; a correlation matrix in a separate file is mapped and not read.
        InvalidProblem is raised if that file is missing, or holds another matrix (64 of its rows are compared)."""
        problem = super().load(path)
        with open_arrays(path) as stored:
            if "fingerprint" in stored:
                # Computing the fingerprint again would read the whole matrix.
                problem.__dict__["fingerprint"] = str(stored["fingerprint"])
        return problem

    @classmethod
    def _read_arrays(cls, path: Path, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "correlation_file" in stored:
            return {"correlation": stored_correlation(path, stored)}
        return {"correlation": None, **super()._read_arrays(path, stored)}


def finite_samples(data: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Call `finite_matrix` and check that the data have at least two samples."""
    values, names = finite_matrix(data, names)
    if len(values) < 2:
        raise InvalidProblem(f"data has {len(values)} sample(s); a correlation needs at least 2")
    return values, names


def checked_stream(stream: RowStream, names: Sequence[str] | None) -> tuple[RowStream, tuple[str, ...]]:
    """Make the checks of `finite_samples` for a table that is read some rows at a time."""
    names, found = variable_names(names, stream.shape[1]), stream.statistics
    if first := min(filter(None, (found.first_missing, found.first_infinite)), default=None):
        raise InvalidProblem(
            f"data has {found.missing.sum() + found.infinite} missing or infinite value(s), the first in row "
            f"{first[0]}, column {names[first[1]]!r}; drop those rows or impute them first"
        )
    if found.rows < 2:
        raise InvalidProblem(f"data has {found.rows} sample(s); a correlation needs at least 2")
    return stream, names


QUANTILES = {0.001: 3.2905267314918945, 0.01: 2.575829303548901, 0.05: 1.9599639845400545, 0.1: 1.6448536269514729}
"""Phi^-1(1 - alpha / 2) of usual values of alpha: SciPy takes as long to import as a search of a few variables."""


@functools.lru_cache(maxsize=64)
def _quantile(alpha: float) -> float:
    """Return Phi^-1(1 - alpha / 2), which is cached because every level needs it."""
    if alpha in QUANTILES:
        return QUANTILES[alpha]
    from scipy import special

    half = alpha / 2
    return -float(special.ndtri(half) if half > 0.0 else special.ndtri_exp(math.log(alpha) - math.log(2.0)))
