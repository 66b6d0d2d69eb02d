"""CPU references: PC-stable with each family's test on one core and, in numba, on several.

They draw the random numbers and add up in the order of the GPU methods, so their answers are the same.

- `stable-serial` replaces pcalg's Stable.fast of cuPC's Table 2, `stable-parallel` Parallel-PC (cuPC, reference [17]).
- `discrete-parallel` replaces the packages bnlearn and parallelPC of gpuPC's comparison (section 4.1).
- `cmiknn-serial` is the base of GPU-CMIknn's speedups."""

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
THREADS = Parameter(0, "number of threads; 0 takes every available core", minimum=0, maximum=1024)
FORMS = {"parallel": ("on several cores", {"threads": THREADS}), "serial": ("on one core", {})}


def serial_and_parallel(
    family: str, modules: tuple[str, ...], source: str, summary: str, **attributes: Any
) -> Callable[[Any], Any]:
    """Register a search in numba, which these modules perform, under its own name with both endings of `FORMS`."""

    def register(solve: Any) -> Any:
        for form, (where, params) in FORMS.items():
            solve = method(
                f"{solve.__name__}-{form}",
                family=family,
                code=modules,
                source=f"{source}, {where}",
                summary=f"{summary} {where} (numba)",
                params=params,
                unavailable=needs_package("numba", "numba"),
                **REFERENCE,
                **attributes,
            )(solve)
        return solve

    return register


def _threads(params: Mapping[str, Any]) -> int:
    return params.get("threads", 1) or available_cores()


@serial_and_parallel(
    "gaussian",
    ("baselines._fisher_z",),
    "cuPC, Algorithm 1; as pcalg's skeleton(method='stable.fast') and R package ParallelPC",
    "PC-stable edge by edge",
)
def stable(problem: GaussianProblem, run: Run) -> Skeleton:
    from baselines._fisher_z import stable_skeleton  # imports numba

    return stable_skeleton(problem, run, _threads(run.params))


@serial_and_parallel(
    "discrete",
    ("baselines._discrete",),
    "gpuPC, Algorithm 1; as R package bnlearn",
    "PC-stable on coded data, edge by edge",
)
def discrete(problem: DiscreteProblem, run: Run) -> Skeleton:
    from baselines._discrete import discrete_skeleton  # imports numba

    return discrete_skeleton(problem, run, _threads(run.params))


def open_cmiknn_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    from baselines._cmiknn import CmiknnTest

    return CmiknnTest.single(problem, _threads(params))


@serial_and_parallel(
    "nonlinear",
    ("baselines._cmiknn",),
    "GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable",
    "PC-stable with CMIknn, test by test",
    open_test=open_cmiknn_test,
)
def cmiknn(problem: NonlinearProblem, run: Run) -> Skeleton:
    from baselines._cmiknn import cmiknn_skeleton  # imports numba

    return cmiknn_skeleton(problem, run, _threads(run.params))


def open_mixed_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    from baselines._mixed import MixedTest

    return MixedTest.single(problem, _threads(params))


@serial_and_parallel(
    "mixed",
    ("baselines._cmiknn", "baselines._mixed"),
    "Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable",
    "PC-stable with CMIknn of mixed data, test by test",
    open_test=open_mixed_test,
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
