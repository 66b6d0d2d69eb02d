"""The division of a level from 2 on into tasks: groups of rows of about the same work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import scipy

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.distributed import panel_plan
from gpupc_impl.distributed.spec import RowGroup, SearchSpec
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.gaussian.problem import GaussianProblem

LEAST_WORK = 1e9
"""Lower bound on the multiply-adds of a group of rows, so that a task is worth its overhead."""

WORK_OF_A_TEST = 20
"""Multiply-adds of a test."""

TASKS_A_LEVEL = 256
"""Groups of rows of a level with much work. The number does not depend on the number of workers, so that a resumed
search has the same groups."""


def row_groups(
    problem: GaussianProblem, spec: SearchSpec, graph: RowGraph, level: int, required: np.ndarray
) -> Iterator[tuple[RowGroup, np.ndarray]]:
    """Yield the groups of a level, each with the slots of its rows.

    Args:
        required: slots of required edges.

    Raises:
        DeviceMemoryError: a row does not fit in a worker's memory.
    """
    degrees, plan = graph.degrees, spec.plan
    active = degrees > level
    if problem.fixed is not None:
        active &= ~problem.fixed.without_tests(degrees)
    limit = check_fit(problem, degrees, active, level, spec.samples, plan.budget)
    needed = panel_plan.row_bytes(degrees)
    # This order puts neighbours close together. If both ends of an edge are in a group, a separating set from one row
    # ends the tests of the edge in the other row.
    order = graph.order()
    order = order[active[order]].astype(np.int64)
    ordered_degrees = degrees[order]
    tiles = 64 * (ordered_degrees // 64 + 1)  # a small matrix is computed in whole tiles as well
    tests = ordered_degrees * scipy.special.comb(ordered_degrees, level)
    work = WORK_OF_A_TEST * tests + (ordered_degrees + 1) * tiles * spec.samples
    is_required = np.zeros(len(graph.neighbours), bool)
    is_required[required] = True
    for part in panel_plan.share_out(work, needed[order], limit, LEAST_WORK, TASKS_A_LEVEL):
        rows = order[part]
        slots = graph.row_slots(rows)
        near = graph.neighbours[slots]
        name = hashlib.sha256(rows.tobytes() + near.tobytes()).hexdigest()[:24]
        yield RowGroup(name, rows, degrees[rows], near, np.flatnonzero(is_required[slots])), slots


def check_fit(
    problem: GaussianProblem, degrees: np.ndarray, active: np.ndarray, level: int, samples: int, budget: int
) -> int:
    """Check that each row fits on a device at a level; returns the bytes that rows may take on the device.

    Args:
        degrees, active: (p,) the degrees, and whether each row has tests.
        samples: the number of samples that the device holds.
        budget: the device memory that may be taken.

    Raises:
        DeviceMemoryError: a row does not fit.
    """
    limit = panel_plan.bytes_for_rows(samples, len(degrees), level, int(degrees.max()), budget)
    needed = panel_plan.row_bytes(degrees)
    too_long = np.flatnonzero(active & (needed > limit))
    if len(too_long):
        i = int(too_long[0])
        least = int(needed[i]) + budget - limit
        raise DeviceMemoryError(
            least,
            0,
            budget,
            f"level {level} needs {least:,} bytes of a worker's device memory for the {degrees[i]:,} neighbours of "
            f"{problem.names[i]}; it has {budget:,}: give workers more (device_memory_limit), lower alpha, or "
            f"set max_level to {level - 1}",
        )
    return limit
