"""Gaussian data with Fisher's z test (cuPC)."""

import numpy as np

from gpupc_impl.core import family
from gpupc_impl.core.family import Family
from gpupc_impl.gaussian import imputed, pairwise
from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.gaussian.large import prepare_large
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.gaussian.strength import Strength


def open_retest(problem: GaussianProblem) -> family.Retest:
    """Return the retest of a problem; an `ArrayProblem`, which is never recorded, has its own tests."""
    return ArrayRetest(problem) if isinstance(problem, ArrayProblem) else Retest(problem)


class ArrayRetest:
    """Implements `core.family.Retest` by the problem's own tests, for votes about v-structures. A ratio is alpha
    divided by the p-value."""

    affordable = None

    def __init__(self, problem: ArrayProblem):
        self._tests, self._alpha = problem.tests(), problem.alpha

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p_values = self._tests(pairs, sets, True).p_values
        with np.errstate(divide="ignore"):
            return self._alpha / p_values, np.zeros(len(pairs))


FAMILY = Family(
    name="gaussian",
    problem=GaussianProblem,
    retest=open_retest,
    strength=Strength,
    # pair-scan is the fastest method on a GPU and on CPU cores (docs/design/gaussian.md). The reference
    # stable-parallel needs no C++ compiler.
    auto={"cuda": "pair-scan", "host": "pair-scan", "cpu": "stable-parallel"},
    packages=(
        "gpupc_impl.gaussian",
        "gpupc_impl.out_of_core",
        "gpupc_impl.distributed",
        "baselines",
        "baselines.peers",
    ),
    default=True,
    treatments={
        "pairwise": (pairwise.PairwiseProblem, pairwise.METHOD),
        "imputed": (imputed.ImputedProblem, imputed.METHOD),
    },
    prepare_large=prepare_large,
)
