"""The problem of the mixed family: variables of numbers and of categories, and the parameters of its CMIknn test."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation
from gpupc_impl.core.problem import InvalidProblem, coded_columns, numbers_and_codes
from gpupc_impl.nonlinear.problem import PSI_BITS, NonlinearProblem

MAX_CATEGORIES = 1 << 16
LARGEST = {"float32": 2.0**126, "float64": 2.0**1022}  # numbers; larger ones encode categories on a device


@dataclasses.dataclass(frozen=True, eq=False)
class MixedProblem(NonlinearProblem):
    """PC-stable with the estimator of Mesner and Shalizi (2021) and a local permutation scheme. docs/mixed.md defines
    the test exactly. Build a problem with `from_data`, which checks its input.

    Attributes:
        values: (p, n) float32 or float64, C-contiguous, with a row for each variable and the samples in a random order.
            A row holds the transformed numbers, or the codes of the categories from 0 on.
        categories: (p,) int32 number of categories in the data; 0 for a variable of numbers.
        transform: of variables of numbers: ``"ranks"`` (0 to n - 1, divided by the smallest power of two that is at
            least n), ``"standardize"`` (mean 0, variance 1) or ``"none"``. The distance of different categories is 1.
    """

    family: ClassVar[str] = "mixed"
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ("categories",)

    categories: np.ndarray = dataclasses.field(kw_only=True)

    @classmethod
    def from_data(
        cls, data: Any, *, names: Sequence[str] | None = None, categories: Collection[str] = (), **parameters: Any
    ) -> Self:
        """Make a problem from a DataFrame or an array with samples in rows and variables in columns. Text, Boolean and
        categorical columns hold categories; other columns must hold finite numbers. Categories are only compared for
        equality, so their labels do not matter. The other parameters are those of `NonlinearProblem.from_data`.

        Args:
            categories: the names of the columns of numbers that are codes of categories, as a list or separated by
                commas; or the labels of the codes by variable, with an empty list for a variable of numbers.
        """
        matrix, names, coded = numbers_and_codes(data, names, coded_columns(categories), MAX_CATEGORIES)
        plain = NonlinearProblem.from_data(matrix, names=names, **parameters)
        values = plain.values.copy()
        if plain.transform == "ranks":
            values *= 1 / ranks_scale(plain.n_samples)
        values[coded] = matrix.T[coded]
        _check_magnitude(values, names, plain.precision)
        # Ties of distances are broken by the order of the samples, which must therefore carry no information.
        order = np.random.PCG64(np.random.SeedSequence([plain.seed, plain.n_variables])).random_raw(plain.n_samples)
        values = allocation.copied(values[:, np.argsort(order, kind="stable")])
        numbers = np.where(coded, matrix.max(axis=0).astype(np.int64) + 1 if len(matrix) else 0, 0).astype(np.int32)
        numbers.setflags(write=False)
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return cls(**fields | {"values": values, "categories": numbers})

    def check(self) -> None:
        p, categories = len(self.names), self.categories
        if categories.dtype != np.int32 or categories.shape != (p,) or (categories < 0).any():
            raise InvalidProblem(f"its categories are {categories.dtype} {categories.shape} for {p} variables")
        super().check()
        _check_magnitude(self.values, self.names, self.precision)
        if categories.max() > MAX_CATEGORIES:
            raise InvalidProblem(f"a variable has {categories.max():,} categories; the most are {MAX_CATEGORIES:,}")
        codes, numbers = self.values[categories > 0], categories[categories > 0, None]
        if not ((codes >= 0) & (codes < numbers) & (codes == np.floor(codes))).all():
            raise InvalidProblem("a variable has codes that are none of its categories")

    def scaled_ranks(self) -> np.ndarray:
        return self.values[self.categories == 0] * ranks_scale(self.n_samples)

    def cmi(self, partial: int | np.ndarray) -> float | np.ndarray:
        """Return the CMI in nats, which can be negative, for sums in units of 2^-40."""
        return np.asarray(partial) / (-self.n_samples * 2.0**PSI_BITS)

    def coordinates(self, variables: Sequence[int]) -> np.ndarray:
        """Return (r, n) coordinates whose Chebyshev distance is the distance in the variables. Each category has a
        coordinate, which is 1 for the samples of the category and 0 for others."""
        rows = [self.values[:0]]
        for v in variables:
            number = int(self.categories[v])
            own = self.values[v][None]
            rows.append((own == np.arange(number)[:, None]).astype(own.dtype) if number else own)
        return np.concatenate(rows)

    def outline(self) -> dict[str, Any]:
        return {
            **super().outline(),
            "categorical_variables": int(np.count_nonzero(self.categories)),
            "max_categories": int(self.categories.max()),
        }


def ranks_scale(n: int) -> int:
    """Return the divisor of ranks, the smallest power of two that is at least n, so that division is exact."""
    return 1 << (n - 1).bit_length()


def _check_magnitude(values: np.ndarray, names: Sequence[str], precision: str) -> None:
    """Refuse a number so large that on a device it would encode a category."""
    largest = np.abs(values).max(axis=1)
    too_large = np.flatnonzero(largest >= LARGEST[precision])
    if len(too_large):
        raise InvalidProblem(
            f"variable {names[too_large[0]]!r} reaches {largest[too_large[0]]:.3g}, beyond the limit of "
            f"{LARGEST[precision]:.3g} for {precision}; rescale it or use another transform"
        )
