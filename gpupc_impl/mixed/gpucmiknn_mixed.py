"""GPU-CMIknn for mixed data, which makes the batches of GPU-CMIknn Parallel with the estimator of Mesner and
Shalizi."""

import functools

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.device import MIXED_PARAMS, MixedCmiEstimator, search_kernels
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear import gpucmiknn_single
from gpupc_impl.nonlinear.gpucmiknn_parallel import SETS_AT_ONCE, ParallelSearch


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
    open_test=functools.partial(gpucmiknn_single.open_test, estimator_of=MixedCmiEstimator),
)
def gpucmiknn_mixed(problem: MixedProblem, run: Run) -> Skeleton:
    return pc_stable(problem, MixedSearch(problem, run), facts=dict(run.facts), progress=run.progress)
