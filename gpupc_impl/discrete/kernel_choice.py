"""Decides whether a first search on a GPU waits until its fastest kernels are compiled."""

import math

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.discrete.declarations import REQUESTED_CODE
from gpupc_impl.discrete.device import Level
from gpupc_impl.discrete.problem import DiscreteProblem

HURRIED_SAMPLES = 1 << 36
"""Upper bound on the samples that the tests of a level read for a search not to wait: slower kernels read them in about
a second, and the fastest ones take a compiler several seconds."""


def is_worth_waiting_for(kernel: KernelSource, backend: Backend, problem: DiscreteProblem, level: Level) -> bool:
    """Return whether a level runs with its fastest kernel, because it is ready or because the tests are worth the wait.

    Cores always wait, because on them slower kernels are missing or take as long to compile.
    """
    if not backend.multiprocessors or problem.codes.dtype.name != REQUESTED_CODE or backend.is_ready(kernel):
        return True
    tests = level.edges_with_tests * 2 * math.comb(level.max_degree - 1, level.level)
    return tests * problem.n_samples > HURRIED_SAMPLES
