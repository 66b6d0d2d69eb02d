"""GPU-CMIknn for mixed data: batches of sets as GPU-CMIknn Parallel makes them, the test of Mesner and Shalizi."""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.device import MIXED_PARAMS, MixedEngine, mixed_ci_test
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.device import PARAMS
from gpupc_impl.nonlinear.gpucmiknn_parallel import SETS_AT_ONCE, ParallelSearch


class MixedSearch(ParallelSearch):
    engine_of = MixedEngine


@method(
    "gpucmiknn-mixed",
    family="mixed",
    source="this project; GPU-CMIknn, Algorithm 5, with the estimator of Mesner and Shalizi (2021)",
    summary="permutations of several sets at once, each used for all neighbours; numbers and categories",
    params={**MIXED_PARAMS, "delta": SETS_AT_ONCE},
)
def gpucmiknn_mixed(problem: MixedProblem, run: Run) -> Skeleton:
    return pc_stable(problem, MixedSearch(problem, run), facts=dict(run.facts), progress=run.progress)


def open_test(problem: MixedProblem, backend: Backend, params: Mapping[str, Any]) -> Callable[..., float]:
    """Single tests (`measurement.single_tests`): (i, j, S) -> p-value. Each brings its data to the device."""
    of_tests = {name: value for name, value in params.items() if name in PARAMS}

    def test(i: int, j: int, members: tuple[int, ...]) -> float:
        count, _, _ = mixed_ci_test(problem, i, j, members, backend, **of_tests)
        return problem.p_value(count)

    return test
