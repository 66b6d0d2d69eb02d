"""The kernel family's problem: standardized samples, the test, and the random numbers that its features need."""

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
)

NULLS = {  # Tests, each with its possible null distributions, of which "auto" means the first.
    "rcit": ("lindsay-pilla-basak", "satterthwaite-welch", "hall-buckley-eagleson"),
    "rcot": ("lindsay-pilla-basak", "satterthwaite-welch", "hall-buckley-eagleson"),
    "kci": ("gamma", "spectral"),
}

SAMPLES_PER_FEATURE = 4  # at least, of a set: with as many features as samples no residual would be left
WEIGHTS = ("corrected", "published")  # how the weights of the null distribution are scaled (docs/kernel.md)
WIDTH_SAMPLES, WIDTH_PAIRS = 500, 4096  # the kernel width is the median distance of at most so many pairs
RIDGE = 1e-8  # ridge that is added to the diagonal of the covariance of a set's features (RCIT, RCoT)
KCI_RIDGE = 1e-3  # regularization of the kernel ridge regression on the set, a multiple of the identity (KCI)
EXACT_SAMPLES = 2000  # beyond, KCI uses the Nystrom approximation of its matrices
SPECTRAL_SAMPLES = 1000  # upper bound on the samples for which KCI simulates its null distribution from eigenvalues
NULL_DRAWS = {False: 1000, True: 5000}  # without a conditioning set and with one, as in causal-learn
EIGENVALUE_CUTOFF = {False: 1e-6, True: 1e-5}  # share of the largest weight, as in causal-learn
MAX_WEIGHTS = 4000  # products of eigenvalues in KCI's simulation without a set: the largest
NYSTROM_JITTER = 1e-6  # number that is added to the diagonal of the landmarks' kernel matrix before its factorization
MIN_SAMPLES, MAX_SAMPLES = 8, 2**24
MAX_FEATURES, MAX_SET_FEATURES = 20, 1000
OWN, IN_SET, SECOND, BESIDE_SECOND, PAIRS, LANDMARKS, NULL = range(7)
"""The purposes of random numbers, each with a stream of its own. The first four are for features: of a variable alone,
of a member of a set, and in RCIT, where the second variable and the set have joint features, of either part."""


@dataclasses.dataclass(frozen=True, eq=False)
class KernelProblem(Problem):
    """PC-stable with a kernel test: RCIT or RCoT (Strobl et al. 2019), or KCI (Zhang et al. 2011). The tests are stated
    exactly in docs/kernel.md. Build a problem with `from_data`, which checks its input.

    Attributes:
        values: (p, n) float64, C-contiguous: each variable with mean 0 and sample variance 1; zeros for a constant one.
        test: ``"rcit"``, ``"rcot"`` or ``"kci"``.
        null: the null distribution, one of `NULLS` of the test.
        features: number of random Fourier features of a variable (RCIT, RCoT).
        set_features: upper bound on the features of a conditioning set (RCIT, RCoT); see `n_set_features`.
        weights: how the weights of the null distribution are scaled (RCIT, RCoT): ``"corrected"`` for the degrees of
            freedom that the regression on the set takes, or ``"published"``.
        landmarks: rank of the Nystrom approximation beyond `EXACT_SAMPLES` samples (KCI).
        seed: seed of all random numbers, 0 to 2^64 - 1.
        constant: names of constant variables.
    """

    family: ClassVar[str] = "kernel"

    values: np.ndarray
    test: str = parameter("rcit", one_of(*NULLS))
    null: str = parameter("auto", lambda name, value: value)
    features: int = parameter(5, whole(1, MAX_FEATURES))
    set_features: int = parameter(100, whole(1, MAX_SET_FEATURES))
    weights: str = parameter("corrected", one_of(*WEIGHTS))
    landmarks: int = parameter(300, whole(10, EXACT_SAMPLES))
    seed: int = parameter(0, whole(0, 2**64 - 1))
    constant: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: Any, *, names: Sequence[str] | None = None, **parameters: Any) -> Self:
        """Make a problem of an array or a DataFrame of finite numbers, with samples in rows and variables in columns.

        The parameters are alpha (0.05), max_level (None) and the fields above with their defaults. The null
        distribution ``"auto"`` is Lindsay, Pilla and Basak's for RCIT and RCoT, and the gamma distribution for KCI. A
        constant variable is independent of all others: its tests have p = 1, and a warning names the variable."""
        matrix, names = finite_matrix(data, names)
        checked = cls.checked(len(matrix), **parameters)
        columns = np.ascontiguousarray(matrix.T)
        constant = (columns == columns[:, :1]).all(axis=1)
        values = standard_rows(columns, ddof=1)
        values[constant] = 0.0
        return cls(names=names, values=allocation.copied(values), **checked, constant=name_constants(names, constant))

    @classmethod
    def checked_together(cls, n_samples: float, values: dict[str, Any]) -> dict[str, Any]:
        nulls = NULLS[values["test"]]
        if values["null"] == "auto":
            values["null"] = nulls[0]
        if values["null"] not in nulls:
            raise InvalidProblem(
                f"null is {values['null']!r}; for test={values['test']!r} choose one of: auto, {', '.join(nulls)}"
            )
        if not MIN_SAMPLES <= n_samples < MAX_SAMPLES:
            raise InvalidProblem(f"data has {n_samples} sample(s); the test needs {MIN_SAMPLES} to {MAX_SAMPLES - 1}")
        if values["null"] == "spectral" and n_samples > SPECTRAL_SAMPLES:
            raise InvalidProblem(
                f"null is 'spectral' for {n_samples} samples; it needs all eigenvalues of matrices of that size and is "
                f"for at most {SPECTRAL_SAMPLES}; say null='gamma', or bring fewer samples"
            )
        return values

    def check(self) -> None:
        p, values = self.n_variables, self.values
        if values.ndim != 2 or len(values) != p or values.dtype != np.float64 or not values.flags.c_contiguous:
            raise InvalidProblem(f"its values are {values.dtype} {values.shape}, for {p} variables")
        super().check()
        finite_matrix(values.T, self.names)
        if self.constant != tuple(np.array(self.names, object)[self.is_constant()]):
            raise InvalidProblem("its constant variables are others than those without a variance")
        with np.errstate(over="ignore"):
            deviations = values[~self.is_constant()].std(axis=1, ddof=1)
        if not np.allclose(deviations, 1):
            raise InvalidProblem("its values do not have variance 1")

    @property
    def n_samples(self) -> int:
        return self.values.shape[1]

    @property
    def n_set_features(self) -> int:
        """`set_features`, but no more than the samples allow."""
        return min(self.set_features, self.n_samples // SAMPLES_PER_FEATURE)

    def weight_scale(self, degrees: Any) -> Any:
        """The factor of the weights of the null distribution, given the degrees of freedom k of the regression.
        Residuals lie in n - 1 - k of n dimensions: the expected squared covariance is proportional to n - 1 - k, and
        the weights, means of products of squares, add up to a number proportional to ((n - 1 - k) / n)^2 n."""
        return self.n_samples / (self.n_samples - 1 - degrees) if self.weights == "corrected" else 0 * degrees + 1.0

    @property
    def is_exact(self) -> bool:
        return self.n_samples <= EXACT_SAMPLES

    def outline(self) -> dict[str, Any]:
        form = {"kci": "exact" if self.is_exact else "Nystrom"}.get(self.test, "random Fourier features")
        return {**super().outline(), "form": form}

    def width(self, level: int) -> float:
        """The width of KCI's Gaussian kernels exp(-d^2 / (2 width^2)), by causal-learn's empirical rule."""
        small, medium, large = (1.2, 0.7, 0.4) if level else (0.8, 0.5, 0.3)
        n = self.n_samples
        return (small if n < 200 else medium if n < 1200 else large) * max(level, 1) ** 0.5

    def is_constant(self) -> np.ndarray:
        return ~self.values.any(axis=1)

    def frequencies(self, role: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(p, count) standard normal frequencies and phases in [0, 2 pi) of the variables' features in a role. A
        feature of several variables has the frequency of each and the sum of their phases, so all sets can use them."""
        raw = np.stack([self._uniform(2 * count, role, v) for v in range(self.n_variables)])
        return scipy.special.ndtri(raw[:, :count]), 2 * np.pi * raw[:, count:]

    @functools.cached_property
    def width_pairs(self) -> np.ndarray:
        """(w, 2) pairs of samples whose distances decide the kernel width: all pairs, or `WIDTH_PAIRS` random ones."""
        samples = min(self.n_samples, WIDTH_SAMPLES)
        if samples * (samples - 1) // 2 <= WIDTH_PAIRS:
            return np.stack(np.triu_indices(samples, 1), axis=1)
        first, apart = self._uniform(2 * WIDTH_PAIRS, PAIRS).reshape(2, -1)
        first = (first * samples).astype(np.int64)
        return np.stack([first, (first + 1 + (apart * (samples - 1)).astype(np.int64)) % samples], axis=1)

    @functools.cached_property
    def landmark_samples(self) -> np.ndarray:
        """(m,) the samples on which the Nystrom approximation rests, ascending."""
        return np.sort(np.argsort(self._uniform(self.n_samples, LANDMARKS), kind="stable")[: self.landmarks])

    def null_draws(self, conditional: bool) -> np.ndarray:
        """(w, draws) chi-square random numbers with one degree of freedom for the simulated null distribution."""
        shape = (self.n_samples if conditional else MAX_WEIGHTS), NULL_DRAWS[conditional]
        return scipy.special.ndtri(self._uniform(shape[0] * shape[1], NULL, int(conditional)).reshape(shape)) ** 2

    def _uniform(self, count: int, *purpose: int) -> np.ndarray:
        """(count,) numbers in (0, 1) from Philox's raw stream, which NumPy guarantees not to change."""
        raw = np.random.Philox(np.random.SeedSequence([self.seed, *purpose])).random_raw(count)
        return ((raw >> np.uint64(11)) + 0.5) * 2.0**-53
