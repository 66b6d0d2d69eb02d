"""Registers our tests in causal-learn, for its PC, FCI and others: ``gpupc_fisherz``, ``gpupc_chisq``, ``gpupc_cmiknn``
and ``gpupc_kernel``.

Importing this module registers them. causal-learn requests one p-value at a time, but in a predictable order: for each
variable x it goes through the neighbours of x and their conditioning sets. A request for (x, y, S) therefore computes
the p-values of x and several other variables given S in one batch, which shares the work that depends on x and S alone.
These p-values are kept until causal-learn continues with another variable.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

try:
    from causallearn.utils.cit import CIT_Base, register_ci_test
except ImportError as error:
    raise ImportError(
        "gpupc_impl.bridges.causal_learn needs causal-learn 0.1.4 or later; pip install causal-learn"
    ) from error

from gpupc_impl.core.family import open_tests
from gpupc_impl.core.problem import Problem
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import of_tables
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem

DENSE_CELLS = 1 << 20  # upper bound on the cells of a batch of contingency tables that are counted in one array
KEPT_VALUES = 1 << 24  # upper bound on the p-values that are kept for one variable; further p-values are computed again


class BatchedTest(CIT_Base):
    """A causal-learn test that computes the p-values of several variables in one batch.

    Args:
        data: the samples, (samples, variables).
        cache_path: causal-learn's file of p-values, which these tests do not support.
        backend: where kernels run: ``"auto"``, ``"cuda"`` or ``"host"``.
        options: parameters of the problem's `from_data`.

    Raises:
        ValueError: `cache_path` is not None.
        gpupc_impl.InvalidProblem: the data or an option cannot be used.
    """

    name: str
    problem_class: type[Problem]
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, data: np.ndarray, cache_path: str | None = None, *, backend: str = "auto", **options: Any):
        if cache_path is not None:
            raise ValueError(f"{self.name} keeps its p-values in memory; leave cache_path out")
        super().__init__(data)
        self.method = self.name
        self.problem: Any = self.problem_class.from_data(data, **{**self.defaults, **options})
        self._tests = open_tests(self.problem, backend)
        self._current: tuple[int, int] | None = None  # the variable x and the level of the latest request
        self._p_values: dict[tuple[int, ...], dict[int, float]] = {}  # p-values of x, by set and other variable
        self._candidates: set[int] = set()  # the variables that are expected to be tested with x
        self._neighbours: dict[int, set[int]] = {}  # by variable, those that were tested with it at level 1 or above
        self._kept = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the test itself, whose answers never change; causal-learn copies graphs together with their test."""
        return self

    def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
        """Return the p-value of X and Y given the set; 0, which never separates, if no test is possible. ValueError is
        raised if the variables are not distinct."""
        members = tuple(sorted({int(v) for v in condition_set})) if condition_set is not None else ()
        x, y = int(X), int(Y)
        if not members and x > y:
            x, y = y, x
        if self._current != (x, len(members)) or self._kept > KEPT_VALUES:
            self._begin(x, len(members))
        row = self._p_values.setdefault(members, {})
        if y not in row:
            if x == y or x in members or y in members:
                raise ValueError(f"X={X}, Y={Y} and condition_set={members} must be different variables")
            # In a search the members of a conditioning set are adjacent to x, so they will be tested with x as well.
            self._candidates.update(members, (y,))
            others = sorted(self._candidates.difference(row, members, (x,)))
            p_values = np.zeros(len(others))
            if self.problem.obstacle(len(members)) is None:
                p_values = self._batch(x, members, others)
            row.update(zip(others, p_values.tolist(), strict=True))
            self._kept += len(others)
        return row[y]

    def _begin(self, x: int, level: int) -> None:
        """Drop the p-values of other variables, and expect the neighbours that x had at the previous level."""
        self._current, self._kept = (x, level), 0
        self._p_values.clear()
        if level == 0:
            self._candidates = set(range(x + 1, self.num_features))
        else:
            self._candidates = self._neighbours[x] = self._neighbours.get(x, set()) if level > 1 else set()

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        """Return the p-values of x and each of the k other variables given the members: (k,)."""
        pairs, sets = np.array([(x, y) for y in others]), np.array([members] * len(others), np.int64)
        return np.nan_to_num(self._tests.strengths(pairs, sets.reshape(len(others), -1))[0])


class FisherZ(BatchedTest):
    """Fisher's z as in causal-learn's ``fisherz``; if M2 is near singular, its pseudo-inverse is used
    (docs/ci-tests.md)."""

    name, problem_class = "gpupc_fisherz", GaussianProblem


class ChiSquare(BatchedTest):
    """Pearson's chi-square as in causal-learn's ``chisq``: degrees of freedom count the categories that occur, which
    corresponds to ``df_rule="adjusted"``."""

    name, problem_class, defaults = "gpupc_chisq", DiscreteProblem, {"df_rule": "adjusted"}

    def _batch(self, x: int, members: tuple[int, ...], others: Sequence[int]) -> np.ndarray:
        problem = self.problem
        strata = int(np.prod(problem.categories[list(members)], dtype=np.float64))
        widest = int(problem.categories[list(others)].max())
        cells = strata * int(problem.categories[x]) * widest
        if cells * len(others) > DENSE_CELLS or problem.df_rule != "adjusted":
            return super()._batch(x, members, others)
        given = [*members, x]
        row = np.ravel_multi_index(tuple(problem.codes[given].astype(np.int64)), problem.categories[given])
        # The contingency tables of the others follow one another in one array of counts.
        cell = row * widest + problem.codes[list(others)] + cells * np.arange(len(others))[:, None]
        counts = np.bincount(cell.reshape(-1), minlength=cells * len(others))
        tables = counts.reshape(len(others), strata, int(problem.categories[x]), widest)
        return problem.p_value(*of_tables(problem, tables))


class CMIknn(BatchedTest):
    """CMIknn with a local permutation (docs/cmiknn.md) of x, from whose neighbours the conditioning set is drawn."""

    name, problem_class = "gpupc_cmiknn", NonlinearProblem


class KernelTest(BatchedTest):
    """RCIT, RCoT or KCI (docs/kernel.md), selected by the option ``test``."""

    name, problem_class = "gpupc_kernel", KernelProblem


for _test in (FisherZ, ChiSquare, CMIknn, KernelTest):
    register_ci_test(_test.name, _test)
