"""What a search took is given back: no backend, and so no kernel and no device memory, outlives its last user."""

import functools
import gc
import itertools
import weakref

import pytest

from gpupc_impl import methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from tests.soak.run import REFERENCES, draw_problem

SIZES = {"gaussian": 2, "discrete": 2, "nonlinear": 1, "mixed": 1, "kernel": 1, "regression": 1}
"""By family, of how many sizes separating sets are in the problem: lists of several levels are merged on the device."""

WITH_KERNELS = [method for method in methods().values() if "host" in method.backends]


@functools.cache
def problem_of(family):
    def sizes(problem):
        found = solve(problem, methods()[REFERENCES[family]], None)
        return {len(members) for members in found.sepsets.values() if members}

    numbers = itertools.count(list(REFERENCES).index(family), len(REFERENCES))
    return next(problem for problem in map(draw_problem, numbers) if len(sizes(problem)) >= SIZES[family])


@pytest.mark.parametrize("method", WITH_KERNELS, ids=lambda method: method.name)
def test_a_backend_ends_with_its_last_user(method):
    if reason := unavailable(method, "host"):
        pytest.skip(reason)
    backend = open_method_backend(method, "host")
    solve(problem_of(method.family), method, backend)
    alive = weakref.ref(backend)
    del backend
    gc.collect()
    assert alive() is None
