"""An upper bound on the memory of a discrete search, known before it starts."""

import dataclasses
import math
from typing import Any

from gpupc_impl.discrete.problem import DiscreteProblem

LEVELS_AHEAD = 6
"""Levels beyond the present level for which a table of binomials has entries."""

FIXED_HOST_BYTES = 4 * 2**20
"""Host memory that does not grow with the problem, such as the tables of critical values."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Upper bounds in bytes on the memory of a search.

    Attributes:
        resident_bytes: device memory for codes, planes, graph and keys, which is held from the start to the end.
        level_bytes: device memory for a level's lists of neighbours, removed pairs and their sets.
        table_bytes: device memory for tables outside shared memory, at the last level that can be run.
        level_zero_table_bytes: device memory for such tables at level 0, whose sizes are known exactly.
        host_bytes: host memory that the search allocates, the result included.
        memory_limit: the budget for device memory, which no search exceeds.
        last_level: the last level that can be run, to which `level_bytes` and `table_bytes` refer.
    """

    resident_bytes: int
    level_bytes: int
    table_bytes: int
    level_zero_table_bytes: int
    host_bytes: int
    memory_limit: int
    last_level: int

    @property
    def device_bytes(self) -> int:
        """Upper bound on device memory, which on the host backend is part of host memory."""
        return min(self.resident_bytes + self.level_bytes + self.table_bytes, self.memory_limit)

    def facts(self) -> dict[str, Any]:
        return {**vars(self), "device_bytes": self.device_bytes}

    def __str__(self) -> str:
        return (
            f"at most {self.device_bytes:,} of {self.memory_limit:,} bytes of device memory: {self.resident_bytes:,} "
            f"for codes and graph, up to {self.level_bytes:,} for the lists of a level, and for tables "
            f"{self.level_zero_table_bytes:,} at level 0 and up to {self.table_bytes:,} by level {self.last_level}; "
            f"at most {self.host_bytes:,} bytes of host memory beside them"
        )


def last_level(problem: DiscreteProblem) -> int:
    """Return the last level that a search can reach."""
    level = max(problem.n_variables - 2, 0)
    if problem.max_level is not None:
        level = min(level, problem.max_level)
    if problem.decay is not None and problem.fixed is None:
        level = min(level, _last_level_of_workload(problem.n_variables, problem.decay))
    low, high = 0, level  # Level 0 has no obstacle; one at a level remains at all later levels.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if problem.obstacle(middle) is None else (low, middle - 1)
    return low


def _last_level_of_workload(p: int, decay: float) -> int:
    """Return an upper bound on the last level of a workload: level k needs a variable with k + 1 edges."""
    edges, level, share = p * (p - 1) // 2, 0, 1.0 - decay
    while level < p:
        kept = math.ceil(edges * share) + 1
        while int((kept - 1) / share) >= edges:  # `DiscreteProblem.decayed` has this rule.
            kept -= 1
        if kept < level + 2:
            break
        edges, level = kept, level + 1
    return level


def largest_table(descending: list[int], level: int) -> int:
    """Return an upper bound on the cells of a level's tables with the sums of columns, given all numbers of categories,
    descending."""
    cells = math.prod(descending[: level + 2])
    return cells + cells // descending[-1]


def list_bytes(p: int, level: int) -> int:
    """Return an upper bound on device memory for the lists of levels up to `level`, and for the result."""
    pairs, result = p * (p - 1) // 2, p * p
    if level == 0:
        return result + 4 * p
    neighbours = 8 * p * (p - 1) + 4 * p  # the lists of a level and of the level before
    removed = pairs * (8 + 4 * level)
    if level > 1:  # the lists of levels are merged at the end, perhaps in several steps
        result += 2 * pairs * (17 + 4 * level) + 16
    return max(neighbours, result) + removed + 8 * (level + LEVELS_AHEAD + 1) * p + 4096


def host_bytes(problem: DiscreteProblem, level: int, pmax: bool, undecided: int) -> int:
    """Return the host memory of a search whose last level is `level`, with room for `undecided` tests that the host
    decides."""
    p, n = problem.n_variables, problem.n_samples
    pairs = p * (p - 1) // 2
    start = 32 * (n + 1) if problem.test == "g-square" else 0
    graph = 2 * p * p
    sets = pairs * (8 + 4 * level) if level else 0
    if level > 1:
        sets += 9 * pairs
    binomials = 24 * p * (level + LEVELS_AHEAD + 1)
    largest_p = 40 * p * p + (200 * pairs + 80 * n if level else 0) if pmax else 0
    return FIXED_HOST_BYTES + max(start, graph + sets + largest_p) + binomials + 200 * p + 64 * undecided
