"""causal-learn's RCIT, RCoT, KCI and FastKCI in its own skeleton search, which serve as independent oracles.

causal-learn's RCIT draws new random numbers for each test, so its skeleton may differ from ours if a p-value is near
alpha. docs/kernel.md lists the other differences of its tests.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from baselines._causal_learn import ORIENTATION, WATCHED, watched, watched_search
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.kernel.problem import KernelProblem

FAST = {"fast_kci": Parameter(False, "a KCI problem by FastKCI, which tests on parts of the samples")}

APPROXIMATIONS = {"lindsay-pilla-basak": "lpd4", "satterthwaite-welch": "gamma", "hall-buckley-eagleson": "hbe"}
"""causal-learn's names for the null distributions."""


@method(
    "causal-learn-kernel",
    family="kernel",
    source="causal-learn, SkeletonDiscovery.skeleton_discovery(stable=True) with RCIT, KCI or FastKCI",
    summary="skeleton search of the package causal-learn with its kernel tests (Python, slow)",
    random=True,
    **{**WATCHED, "params": {**ORIENTATION, **FAST}},
)
def causal_learn_kernel(problem: KernelProblem, run: Run) -> Skeleton:
    return watched_search(problem, run, _test(problem, run.params), run.facts)


def open_test(problem: KernelProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    test = _test(problem, params)
    test.watch(problem)
    return lambda i, j, members: float(test(i, j, tuple(members)))


def _test(problem: KernelProblem, params: Mapping[str, Any]):
    """Return causal-learn's test of a problem; the p-value of a constant variable, which it cannot test, is 1."""
    from causallearn.utils import cit

    program: type = cit.RCIT
    options: dict[str, Any] = {}
    if problem.test == "kci":
        program = cit.FastKCI if params["fast_kci"] else cit.KCI
        options = {} if params["fast_kci"] else {"approx": problem.null == "gamma"}
    else:
        options = {"approx": APPROXIMATIONS[problem.null], "num_f2": problem.features, "rcit": problem.test == "rcit"}
        options["num_f"] = problem.n_set_features

    class KernelTest(program):
        def __call__(self, x, y, condition_set=None):
            if constant[[x, y]].any():
                return self.pvalue_cache.setdefault((min(x, y), max(x, y), tuple(condition_set)), 1.0)
            state = np.random.get_state()  # noqa: NPY002, since causal-learn draws from NumPy's global state
            seed = np.random.SeedSequence([problem.seed, *sorted((int(x), int(y))), *map(int, condition_set)])
            np.random.seed(seed.generate_state(1))  # noqa: NPY002
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return super().__call__(x, y, tuple(k for k in condition_set if not constant[k]))
            finally:
                np.random.set_state(state)  # noqa: NPY002

    constant = problem.is_constant()
    return watched(KernelTest)(np.ascontiguousarray(problem.values.T), **options)
