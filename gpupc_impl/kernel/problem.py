"""The kernel family's problem: standardized samples, the test, and the random numbers that its features need."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from gpupc_impl.core import placing
from gpupc_impl.core.problem import (
    InvalidProblem,
    Problem,
    check_choice,
    finite_matrix,
    name_constants,
    search_parameters,
    standard_rows,
    whole_number,
)

NULLS = {
    "rcit": ("lindsay-pilla-basak", "satterthwaite-welch", "hall-buckley-eagleson"),
    "rcot": ("lindsay-pilla-basak", "satterthwaite-welch", "hall-buckley-eagleson"),
    "kci": ("gamma", "spectral"),
}
"""The tests, each with its possible null distributions, of which ``"auto"`` means the first."""

SAMPLES_PER_FEATURE = 4
"""Lower bound on the samples for each feature of a set: with as many features as samples no residual would be left."""

WEIGHTS = ("corrected", "published")
"""The ways to scale the weights of the null distribution in RCIT and RCoT, since regression on the set makes the
weights too small (docs/kernel.md)."""

WIDTH_SAMPLES, WIDTH_PAIRS = 500, 4096
"""The kernel width is the median distance of pairs of the first samples: upper bounds on these samples and pairs."""

RIDGE = 1e-8
"""The ridge that is added to the diagonal of the covariance of a set's features (RCIT, RCoT)."""

KCI_RIDGE = 1e-3
"""The regularization of the kernel ridge regression on the set, a multiple of the identity (KCI)."""

EXACT_SAMPLES = 2000
"""Upper bound on the samples for which KCI uses whole kernel matrices; beyond, it uses their Nystrom approximation."""

SPECTRAL_SAMPLES = 1000
"""Upper bound on the samples for which KCI simulates its null distribution from eigenvalues."""

NULL_DRAWS = {False: 1000, True: 5000}
"""Draws from the simulated null distribution without a conditioning set and with one, as in causal-learn."""

EIGENVALUE_CUTOFF = {False: 1e-6, True: 1e-5}
"""Share of the largest weight up to which weights are left out of KCI's simulation, as in causal-learn."""

MAX_WEIGHTS = 4000
"""Upper bound on the products of eigenvalues in KCI's simulation without a set, which keeps the largest."""

NYSTROM_JITTER = 1e-6
"""The number that is added to the diagonal of the landmarks' kernel matrix before its factorization."""

MIN_SAMPLES, MAX_SAMPLES = 8, 2**24
MAX_FEATURES, MAX_SET_FEATURES = 20, 1000

OWN, IN_SET, SECOND, BESIDE_SECOND, PAIRS, LANDMARKS, NULL = range(7)
"""The purposes of random numbers, each of which has a stream of its own. The first four are for features: those of a
variable alone, those of a member in a conditioning set, and in RCIT, where the second variable and the set have joint
features, the parts of that variable and of a member. The others are for the pairs of samples that decide widths, for
the landmarks, and for the simulated null distribution."""


@dataclasses.dataclass(frozen=True, eq=False)
class KernelProblem(Problem):
    """PC-stable with a kernel test: RCIT or RCoT (Strobl et al. 2019), or KCI (Zhang et al. 2011).

    The tests are stated exactly in docs/kernel.md. Build a problem with `from_data`, which checks its input.

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
    PARAMETERS: ClassVar[Mapping[str, Any]] = {
        "test": "rcit",
        "null": "auto",
        "features": 5,
        "set_features": 100,
        "weights": "corrected",
        "landmarks": 300,
        "seed": 0,
    }

    values: np.ndarray
    test: str
    null: str
    features: int
    set_features: int
    weights: str
    landmarks: int
    seed: int
    constant: tuple[str, ...] = ()

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        alpha: float = 0.05,
        max_level: int | None = None,
        names: Sequence[str] | None = None,
        test: str = "rcit",
        null: str = "auto",
        features: int = 5,
        set_features: int = 100,
        weights: str = "corrected",
        landmarks: int = 300,
        seed: int = 0,
    ) -> Self:
        """Make a problem of an array or a DataFrame of finite numbers, with samples in rows and variables in columns.

        Args:
            null: ``"auto"`` takes Lindsay, Pilla and Basak's for RCIT and RCoT, and the gamma distribution for KCI.

        A constant variable is independent of all others: its tests have p = 1, and a warning names the variable.

        Raises:
            InvalidProblem: wrong shape, a value that is missing or infinite, too few samples, a null distribution that
                the test does not have, or another bad parameter.
        """
        matrix, names = finite_matrix(data, names)
        search = search_parameters(alpha, max_level)
        parameters = kernel_parameters(len(matrix), test, null, features, set_features, weights, landmarks, seed)
        columns = np.ascontiguousarray(matrix.T)
        constant = (columns == columns[:, :1]).all(axis=1)
        values = standard_rows(columns, ddof=1)
        values[constant] = 0.0
        return cls(
            names=names,
            **search,
            values=placing.placed(values),
            **parameters,
            constant=name_constants(names, constant),
        )

    def checked_parameters(self) -> dict[str, Any]:
        return kernel_parameters(self.n_samples, *(getattr(self, name) for name in self.PARAMETERS))

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
        """The number of random features of a conditioning set: `set_features`, but no more than the samples allow."""
        return min(self.set_features, self.n_samples // SAMPLES_PER_FEATURE)

    def weight_scale(self, degrees: Any) -> Any:
        """The factor of the weights of the null distribution, given the degrees of freedom k of the regression.

        Residuals lie in n - 1 - k of n dimensions. The expected squared covariance is therefore proportional to
        n - 1 - k, while the weights, means of products of squares, add up to a number proportional to
        ((n - 1 - k) / n)^2 n.
        """
        return self.n_samples / (self.n_samples - 1 - degrees) if self.weights == "corrected" else 0 * degrees + 1.0

    @property
    def is_exact(self) -> bool:
        """Whether KCI works on whole kernel matrices."""
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
        """(p,) bool: the variables that are constant."""
        return ~self.values.any(axis=1)

    def frequencies(self, role: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(p, count) standard normal frequencies and phases in [0, 2 pi) of the variables' features in a role.

        A feature of several variables has the frequency of each variable and the sum of their phases. All sets can
        therefore use the random numbers of single variables.
        """
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


def kernel_parameters(
    n: int, test: str, null: str, features: int, set_features: int, weights: str, landmarks: int, seed: int
) -> dict[str, Any]:
    """The checked parameters of the test of n samples by name, in the order of `KernelProblem.PARAMETERS`."""
    check_choice("test", test, tuple(NULLS))
    null = NULLS[test][0] if null == "auto" else null
    if null not in NULLS[test]:
        raise InvalidProblem(f"null is {null!r}; for test={test!r} choose one of: auto, {', '.join(NULLS[test])}")
    check_choice("weights", weights, WEIGHTS)
    if not MIN_SAMPLES <= n < MAX_SAMPLES:
        raise InvalidProblem(f"data has {n} sample(s); the test needs {MIN_SAMPLES} to {MAX_SAMPLES - 1}")
    if null == "spectral" and n > SPECTRAL_SAMPLES:
        raise InvalidProblem(
            f"null is 'spectral' for {n} samples; it needs all eigenvalues of matrices of that size and is for at "
            f"most {SPECTRAL_SAMPLES}; say null='gamma', or bring fewer samples"
        )
    return {
        "test": test,
        "null": null,
        "features": whole_number("features", features, 1, MAX_FEATURES),
        "set_features": whole_number("set_features", set_features, 1, MAX_SET_FEATURES),
        "weights": weights,
        "landmarks": whole_number("landmarks", landmarks, 10, EXACT_SAMPLES),
        "seed": whole_number("seed", seed, 0, 2**64 - 1),
    }
