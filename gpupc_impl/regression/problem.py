"""The problem of the regression family: variables of numbers and of categories, and the terms that regressions have."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation
from gpupc_impl.core.problem import (
    InvalidProblem,
    Problem,
    coded_columns,
    finite_matrix,
    name_constants,
    numbers_and_codes,
    standard_rows,
)

MAX_CATEGORIES = 64  # upper bound on the categories of a variable, each of which but one is a term of regressions
MIN_SAMPLES = 4
RIDGE = 1e-3  # half the penalty on squared coefficients, which keeps them finite if classes can be separated
NOTHING = 1e-6  # a statistic up to here is one of rounding errors
EXPLAINED = 1e-7  # Share of its variance up to which a response counts as determined by the conditioning set


@dataclasses.dataclass(frozen=True, eq=False)
class RegressionProblem(Problem):
    """PC-stable with likelihood ratio tests of nested linear and logistic regressions (docs/mixed.md). Build a problem
    with `from_data`, which checks its input.

    Attributes:
        values: (p, n) float64, C-contiguous: a variable of numbers has mean 0 and variance 1 (zeros if it is constant),
            and a categorical one has codes from 0 on.
        categories: (p,) int32 number of categories in the data; 0 for a variable of numbers.
        constant: names of constant variables.
    """

    family: ClassVar[str] = "regression"
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ("categories",)

    values: np.ndarray
    categories: np.ndarray
    constant: tuple[str, ...] = ()

    @classmethod
    def from_data(
        cls, data: Any, *, names: Sequence[str] | None = None, categories: Collection[str] = (), **parameters: Any
    ) -> Self:
        """Make a problem of a DataFrame or an array with samples in rows and variables in columns, alpha (0.05) and
        max_level (None). Text, Boolean and categorical columns hold categories; other columns must hold finite numbers.
        A constant variable is independent of all others: its tests have p = 1, and a warning names the variable.

        Args:
            categories: the names of the columns of numbers that are codes of categories, as a list or separated by
                commas; or the labels of the codes by variable, with an empty list for a variable of numbers.
        """
        matrix, names, coded = numbers_and_codes(data, names, coded_columns(categories), MAX_CATEGORIES)
        if len(matrix) < MIN_SAMPLES:
            raise InvalidProblem(f"data has {len(matrix)} sample(s); a regression needs at least {MIN_SAMPLES}")
        finite_matrix(matrix, names)
        columns = np.ascontiguousarray(matrix.T)
        constant = (columns == columns[:, :1]).all(axis=1)
        values = standard_rows(columns, ddof=0)
        values[constant] = 0.0
        values[coded] = columns[coded]
        counts = np.where(coded, columns.max(axis=1).astype(np.int64) + 1, 0).astype(np.int32)
        counts.setflags(write=False)
        return cls(
            names=names,
            **cls.checked(len(matrix), **parameters),
            values=allocation.copied(values),
            categories=counts,
            constant=name_constants(names, constant),
        )

    def check(self) -> None:
        p, values, categories = self.n_variables, self.values, self.categories
        if values.ndim != 2 or len(values) != p or values.dtype != np.float64 or not values.flags.c_contiguous:
            raise InvalidProblem(f"its values are {values.dtype} {values.shape}, for {p} variables")
        if categories.dtype != np.int32 or categories.shape != (p,):
            raise InvalidProblem(f"its categories are {categories.dtype} {categories.shape} for {p} variables")
        if not 0 <= categories.min() <= categories.max() <= MAX_CATEGORIES:
            raise InvalidProblem(f"a variable has {categories.max():,} categories; the most are {MAX_CATEGORIES}")
        super().check()
        finite_matrix(values.T, self.names)
        if self.n_samples < MIN_SAMPLES:
            raise InvalidProblem(f"it has {self.n_samples} sample(s); a regression needs at least {MIN_SAMPLES}")
        for codes, count in zip(values[categories > 0], categories[categories > 0], strict=True):
            if not np.array_equal(np.unique(codes), np.arange(count)):
                raise InvalidProblem("a variable has codes that are none of its categories")
        if self.constant != tuple(np.array(self.names, object)[self.is_constant()]):
            raise InvalidProblem("its constant variables are others than those without a variance")
        with np.errstate(over="ignore"):
            deviations = values[(categories == 0) & ~self.is_constant()].std(axis=1)
        if not np.allclose(deviations, 1):
            raise InvalidProblem("its numbers do not have variance 1")

    @property
    def n_samples(self) -> int:
        return self.values.shape[1]

    def is_constant(self) -> np.ndarray:
        """(p,) bool: whether a variable is constant."""
        return (self.values == self.values[:, :1]).all(axis=1)

    def widths(self) -> np.ndarray:
        """(p,) the number of terms of each variable in a regression."""
        return np.where(self.categories, self.categories - 1, 1)

    def terms(self, variable: int) -> np.ndarray:
        """(w, n) terms of mean 0 and variance 1: a variable's numbers, or indicators of categories from the second."""
        values, count = self.values[variable], self.categories[variable]
        return standard_rows((values == np.arange(1, count)[:, None]) * 1.0, ddof=0) if count else values[None]

    def outline(self) -> dict[str, Any]:
        return {**super().outline(), "categorical_variables": int(np.count_nonzero(self.categories))}
