"""Every registered method, on every backend that it can use here, goes through the tests of this folder."""

from collections.abc import Callable

import pytest

from gpupc_impl import GaussianProblem, Skeleton, methods, skeleton
from gpupc_impl.core.registry import Method
from gpupc_impl.core.solve import unavailable
from tests.conformance.drawn import usable


def _settings(family: str):
    """The methods of a family on each of their backends; those that cannot be tested say why."""
    for method in methods(family).values():
        for backend in method.backends:
            name, reason = f"{method.name}-{backend}", unavailable(method, backend)
            if method.module.startswith("baselines.peers."):
                reason = "a program of other people, which need not keep our contract; tests of its own compare it"
            marks = [pytest.mark.gpu] if backend == "cuda" else []
            marks += [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
            yield pytest.param((method, backend), marks=marks, id=name)


@pytest.fixture(params=_settings("gaussian"))
def setting(request) -> tuple[Method, str]:
    """A Gaussian method and the backend it runs on."""
    return request.param


@pytest.fixture(params=_settings("discrete"))
def discrete(request) -> tuple[Method, str]:
    """A discrete method and the backend it runs on."""
    return request.param


@pytest.fixture
def canonical_setting(setting) -> tuple[Method, str]:
    """A setting whose separating sets and counts are those that the contract defines."""
    if not setting[0].canonical:
        pytest.skip(f"{setting[0].name} has separating sets of its own")
    return setting


@pytest.fixture(scope="module")
def client():
    """Of a cluster in this process, which takes longer to start than to search; test_knowledge.py starts its own."""
    from distributed import Client, LocalCluster

    how = {"processes": False, "threads_per_worker": 3, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with LocalCluster(n_workers=1, **how) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def find(setting, request) -> Callable[..., Skeleton]:
    """`gpupc_impl.skeleton` by the setting's method and backend."""
    method, backend = setting
    on = {"client": request.getfixturevalue("client")} if "client" in method.params and backend == "host" else {}

    def found(data, **options):
        if options.get("pmax") and method.cluster:
            pytest.skip("methods on clusters record no largest p-values")
        # Workers need samples, and refuse a matrix.
        is_matrix = isinstance(data, GaussianProblem) or "n_samples" in options or "correlations" in options
        own = {} if is_matrix else on
        return skeleton(data, method=method.name, backend=backend, **{**own, **options})

    return found


@pytest.fixture(scope="session")
def usable_settings() -> dict[str, tuple[Method, str]]:
    """All settings that run here and whose separating sets are canonical; test_distributed.py has those on clusters."""
    return usable("gaussian", lambda method: method.canonical and not method.cluster)
