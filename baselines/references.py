"""CPU references: PC-stable with each family's test on one core and, in numba, on several.

They draw the random numbers and add up in the order of the GPU methods, so their answers are the same.

- `stable-serial` replaces pcalg's Stable.fast, the serial reference of cuPC's Table 2, and `stable-parallel` replaces
  Parallel-PC (cuPC, reference [17]).
- `discrete-parallel` replaces the packages bnlearn and parallelPC of gpuPC's comparison (section 4.1).
- `cmiknn-serial` is the base of GPU-CMIknn's speedups.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.p_value_search import OneByOne, search_by_p_values
from gpupc_impl.core.registry import Parameter, Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.kernel.plain import PlainTest as PlainKernelTest
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.regression.plain import PlainTest as PlainRegressionTest
from gpupc_impl.regression.problem import RegressionProblem

REFERENCE: dict[str, Any] = {"backends": ("cpu",), "reference": True, "tiers": True}
SERIAL: dict[str, Any] = {**REFERENCE, "unavailable": needs_package("numba", "numba")}
THREADS = Parameter(0, "number of threads; 0 takes every available core", minimum=0, maximum=1024)
PARALLEL: dict[str, Any] = {**SERIAL, "params": {"threads": THREADS}}


def _threads(params: Mapping[str, Any]) -> int:
    return params.get("threads", 1) or available_cores()


@method(
    "stable-serial",
    family="gaussian",
    code=("baselines._fisher_z",),
    source="cuPC, Algorithm 1; as pcalg's skeleton(method='stable.fast')",
    summary="PC-stable edge by edge on one core (numba)",
    **SERIAL,
)
@method(
    "stable-parallel",
    family="gaussian",
    code=("baselines._fisher_z",),
    source="cuPC, Algorithm 1, with the edges of a level shared among threads; as R package ParallelPC",
    summary="PC-stable with a level's edges spread over the cores (numba)",
    **PARALLEL,
)
def stable(problem: GaussianProblem, run: Run) -> Skeleton:
    from baselines._fisher_z import stable_skeleton  # imports numba

    return stable_skeleton(problem, run, _threads(run.params))


@method(
    "discrete-serial",
    family="discrete",
    code=("baselines._discrete_search",),
    source="gpuPC, Algorithm 1",
    summary="PC-stable on coded data, edge by edge on one core (numba)",
    **SERIAL,
)
@method(
    "discrete-parallel",
    family="discrete",
    code=("baselines._discrete_search",),
    source="gpuPC, Algorithm 1, with the edges of a level shared among threads; as R package bnlearn",
    summary="PC-stable on coded data, a level's edges spread over the cores (numba)",
    **PARALLEL,
)
def discrete(problem: DiscreteProblem, run: Run) -> Skeleton:
    from baselines._discrete_search import discrete_skeleton  # imports numba

    return discrete_skeleton(problem, run, _threads(run.params))


def open_cmiknn_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    from baselines._cmiknn import CmiknnTest

    return CmiknnTest.single(problem, _threads(params))


@method(
    "cmiknn-serial",
    family="nonlinear",
    code=("baselines._cmiknn",),
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn, test by test on one core (numba)",
    open_test=open_cmiknn_test,
    **SERIAL,
)
@method(
    "cmiknn-parallel",
    family="nonlinear",
    code=("baselines._cmiknn",),
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable; samples and permutations shared among threads",
    summary="PC-stable with CMIknn, each test spread over the cores (numba)",
    open_test=open_cmiknn_test,
    **PARALLEL,
)
def cmiknn(problem: NonlinearProblem, run: Run) -> Skeleton:
    from baselines._cmiknn import cmiknn_skeleton  # imports numba

    return cmiknn_skeleton(problem, run, _threads(run.params))


def open_mixed_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    from baselines._mixed import MixedTest

    return MixedTest.single(problem, _threads(params))


@method(
    "mixed-serial",
    family="mixed",
    code=("baselines._cmiknn", "baselines._mixed"),
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn of mixed data, test by test on one core (numba)",
    open_test=open_mixed_test,
    **SERIAL,
)
@method(
    "mixed-parallel",
    family="mixed",
    code=("baselines._cmiknn", "baselines._mixed"),
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable; samples shared among threads",
    summary="PC-stable with CMIknn of mixed data, each test spread over the cores (numba)",
    open_test=open_mixed_test,
    **PARALLEL,
)
def mixed(problem: MixedProblem, run: Run) -> Skeleton:
    from baselines._cmiknn import cmiknn_skeleton  # imports numba
    from baselines._mixed import MixedTest

    return cmiknn_skeleton(problem, run, _threads(run.params), MixedTest)


def _p_value_of(test: Callable[..., tuple[float, float]]) -> Callable[..., float]:
    return lambda i, j, members: test(i, j, members)[0]


@method(
    "kernel-serial",
    family="kernel",
    code=("gpupc_impl.kernel.plain", "gpupc_impl.core.p_value_search"),
    source="RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011) in PC-stable",
    summary="PC-stable with RCIT, RCoT or KCI, test by test in plain NumPy",
    open_test=lambda problem, backend, params: _p_value_of(PlainKernelTest(problem)),
    **REFERENCE,
)
def kernel(problem: KernelProblem, run: Run) -> Skeleton:
    return search_by_p_values(problem, run, OneByOne(PlainKernelTest(problem)))


@method(
    "regression-serial",
    family="regression",
    code=("gpupc_impl.regression.plain", "gpupc_impl.core.p_value_search"),
    source="likelihood ratio tests of regressions, as in micd (Witte, Foraita and Didelez 2022), in PC-stable",
    summary="PC-stable with regressions, test by test in NumPy and SciPy",
    open_test=lambda problem, backend, params: _p_value_of(PlainRegressionTest(problem)),
    **REFERENCE,
)
def regression(problem: RegressionProblem, run: Run) -> Skeleton:
    return search_by_p_values(problem, run, OneByOne(PlainRegressionTest(problem)))
