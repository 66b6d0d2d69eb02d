"""Real data sets with a tenth of the device memory that the in-core search needs."""

import pytest

from gpupc_impl import GaussianProblem, skeleton
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import unavailable
from gpupc_impl.out_of_core import plans
from tests.loaded import load


@pytest.mark.parametrize("backend", ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["mcc", pytest.param("s-aureus", marks=pytest.mark.slow)])
def test_a_tenth_of_the_memory(name, backend):
    reason = unavailable(get_method("out-of-core-block"), backend)
    if reason is not None:
        pytest.skip(reason)
    data = load(name)
    problem = GaussianProblem.from_data(data.values, names=data.names)
    budget = plans.managed_bytes(problem.n_variables, 1, pmax=False) // 10
    found = skeleton(problem, method="out-of-core-block", backend=backend, device_memory_limit=budget)
    assert found == skeleton(problem, method="stable-serial")
    assert found.facts["out_of_core"]["peak_device_bytes"] <= budget
    assert found.facts["out_of_core"]["levels"][0]["blocks"] > 1
