"""Mixed data on a device: the nonlinear family's kernels and search, by the rules of mixed data."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import Kernel, KernelSource
from gpupc_impl.core.registry import Parameter
from gpupc_impl.mixed.problem import LARGEST, MixedProblem, ranks_scale
from gpupc_impl.nonlinear.device import SEARCH_PARAMS, TYPES, Engine, by_distances, ci_test, kernel_of

SOURCES = {
    "nearest": "mixed/kernels/permutation.cu",
    "estimate": "mixed/kernels/estimate.cu",
    "list_neighbours": "mixed/kernels/buckets.cu",
    "estimate_by_buckets": "mixed/kernels/buckets.cu",
    "estimate_far": "mixed/kernels/buckets.cu",
}
"""Kernels that take the rules; the others are those of the nonlinear family as they stand."""

MIXED_PARAMS = {
    **SEARCH_PARAMS,
    "selection": Parameter(
        "auto",
        "how the k_CMI-th distance is found: in buckets of lists of neighbours, by bisection and counting, or by the "
        "faster on the backend",
        choices=("auto", "buckets", "counting"),
    ),
}

FARTHEST_RANK = 2**15 - 2
"""mixed/kernels/mixed.cuh: what different categories are apart in where values are ranks in short integers."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of this family that is not the nonlinear family's; they serve all levels."""
    found = [mixed_kernel("nearest", kind) for kind in TYPES]
    for kind in TYPES:
        found += [mixed_kernel(name, kind, *others) for name, *others in by_distances(kind)]
    return found


def mixed_kernel(name: str, kind: str, *arguments: str) -> KernelSource:
    """A kernel for values of a type, with its further template arguments but the rules."""
    if name not in SOURCES:
        return kernel_of(name, kind, *arguments)
    return kernel_of(name, kind, *arguments, "Mixed")._replace(source=SOURCES[name])


class MixedEngine(Engine):
    """Permutations and tests of one mixed problem on one backend."""

    problem: MixedProblem

    @property
    def ranks(self) -> bool:
        return False  # not of the categories

    def _in_registers(self) -> bool:
        return False

    def _kernel(self, name: str, *arguments: str) -> Kernel:
        return self.backend.kernel(*mixed_kernel(name, self.kind, *arguments))

    def _device_values(self) -> tuple[str, np.ndarray, Any]:
        """Ranks are short integers where they fit, and categories negative ones; else categories are the largest
        numbers (mixed/kernels/mixed.cuh)."""
        problem = self.problem
        coded = problem.categories > 0
        values = problem.values.copy()
        if problem.transform == "ranks" and problem.n_samples < 2**15:
            values *= ranks_scale(problem.n_samples)
            values[coded] = -1 - problem.values[coded]
            farthest = FARTHEST_RANK if coded.any() else problem.n_samples - 1
            return "short", values.astype(np.int16), farthest
        bits = np.dtype(f"int{8 * values.itemsize}")
        first = np.array(2 * LARGEST[problem.precision], values.dtype).view(bits)
        values[coded] = (first + problem.values[coded].astype(bits)).view(values.dtype)
        numbers = values[~coded]
        spread = (numbers.max(axis=1) - numbers.min(axis=1)).max(initial=0) if len(numbers) else 0.0
        return "double" if problem.precision == "float64" else "float", values, max(spread, float(coded.any()))


mixed_ci_test = functools.partial(ci_test, engine_of=MixedEngine)
"""`nonlinear.device.ci_test` of mixed data; not by insertion."""
