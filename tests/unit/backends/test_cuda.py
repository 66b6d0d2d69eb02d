"""What the CUDA backend says on a machine without a GPU; `tests/gpu` tests it on a device."""

import sys
import warnings

import pytest

from gpupc_impl import backends
from gpupc_impl.backends import BackendUnavailable, backend_class, open_backend


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "pip install cupy-cuda12x" in backend_class("cuda").unavailable()
    with pytest.raises(BackendUnavailable, match="CuPy cannot be imported"):
        open_backend("cuda")


@pytest.mark.parametrize(("driver", "visible", "warned"), [(True, None, True), (False, None, False), (True, "", False)])
def test_auto_says_where_a_gpu_might_have_been_used(monkeypatch, driver, visible, warned):
    """It says nothing if there is no driver, or if the user hides the devices."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(backends, "has_nvidia_driver", lambda: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert backends.resolve_backend("auto") == "host"
        assert backends.resolve_backend("host") == "host"  # as asked
    assert ["pip install cupy-cuda12x" in str(warning.message) for warning in said] == [True] * warned


def test_an_unknown_backend_is_named():
    with pytest.raises(ValueError, match="backend 'rocm' is not known; choose one of: auto, cuda, host"):
        open_backend("rocm")
