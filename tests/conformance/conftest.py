"""Every registered Gaussian method, on every backend that it can use here, goes through the tests of this folder."""

from collections.abc import Callable

import pytest

from gpupc_impl import Skeleton, methods, skeleton
from gpupc_impl.core.registry import Method
from gpupc_impl.core.solve import unavailable

SETTINGS = {
    f"{method.name}-{backend}": (method, backend)
    for method in methods("gaussian").values()
    for backend in method.backends
}


def _parameter(name: str):
    method, backend = SETTINGS[name]
    reason = unavailable(method, backend)
    marks = [pytest.mark.gpu] if backend == "cuda" else []
    marks += [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
    return pytest.param(SETTINGS[name], marks=marks, id=name)


def pytest_generate_tests(metafunc):
    if "setting" in metafunc.fixturenames:
        metafunc.parametrize("setting", [_parameter(name) for name in SETTINGS], indirect=True)


@pytest.fixture
def setting(request) -> tuple[Method, str]:
    """A method and the backend it runs on."""
    return request.param


@pytest.fixture
def canonical_setting(setting) -> tuple[Method, str]:
    """A setting whose separating sets and counts are those that the contract defines."""
    if not setting[0].canonical:
        pytest.skip(f"{setting[0].name} has separating sets of its own")
    return setting


@pytest.fixture
def find(setting) -> Callable[..., Skeleton]:
    """`gpupc_impl.skeleton` by the setting's method and backend."""
    method, backend = setting
    return lambda data, **options: skeleton(data, method=method.name, backend=backend, **options)


@pytest.fixture(scope="session")
def usable_settings() -> dict[str, tuple[Method, str]]:
    """All settings that run here and whose separating sets are canonical."""
    return {
        name: (method, backend)
        for name, (method, backend) in SETTINGS.items()
        if method.canonical and unavailable(method, backend) is None
    }
