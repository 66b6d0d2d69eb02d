"""PC-stable for Gaussian tests that no kernel makes, in batches, by the same code for NumPy and CuPy. The kernels have
one critical value for each level. A problem whose tests have critical values of their own (missing values, pairwise.py;
multiple imputation, imputed.py) is an `ArrayProblem`: `ArraySearch` runs the search, and the problem's `tests` decide.
Up to the partial correlations every operation on an array is one of IEEE 754, in an order that does not depend on the
library, so NumPy and CuPy compute the same bits from the same correlation matrices, whatever the batches."""

import abc
import contextlib
import dataclasses
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

import numpy as np

from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Method, Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_sets
from gpupc_impl.engine.graph import binomial_table
from gpupc_impl.engine.row_graph import RowGraph, unrank
from gpupc_impl.gaussian.canonical import to_host
from gpupc_impl.gaussian.problem import GaussianProblem

TESTS_AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 20}  # a GPU needs large launches, a core's batch stays near its cache
BYTES_OF_ENTRY = 64  # device memory that a batch takes at most for each entry of its tests' correlation matrices


class Outcome(NamedTuple):
    """The outcome of k tests: three arrays of the library that made them, and NumPy's, or None without p-values."""

    separates: Any  # (k,) bool
    undefined: Any  # (k,) bool: an endpoint has no variance left, or the test has no degrees of freedom
    pseudo_inverse: Any  # (k,) bool: the pseudo-inverse of the conditioning matrix was used
    p_values: np.ndarray | None  # (k,) float64, zero where undefined
    effects: np.ndarray | None  # (k,) partial correlations, NaN where undefined


class Tests(Protocol):
    """The tests of a problem: (k, 2) pairs given (k, l) sets, which are arrays of the library that makes the tests."""

    def __call__(self, pairs: Any, sets: Any, p_values: bool) -> Outcome: ...


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayProblem(GaussianProblem, abc.ABC):
    """A Gaussian problem whose module defines the only method that solves it, `METHOD`; it cannot be saved."""

    treatment: ClassVar[str]  # the value of ``missing`` that makes such a problem, which is also the name of the method

    @abc.abstractmethod
    def tests(self, xp: Any = np) -> Tests:
        """Return the tests by NumPy or CuPy."""

    def obstacle(self, level: int) -> str | None:
        if self.n_samples > self.spent(level):
            return None
        return (
            f"no degrees of freedom: no test has more than {self.n_samples} samples, of which level {level} takes all"
        )

    def _refuse(self, level: int) -> NoReturn:
        raise InvalidProblem(
            f"the problem's tests have critical values of their own (missing={self.treatment!r}), which this method "
            f"does not know; leave method out (it is {self.treatment!r}), or say missing='drop-rows'"
        )

    degrees_of_freedom = threshold = critical_r_squared = _refuse

    def save(self, path: str | Path) -> None:
        raise InvalidProblem(
            f"{Path(path).name}: a problem with missing={self.treatment!r} is made of its data; save those"
        )


def array_method(problem_class: type[ArrayProblem], source: str, summary: str) -> Method:
    """Return the method for a class of problems, which is not in the registry, because no other method solves them."""
    name = problem_class.treatment

    def solve(problem: GaussianProblem, run: Run) -> Skeleton:
        if not isinstance(problem, problem_class):
            raise InvalidProblem(f"method {name!r} is for missing={name!r}; leave method out")
        return pc_stable(problem, ArraySearch(problem, run), facts=dict(run.facts), progress=run.progress)

    return Method(
        name=name,
        family="gaussian",
        backends=("cuda", "cpu"),
        tiers=True,
        source=source,
        summary=f"{summary} (CuPy or NumPy; not one of the methods that are compared)",
        solve=solve,
        module=problem_class.__module__,
    )


class ArraySearch(GraphSearch):
    """A search in an `ArrayProblem`, by CuPy on a GPU, and by NumPy if the run has no backend."""

    def __init__(self, problem: ArrayProblem, run: Run):
        super().__init__(problem, run.pmax)
        self._device = run.backend
        with self._library() as xp:
            self._tests = problem.tests(xp)

    def _library(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext(np) if self._device is None else self._device.array_library()

    def _batch_size(self, level: int) -> int:
        if self._device is None:
            return TESTS_AT_ONCE["cpu"]
        free = self._device.memory_limit - self._device.memory_used
        return max(1, min(TESTS_AT_ONCE[self._device.name], free // 2 // (BYTES_OF_ENTRY * (level + 2) ** 2)))

    def run_level(self, level: int) -> LevelOutcome:
        """Run a level, a batch of tests at a time: several edges, each with its next sets in canonical order."""
        pairs = self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).astype(np.int32)
        sets = np.full((len(pairs), level), -1, np.int32)
        separated, done = np.zeros(len(pairs), bool), np.zeros(len(pairs), np.int64)
        tests = undefined = singular = 0
        most = self._batch_size(level)
        with self._library() as xp:
            rows, of_edges = _Rows(xp, self.adjacent, level), xp.asarray(pairs)
            totals = to_host(rows.count(of_edges).sum(axis=1))
            while len(open_edges := np.flatnonzero(~separated & (done < totals))):
                open_edges = open_edges[:most]
                counts = np.minimum(totals[open_edges] - done[open_edges], max(1, most // len(open_edges)))
                ends = np.cumsum(counts)
                order = xp.arange(int(ends[-1]))
                slot = xp.searchsorted(xp.asarray(ends), order, side="right")
                tested = of_edges[xp.asarray(open_edges)[slot]]
                members = rows.sets(tested, order + xp.asarray(done[open_edges] - (ends - counts))[slot])
                kept = order
                if self.problem.tiers is not None:
                    kept = xp.asarray(
                        np.flatnonzero(allowed_sets(self.problem.tiers, to_host(tested), to_host(members)))
                    )
                    tested, members = tested[kept], members[kept]
                outcome = self._tests(tested, members, self.largest_p is not None)
                tests += len(kept)
                singular += int(outcome.pseudo_inverse.sum())
                undefined += int(outcome.undefined.sum())
                hits = np.flatnonzero(to_host(outcome.separates))
                owners = open_edges[np.searchsorted(ends, to_host(kept)[hits], side="right")]
                edges, places = np.unique(owners, return_index=True)
                first = hits[places]
                separated[edges], sets[edges] = True, to_host(members[xp.asarray(first)])
                done[open_edges] += counts
                progress_watcher.advance(tests, int(totals.sum()), "possible tests")
                if self.largest_p is not None:
                    self._record(to_host(tested), outcome.p_values, first)
        i, j = pairs[separated].T
        self.adjacent[i, j] = self.adjacent[j, i] = False
        degrees = self.adjacent.sum(axis=1)
        return LevelOutcome(
            edges=int(degrees.sum()) // 2,
            max_degree=self.problem.most_tested_degree(degrees),
            tests=tests,
            pairs=pairs[separated],
            sets=sets[separated],
            undefined=undefined,
            pseudo_inverses=singular,
        )

    def _record(self, pairs: np.ndarray, p_values: np.ndarray, first: np.ndarray) -> None:
        """Record the largest p-value of each pair, and for a removed pair the p-value given its separating set."""
        i, j = pairs.T
        np.fmax.at(self.largest_p, (i, j), p_values)
        self.largest_p[i[first], j[first]] = p_values[first]
        self.largest_p[j, i] = self.largest_p[i, j]


class _Rows:
    """The neighbours of each variable at the start of a level, and their subsets by rank."""

    def __init__(self, xp: Any, adjacent: np.ndarray, level: int):
        self.xp, self.level, graph = xp, level, RowGraph.from_matrix(adjacent)
        # The entry (i, j) is the position of Vj in the row of Vi.
        self.before = xp.asarray(np.cumsum(adjacent, axis=1, dtype=np.int32) - 1)
        self.degrees, self.starts, self.neighbours = map(xp.asarray, (graph.degrees, graph.starts, graph.neighbours))
        self.sets_of_size = xp.asarray(binomial_table(int(graph.degrees.max()), level)[level].astype(np.int64))

    def count(self, pairs: Any) -> Any:
        """Return (k, 2) numbers of sets from either end of (k, 2) pairs; the empty set counts for the first end."""
        if self.level == 0:
            return self.xp.asarray([[1, 0]]).repeat(len(pairs), axis=0)
        return self.sets_of_size[self.degrees[pairs] - 1]

    def sets(self, pairs: Any, ranks: Any) -> Any:
        """Return the (k, level) sets of these ranks, lexicographic from the first end and then from the second."""
        counts = self.count(pairs)[:, 0]
        second = ranks >= counts
        owner, other = self.xp.where(second[:, None], pairs[:, ::-1], pairs).T
        ranks = ranks - self.xp.where(second, counts, 0)
        positions = unrank(ranks, self.degrees[owner] - 1, self.level, self.xp)
        positions += positions >= self.before[owner, other][:, None]
        return self.neighbours[self.starts[owner][:, None] + positions]
