"""GPU-CMIknn for mixed data: the batches of GPU-CMIknn Parallel with the estimator of Mesner and Shalizi, by kernels of
the nonlinear family with another rule for distances."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Kernel, KernelSource
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import LARGEST, MixedProblem, ranks_scale
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, CmiknnTests, ci_test
from gpupc_impl.nonlinear.declarations import first_kernels, instances, kernel_of
from gpupc_impl.nonlinear.gpucmiknn import SETS_AT_ONCE, ParallelSearch, open_test
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.tuning import SEARCH_PARAMS

# Sources of the kernels that take a rule for distances; the other kernels are those of the nonlinear family.
SOURCES = {
    "nearest": "mixed/kernels/permutation.cu",
    "estimate": "mixed/kernels/estimate.cu",
    "list_neighbours": "mixed/kernels/lists.cu",
    "estimate_by_buckets": "mixed/kernels/buckets.cu",
    "estimate_far": "mixed/kernels/far.cu",
}

MIXED_PARAMS = {
    **SEARCH_PARAMS,
    "selection": Parameter(
        "auto",
        "how the k_CMI-th distance is found: in buckets of lists of neighbours, by bisection and counting, or by the "
        "faster on the backend",
        choices=("auto", "buckets", "counting"),
    ),
}

FARTHEST_RANK = 2**15 - 2  # distance of different categories if ranks are short integers
CONSTANTS = {"Category<short>::DISTANCE": FARTHEST_RANK}


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel that this family does not share with the nonlinear one; all levels have the same kernels."""
    return instances(mixed_kernel, SOURCES)


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """The kernels that a search of ranks and categories with the default k_CMI needs (see `Method.kernels`)."""
    return first_kernels(mixed_kernel, backend.name, params["selection"])


def mixed_kernel(name: str, kind: str, *arguments: str) -> KernelSource:
    """Return a kernel for a type of value, with further template arguments except for the rule for distances."""
    if name not in SOURCES:
        return kernel_of(name, kind, *arguments)
    plain = kernel_of(name, kind, *arguments, "Mixed")
    return plain._replace(source=SOURCES[name], constants={**plain.constants, **CONSTANTS})


class MixedSamples(DeviceSamples):
    continuous = False
    problem: MixedProblem

    def kernel(self, name: str, *arguments: str) -> Kernel:
        return self.backend.kernel(*mixed_kernel(name, self.kind, *arguments))

    def _encoded(self, whole: bool) -> tuple[str, np.ndarray, Any]:
        """Return the kind, (p, n) encoded values, and an upper bound on the distances (kernels/mixed.cuh). Ranks that
        fit become short integers, and categories negative ones; or categories become the largest floats."""
        problem = self.problem
        coded = problem.categories > 0
        values = problem.values.copy()
        if problem.transform == "ranks" and problem.n_samples < 2**15:
            values *= ranks_scale(problem.n_samples)
            values[coded] = -1 - problem.values[coded]
            widest = FARTHEST_RANK if coded.any() else problem.n_samples - 1
            return "short", values.astype(np.int16), widest
        bits = np.dtype(f"int{8 * values.itemsize}")
        first = np.array(2 * LARGEST[problem.precision], values.dtype).view(bits)
        values[coded] = (first + problem.values[coded].astype(bits)).view(values.dtype)
        numbers = values[~coded]
        spread = (numbers.max(axis=1) - numbers.min(axis=1)).max(initial=0) if len(numbers) else 0.0
        return "double" if problem.precision == "float64" else "float", values, max(spread, float(coded.any()))


class MixedCmiEstimator(CmiEstimator):
    """The estimator of conditional mutual information for one mixed problem on one backend."""

    samples_of = MixedSamples


mixed_ci_test = functools.partial(ci_test, estimator_of=MixedCmiEstimator)
"""The function `nonlinear.cmi_estimator.ci_test` for mixed data, which does not support the selection `insertion`."""


class MixedTests(CmiknnTests):
    """The tests of a `MixedProblem`; estimates can be negative."""

    estimator_of = MixedCmiEstimator


class MixedSearch(ParallelSearch):
    estimator_of = MixedCmiEstimator


@method(
    "gpucmiknn-mixed",
    family="mixed",
    source="this project; GPU-CMIknn, Algorithm 5, with the estimator of Mesner and Shalizi (2021)",
    summary="permutations of several sets at once, each used for all neighbours; numbers and categories",
    params={**MIXED_PARAMS, "delta": SETS_AT_ONCE},
    tiers=True,
    kernels=search_kernels,
    open_test=functools.partial(open_test, estimator_of=MixedCmiEstimator),
)
def gpucmiknn_mixed(problem: MixedProblem, run: Run) -> Skeleton:
    return pc_stable(problem, MixedSearch(problem, run), facts=dict(run.facts), progress=run.progress)
