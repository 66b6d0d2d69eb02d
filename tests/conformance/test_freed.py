"""What a search took is given back: no backend, and so no kernel and no device memory, outlives its last user."""

import functools
import gc
import weakref

import pytest

from gpupc_impl import methods
from gpupc_impl.core.family import get_family
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from tests.answers import problems

WITH_KERNELS = [method for method in methods().values() if "host" in method.backends]


@functools.cache
def problem_of(family):
    data, arguments = {name: (data, arguments) for name, _, data, arguments in problems()}[family]
    return get_family(family).problem.from_data(data, **arguments)


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
