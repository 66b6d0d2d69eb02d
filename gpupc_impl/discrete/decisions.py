"""How kernels decide tests (kernels/decide.cuh), and how the host decides the tests that kernels leave to it."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from gpupc_impl.backends import Backend, Filled
from gpupc_impl.discrete.declarations import BETWEEN_LEVELS, CRITICAL, RULES, SEARCH, UNCLEAR
from gpupc_impl.discrete.problem import MAX_CELLS, DiscreteProblem
from gpupc_impl.integers import ceil_div

LISTED_DF = 4096  # degrees of freedom up to which every critical value is tabulated

UNDECIDED_AT_FIRST = 1 << 12
"""Tests that a level may leave to the host; with more, the level is run again with a longer list."""

SETTLE_THREADS = 128


class Decisions:
    """The rule that decides tests on the device, and the list of the tests that this rule leaves to the host.

    Critical values are tabulated for up to `LISTED_DF` degrees of freedom, and for some larger numbers. If a test's
    degrees of freedom lie between two tabulated numbers and its statistic between the two critical values, the kernel
    lists the test, and the host decides with the exact critical value.

    Attributes:
        room: the length of the list.
        search: the `SEARCH` that kernels take.
    """

    def __init__(
        self, problem: DiscreteProblem, backend: Backend, arrays: Mapping[str, Any], best_keys: Filled, largest_p: Any
    ):
        """Make the rule of a search from its arrays on the device, by name: the level's `counters`, and the arrays of
        `tables` and of `undecided_arrays`."""
        self._problem, self._backend, self._counters, self._best_keys = problem, backend, arrays["counters"], best_keys
        logs = backend.upload(log_table(problem.n_samples)) if problem.test == "g-square" else None
        critical = CRITICAL(
            values=arrays["critical_values"],
            listed=LISTED_DF,
            df=arrays["critical_df"],
            of_df=arrays["critical_of_df"],
            known=len(arrays["critical_df"]),
        )
        self._rule = {
            "best": best_keys,
            "largest_p": largest_p,
            "workload": problem.tests_per_edge is not None,
            "rules": RULES(logs=logs, adjusted=problem.df_rule == "adjusted"),
            "critical": critical,
        }
        self._list_into({name: arrays[name] for name in undecided_arrays(0)})

    @staticmethod
    def tables(alpha: float) -> dict[str, np.ndarray]:
        """Return the tables that kernels look up, in host memory."""
        values, df, of_df = critical_table(alpha)
        return {"critical_values": values, "critical_df": df, "critical_of_df": of_df}

    def enlarge(self, undecided: int) -> None:
        """Make the list long enough for twice the number `undecided` of tests of a level."""
        self._list_into(self._backend.empty_all(**undecided_arrays(2 * undecided)))

    def settle(self, undecided: int) -> bool:
        """Decide the listed tests; returns whether any of their sets separates."""
        backend = self._backend
        pairs, keys, df, statistics = (array[:undecided] for array in map(backend.download, self._undecided.values()))
        separates = statistics <= self._problem.critical_values(df)
        if not separates.any():
            return False
        count = int(separates.sum())
        separated = backend.upload(pairs[separates]), backend.upload(keys[separates])
        arguments = [self._best_keys, *separated, np.int32(count)]
        backend.kernel(*BETWEEN_LEVELS["settle"])((ceil_div(count, SETTLE_THREADS),), (SETTLE_THREADS,), arguments)
        return True

    def _list_into(self, undecided: dict[str, Any]) -> None:
        self._undecided, self.room = undecided, len(undecided["pairs"])
        unclear = UNCLEAR(counters=self._counters, capacity=self.room, **undecided)
        self.search = SEARCH(unclear=unclear, **self._rule)


def undecided_arrays(tests: int) -> dict[str, tuple[int | tuple[int, ...], type]]:
    """Return the shapes and types of the arrays that list tests for the host, as `Backend.empty_all` takes them."""
    return {
        "pairs": ((tests, 2), np.int32),
        "keys": (tests, np.uint64),
        "df": (tests, np.uint64),
        "statistics": (tests, np.float64),
    }


@functools.lru_cache(maxsize=4)
def log_table(n: int) -> np.ndarray:
    """Return (n + 1,) float64: log(k), and 0 for k = 0, which no test looks up."""
    return np.log(np.maximum(np.arange(n + 1), 1).astype(np.float64))


@functools.lru_cache(maxsize=32)
def critical_table(alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the critical values of 0 to `LISTED_DF` degrees of freedom; then some larger df up to 2^62, ascending, and
    their values."""
    listed = np.zeros(LISTED_DF + 1)
    listed[1:] = scipy.special.chdtri(np.arange(1.0, LISTED_DF + 1), alpha)
    steps = np.geomspace(LISTED_DF, float(MAX_CELLS), 1 + 16 * 50 * 8)
    df = np.unique(np.rint(steps).astype(np.uint64))
    df[-1] = MAX_CELLS
    return listed, df, scipy.special.chdtri(df.astype(np.float64), alpha)
