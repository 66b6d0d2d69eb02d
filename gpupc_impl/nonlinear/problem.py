"""The problem of the nonlinear family: samples of continuous variables, and the parameters of the CMIknn test."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from gpupc_impl.core import allocation
from gpupc_impl.core.problem import (
    InvalidProblem,
    Problem,
    finite_matrix,
    name_constants,
    one_of,
    parameter,
    standard_rows,
    whole,
    whole_number,
)

PRECISIONS = ("float32", "float64")
PSI_BITS = 40  # digamma values are rounded to multiples of 2^-40, because sums of integers do not depend on their order
MAX_SAMPLES = 2**24  # float32 holds every integer up to it; a priority has 24 bits for it (kernels/philox.cuh)
MAX_PERMUTATIONS = 100_000


def _number_or_share(name: str, value: Any) -> int | float:
    """Return a whole number, or a share of the samples below one."""
    is_share = isinstance(value, (float, np.floating)) and 0 < value < 1
    return float(value) if is_share else whole_number(name, value, 1, MAX_SAMPLES)


@dataclasses.dataclass(frozen=True, eq=False)
class NonlinearProblem(Problem):
    """PC-stable with CMIknn: conditional mutual information from nearest neighbours, with local permutations. The test
    is that of Runge (2018) in the form of Hagedorn et al. (sections 2.2 and 4.1); docs/cmiknn.md defines it exactly.
    Build a problem with `from_data`, which checks its input.

    Attributes:
        values: (p, n) float32 or float64, C-contiguous: the transformed samples, one row per variable.
        transform: ``"ranks"`` (0 to n - 1), ``"standardize"`` (mean 0, variance 1) or ``"none"``, for each variable.
        permutations: perm, the number of permutations from which a p-value is computed.
        k_cmi: k_CMI, the number of neighbours in the joint space (V_i, V_j, S); the distance of the last one is the
            radius within which samples are counted.
        k_perm: k_perm, the number of neighbours in S from which a permutation draws.
        seed: the seed of all random numbers, 0 to 2^64 - 1.
        precision: the dtype of distances and of `values`, ``"float32"`` or ``"float64"``.
        constant: names of constant variables, whose values are set to zero.
    """

    family: ClassVar[str] = "nonlinear"

    values: np.ndarray
    transform: str = parameter("ranks", one_of("ranks", "standardize", "none"))
    permutations: int = parameter(100, whole(1, MAX_PERMUTATIONS))
    k_cmi: int = parameter(7, _number_or_share)
    k_perm: int = parameter(15, whole(1, MAX_SAMPLES))
    seed: int = parameter(0, whole(0, 2**64 - 1))
    precision: str = parameter("float32", one_of(*PRECISIONS))
    constant: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: Any, *, names: Sequence[str] | None = None, **parameters: Any) -> Self:
        """Make a problem from an array or a DataFrame of finite numbers, with samples in rows and variables in columns.
        The parameters are alpha (0.05), max_level (None) and the fields above with their defaults. A `k_cmi` below one
        is a fraction of the samples, as in tigramite's ``knn=0.2``: k_CMI is then max(1, int(k_cmi * n)).

        Under ``"ranks"``, equal values get their ranks in a random order, which is drawn from the seed for each
        variable. This would make noise of a constant variable, so constant variables are set to zero under every
        transform. All tests of one at level 0 have p = 1, so that it has no edge, and a warning names it.

        Raises:
            InvalidProblem: the shape is wrong, a value is missing or infinite, k_cmi or k_perm is not below the number
                of samples, or another parameter is invalid.
        """
        matrix, names = finite_matrix(data, names)
        checked = NonlinearProblem.checked(len(matrix), **parameters)
        transform, precision = checked["transform"], checked["precision"]
        columns = np.ascontiguousarray(matrix.T)
        constant = (columns == columns[:, :1]).all(axis=1)
        values = columns.copy() if transform == "none" else standard_rows(columns, ddof=0)
        if transform == "ranks":
            values = _ranks(columns, checked["seed"])
        values[constant] = 0.0
        with np.errstate(over="ignore"):
            values = allocation.copied(values, precision)
        _check_range(values, names, transform, precision)
        return cls(names=names, **checked, values=values, constant=name_constants(names, constant))

    @classmethod
    def checked_together(cls, n_samples: float, values: dict[str, Any]) -> dict[str, Any]:
        if not 2 <= n_samples < MAX_SAMPLES:
            raise InvalidProblem(f"data has {n_samples} sample(s); the test needs 2 to {MAX_SAMPLES - 1}")
        if isinstance(values["k_cmi"], float):
            values["k_cmi"] = max(1, int(values["k_cmi"] * n_samples))
        for name in ("k_cmi", "k_perm"):
            if values[name] >= n_samples:
                raise InvalidProblem(
                    f"{name} is {values[name]}, but each of the {n_samples} samples has only {n_samples - 1} "
                    f"neighbours; set {name} to at most {n_samples - 1} or bring more samples"
                )
        return values

    def check(self) -> None:
        p, values = len(self.names), self.values
        if values.ndim != 2 or len(values) != p or values.dtype not in PRECISIONS or values.dtype != self.precision:
            raise InvalidProblem(f"its values are {values.dtype} {values.shape}, for {p} variables of {self.precision}")
        if not values.flags.c_contiguous:
            raise InvalidProblem("its values are not in C order")
        super().check()
        if not set(self.constant) <= set(self.names):
            raise InvalidProblem("its constant variables are not among its variables")
        finite_matrix(values.T, self.names)
        _check_range(values, self.names, self.transform, self.precision)
        if self.transform == "ranks":
            ranks = self.scaled_ranks()
            if not ((ranks >= 0) & (ranks < self.n_samples) & (ranks == np.floor(ranks))).all():
                raise InvalidProblem("its values are no ranks")

    def scaled_ranks(self) -> np.ndarray:
        """Return the values of the variables that hold ranks, scaled to integers."""
        return self.values

    @property
    def n_samples(self) -> int:
        return self.values.shape[1]

    @functools.cached_property
    def psi(self) -> np.ndarray:
        """(n + 1,) int64: digamma(k) in units of 2^-40, rounded, at index k; 0 at index 0, since no count is 0."""
        table = np.zeros(self.n_samples + 1, np.int64)
        table[1:] = np.rint(scipy.special.digamma(np.arange(1.0, self.n_samples + 1)) * 2.0**PSI_BITS)
        return table

    @property
    def critical_count(self) -> int:
        """The smallest c with c / permutations >= alpha in float64; c permuted CMIs of at least the data's separate."""
        return int(np.argmax(np.arange(self.permutations + 1) / self.permutations >= self.alpha))

    def p_value(self, counts: int | np.ndarray) -> float | np.ndarray:
        """Return the p-value for numbers of permuted CMIs of at least the data's (GPU-CMIknn, Algorithm 2, line 13)."""
        return counts / self.permutations

    def cmi(self, partial: int | np.ndarray) -> float | np.ndarray:
        """Return the CMI in nats for sums of psi(n_xz) + psi(n_yz) - psi(n_z) in units of 2^-40 (equation 1)."""
        return scipy.special.digamma(self.k_cmi) - np.asarray(partial) / (self.n_samples * 2.0**PSI_BITS)


def _ranks(columns: np.ndarray, seed: int) -> np.ndarray:
    """Return the ranks 0 to n - 1 of each row; equal values get ranks in a random order (PCG64 of (seed, row))."""
    n = columns.shape[1]
    ranks = np.empty_like(columns)
    for k, column in enumerate(columns):
        # NumPy guarantees the raw stream of a bit generator forever, but not the numbers of its Generator.
        ties = np.random.PCG64(np.random.SeedSequence([seed, k])).random_raw(n)
        ranks[k, np.lexsort((ties, column))] = np.arange(n)
    return ranks


def _check_range(values: np.ndarray, names: Sequence[str], transform: str, precision: str) -> None:
    """Raise InvalidProblem if a distance would not be finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = values.max(axis=1) - values.min(axis=1)
    bad = np.flatnonzero(~np.isfinite(spread))
    if len(bad):
        raise InvalidProblem(
            f"variable {names[bad[0]]!r} spreads too far for {precision} distances with transform={transform!r}; "
            "use another transform or rescale it"
        )
