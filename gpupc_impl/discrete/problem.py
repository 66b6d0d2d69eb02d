"""A discrete problem: coded data, and everything that changes the answer of a chi-square or G-square search."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation
from gpupc_impl.core.problem import InvalidProblem, Problem, name_constants, one_of, parameter
from gpupc_impl.discrete.labels import columns_of, encode

MAX_CELLS = 2**62  # upper bound on the cells of a contingency table, whose numbers have 64 bits
LISTED_DF = 4096  # degrees of freedom up to which every critical value is tabulated
EXPANSION_TERMS = 9


def _checked_tests(name: str, value: Any) -> int | None:
    if value is not None and (value < 1 or int(value) != value):
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number of at least 1")
    return None if value is None else int(value)


def _checked_decay(name: str, value: Any) -> float | None:
    if value is not None and not 0 < value < 1:
        raise InvalidProblem(f"{name} is {value!r}; it must lie strictly between 0 and 1")
    return None if value is None else float(value)


@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteProblem(Problem):
    """PC-stable with Pearson's chi-square test or the G-square test (gpuPC, section 2.3). `from_data` checks its input.

    S separates Vi and Vj when the statistic is at most its critical value, that is p >= alpha. The table of a test is
    that of (min(i, j), max(i, j)) with S ascending, and strata are numbered such that S[0] varies fastest. A test
    without degrees of freedom has the statistic 0 and p = 1.

    Attributes:
        codes: (p, n) uint8, or uint16 when a variable has more than 256 categories; C-contiguous.
        categories: (p,) int32: number of categories of each variable.
        declared: (p,) bool: whether the source declared the categories; else the categories are the values that occur.
        labels: for each variable, its categories as text, in the order of their codes.
        df_rule: ``"full"``: (|Vi| - 1)(|Vj| - 1)|S| degrees of freedom, as in the paper, if S has |S| strata;
            ``"adjusted"``: the sum of (r - 1)(c - 1) over the strata that occur, r and c counting the rows and columns
            that occur in them, as causal-learn does.
        tests_per_edge, decay: the workload of the paper's section 4.1 instead of a search, or None. From level 1 on
            every remaining edge has its first `tests_per_edge` tests, whatever their outcome, and after each level
            `decayed` decides which edges are left.
    """

    family: ClassVar[str] = "discrete"
    DATA_PARAMETERS: ClassVar[tuple[str, ...]] = ("categories",)

    codes: np.ndarray
    categories: np.ndarray
    declared: np.ndarray
    labels: tuple[tuple[str, ...], ...]
    test: str = parameter("chi-square", one_of("chi-square", "g-square"))
    df_rule: str = parameter("full", one_of("full", "adjusted"))
    tests_per_edge: int | None = parameter(None, _checked_tests)
    decay: float | None = parameter(None, _checked_decay)

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        names: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[Any] | int] | None = None,
        **parameters: Any,
    ) -> Self:
        """Make a problem of a DataFrame or an array of labels, with samples in rows and variables in columns. The
        parameters are alpha (0.05), max_level (None), test, df_rule, tests_per_edge and decay.

        A label is a string, a bool, an integer of any value, or a float that is a whole number. The categories of a
        column are the labels that its Categorical dtype or `categories` declares, else the labels that occur, sorted. A
        constant variable is independent of all others: a warning names the variable, which has no edge in the answer.

        Args:
            categories: by variable name, the labels in the order of their codes, or the number of categories. A column
                of integers holds codes from 0 on if its labels are text or only their number is declared; else labels.

        Raises:
            InvalidProblem: the shape is wrong, a value is missing, is no label or is not declared, or a parameter is
                invalid. The message names the column and the row.
        """
        columns, names = columns_of(data, names)
        if categories is None:
            categories = {}
        if not isinstance(categories, Mapping):
            raise InvalidProblem(
                f"categories is {categories!r}; give a mapping from variable name to labels or to a count"
            )
        if unknown := sorted(set(categories) - set(names), key=str):
            raise InvalidProblem(f"categories are given for {unknown[0]!r}, which is no variable of the data")
        checked = cls.checked(len(data), **parameters)
        coded, labels, declared = [], [], []
        for name, column in zip(names, columns, strict=True):
            codes, own_labels, is_declared = encode(name, column, categories.get(name))
            coded.append(codes.astype(np.uint16 if len(own_labels) > 256 else np.uint8))
            labels.append(own_labels)
            declared.append(is_declared)
        matrix = allocation.new_array((len(names), len(coded[0])), np.result_type(*coded))
        for row, codes in zip(matrix, coded, strict=True):
            row[:] = codes
        name_constants(names, (matrix == matrix[:, :1]).all(axis=1))
        return cls(
            names=names,
            codes=_frozen(matrix),
            categories=_frozen(np.array(list(map(len, labels)), np.int32)),
            declared=_frozen(np.array(declared, bool)),
            labels=tuple(labels),
            **checked,
        )

    @classmethod
    def checked_together(cls, n_samples: float, values: dict[str, Any]) -> dict[str, Any]:
        tests, decay = values["tests_per_edge"], values["decay"]
        if (tests is None) != (decay is None):
            raise InvalidProblem(
                f"tests_per_edge is {tests!r} and decay is {decay!r}; give both for a fixed workload, or neither"
            )
        return values

    def check(self) -> None:
        super().check()
        p, codes = self.n_variables, self.codes
        if codes.dtype not in (np.uint8, np.uint16) or codes.ndim != 2 or len(codes) != p:
            raise InvalidProblem(f"its codes are {codes.dtype} {codes.shape} for {p} variables")
        for name, dtype in (("categories", np.int32), ("declared", np.bool_)):
            if (array := getattr(self, name)).dtype != dtype or array.shape != (p,):
                raise InvalidProblem(f"its {name} are {array.dtype} {array.shape} for {p} variables")
        if not codes.flags.c_contiguous:
            raise InvalidProblem("its codes are not in C order")
        if len(self.labels) != p or any(map(np.not_equal, map(len, self.labels), self.categories)):
            raise InvalidProblem("it has other labels than categories")
        if any(len(set(labels)) != len(labels) for labels in self.labels):
            raise InvalidProblem("two categories of a variable have the same label")
        beyond = codes.max(axis=1, initial=0) >= self.categories if codes.size else np.zeros(p, bool)
        if beyond.any():
            raise InvalidProblem(f"variable {int(np.argmax(beyond))} has codes of more categories than it has")

    @property
    def n_samples(self) -> int:
        return self.codes.shape[1]

    @property
    def decided_by_tests(self) -> bool:
        return self.tests_per_edge is None

    @functools.cached_property
    def constant(self) -> tuple[str, ...]:
        """Names of the variables of which only one category occurs."""
        return tuple(name for name, codes in zip(self.names, self.codes, strict=True) if (codes == codes[0]).all())

    # --- the test ----------------------------------------------------------------------------------------------
    def degrees_of_freedom(self, i: int, j: int, S: Sequence[int] = ()) -> int:
        """Return (|Vi| - 1)(|Vj| - 1)|S|, the full rule (gpuPC, section 2.3)."""
        strata = math.prod(int(self.categories[v]) for v in S)
        return (int(self.categories[i]) - 1) * (int(self.categories[j]) - 1) * strata

    def critical_values(self, df: int | np.ndarray) -> np.ndarray:
        """Return the largest statistics that separate, with the bits that kernels compute (kernels/decide.cuh):
        chi-square's quantile 1 - alpha; 0 without degrees of freedom."""
        listed, expansion = critical_tables(self.alpha)
        df = np.asarray(df)
        root = np.sqrt(np.maximum(df, 1).astype(np.float64))
        x, total = math.sqrt(LISTED_DF) / root, np.full(df.shape, expansion[-1])
        for term in expansion[-2::-1]:
            total = total * x + term
        return np.where(df <= LISTED_DF, listed[np.minimum(df, LISTED_DF).astype(np.int64)], df + root * total)

    def p_value(self, statistic: float | np.ndarray, df: int | np.ndarray) -> float | np.ndarray:
        """Return the p-values of one statistic or of an array of statistics; 1 without degrees of freedom."""
        from scipy import special

        df = np.asarray(df, np.float64)
        return np.where(df > 0, special.chdtrc(np.maximum(df, 1.0), statistic), 1.0)[()]

    @functools.cached_property
    def descending(self) -> list[int]:
        """All numbers of categories, the largest first."""
        return sorted(self.categories.tolist(), reverse=True)

    def obstacle(self, level: int) -> str | None:
        largest = self.descending[: level + 2]
        cells = math.prod(largest)
        if cells <= MAX_CELLS:
            return None
        return (
            f"tables too large: {level + 2} variables with up to {largest[0]} categories make up to "
            f"{Decimal(cells):.3g} cells at level {level}, more than the 2^62 that 64-bit indexes number; "
            f"set max_level to {max(level - 1, 0)} or merge categories"
        )

    # --- the workload of the paper's section 4.1 ------------------------------------------------------------------
    def decayed(self, edges: np.ndarray) -> np.ndarray:
        """Return which of (m, 2) sorted edges stay after a level, (m,) bool: edge floor(k / (1 - decay)) stays for k =
        0, 1, and so on. A fraction `decay` of the edges is removed, equally distributed (gpuPC, section 4.1)."""
        kept = np.zeros(len(edges), bool)
        most = math.ceil(len(edges) * (1.0 - self.decay)) + 1
        positions = np.floor(np.arange(most) / (1.0 - self.decay))
        kept[positions[positions < len(edges)].astype(np.int64)] = True
        return kept

    # --- identity ---------------------------------------------------------------------------------------------------
    def outline(self) -> dict[str, Any]:
        declared = int(self.declared.sum())
        return {
            **super().outline(),
            "min_categories": self.descending[-1],
            "max_categories": self.descending[0],
            "categories_declared": declared,
            "categories_observed": len(self.declared) - declared,
            "constant_variables": len(self.constant),
        }


@functools.lru_cache(maxsize=32)
def critical_tables(alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (LISTED_DF + 1,) the critical values of 0, 1, 2, ... degrees of freedom, and (EXPANSION_TERMS,) the terms
    of an expansion for more of them. The quantile of df degrees of freedom is df + sqrt(df) g(1 / sqrt(df)) with a
    smooth function g (Cornish and Fisher 1938) and g(0) = sqrt(2) z, z being the normal quantile. A polynomial of x =
    sqrt(LISTED_DF / df) interpolates g at Chebyshev's points; sums differ from SciPy's quantiles by their rounding."""
    from scipy import special

    listed = np.zeros(LISTED_DF + 1)
    listed[1:] = special.chdtri(np.arange(1.0, LISTED_DF + 1), alpha)
    x = (1 + np.cos(np.linspace(0, np.pi, EXPANSION_TERMS)))[:-1] / 2
    df = np.rint(LISTED_DF / x**2)
    g = (special.chdtri(df, alpha) - df) / np.sqrt(df)
    x, g = np.append(np.sqrt(LISTED_DF / df), 0.0), np.append(g, -math.sqrt(2) * special.ndtri(alpha))
    return listed, np.linalg.solve(np.vander(x, increasing=True), g)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
