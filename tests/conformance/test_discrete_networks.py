"""The benchmark networks of the literature: every discrete method finds the same skeleton of their samples."""

import dataclasses
import functools

import numpy as np
import pytest

from gpupc_impl import methods, skeleton
from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve, unavailable
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.conformance.test_discrete_agreement import make_problem
from tests.loaded import load

pytestmark = pytest.mark.xdist_group("discrete")  # so that only one process compiles the references

NETWORKS = ("asia", "sachs", "insurance", "alarm", "hailfinder", "hepar2")
QUICK = ("asia-5000", "sachs-5000", "alarm-5000")


@functools.cache
def problem(name: str, test: str, df_rule: str) -> DiscreteProblem:
    """The samples with the states that the network declares; skips what is not there."""
    data = load(name)
    categories = dict(zip(data.names, data.labels, strict=True))
    return make_problem(data.values, categories, names=data.names, alpha=0.01, test=test, df_rule=df_rule)


def cases():
    for name in (f"{network}-{samples}" for samples in (5000, 20000) for network in NETWORKS):
        yield pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow], id=name)


@pytest.mark.parametrize("name", list(cases()))
@pytest.mark.parametrize("df_rule", ["full", "adjusted"])
@pytest.mark.parametrize("test", ["chi-square", "g-square"])
def test_all_methods_agree(name, test, df_rule):
    """Edges and separating sets; by the adjusted rule causal-learn's edges, too."""
    asked = problem(name, test, df_rule)
    expected = skeleton(asked, method="discrete-serial")
    assert 0 < expected.n_edges < 2 * asked.n_variables
    compared = 0
    for method in methods("discrete").values():
        if method.module.startswith("baselines.peers."):
            continue
        for backend in method.backends:
            if unavailable(method, backend) is not None or (df_rule == "full" and not method.canonical):
                continue
            found = skeleton(asked, method=method.name, backend=backend)
            assert np.array_equal(found.adjacency, expected.adjacency), method.name
            assert found.edges_per_level == expected.edges_per_level, method.name
            if method.canonical:
                assert found.sepsets == expected.sepsets, method.name
            compared += 1
    assert compared > 1


@pytest.mark.slow
def test_munin_within_2_gib():
    """1,041 variables of up to 21 categories: gpuPC plans for the device memory there is, disc-cupc runs out of it."""
    asked = dataclasses.replace(problem("munin-20000", "chi-square", "full"), max_level=1)
    assert (asked.n_variables, asked.n_samples, asked.categories.max()) == (1041, 20_000, 21)
    limit = 2 * 2**30
    backend = open_backend("host", limit)
    found = solve(asked, get_method("gpupc"), backend)
    assert found.levels_run == 2
    assert backend.memory_peak <= limit
    with pytest.raises(DeviceMemoryError):
        solve(asked, get_method("disc-cupc"), open_backend("host", limit))
